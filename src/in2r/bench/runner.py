"""The runner: claims cells in order of priority and starts a process for each.

Several runners may work on one grid, on one machine or on several that share the folder.
"""

import math
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from in2r.bench.cell import FAILED, STOPPED, Placement, start
from in2r.bench.folder import GridFolder
from in2r.bench.grid import Cell, cell_config
from in2r.bench.warmups import warmup_epochs, warmup_key
from in2r.claims import Claim
from in2r.errors import InputError, command_line
from in2r.training.interrupts import Interrupts, deferred_interrupts

POLL, LOOK = 0.5, 5.0
"""Seconds between two looks at the own cells, and at those of other runners."""
LIMIT = 3
"""Cells in a row that fail before their first epoch, after which a runner stops: the cause is not in the cells."""

_HINTS = {
    "SIGKILL": ", as the system does when memory runs out",
    "SIGBUS": ", as happens when a feature file is cut short while it is read",
}

Report = Callable[[str, str], None]
"""is called with a cell's name and what became of it: started, or its state afterwards"""


@dataclass
class _Job:
    cell: Cell
    claim: Claim
    process: "subprocess.Popen[bytes]"

    def end(self) -> None:
        """Wait until the process has ended, then give the cell back."""
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()  # not before: the end of its input would ask the process a second time to stop
        self.claim.release()


class Runner:
    """Works on cells of a grid until none is left that it could take.

    Args:
        folder: the grid's folder.
        cells: the cells to work on, in their order.
        place: where data and devices are.
        jobs: how many cells are worked on at the same time.
        report: hears what becomes of each cell.
        tick: is called at every look at the cells.
    """

    def __init__(
        self,
        folder: GridFolder,
        cells: Sequence[Cell],
        place: Placement,
        jobs: int,
        report: Report,
        tick: Callable[[], None],
    ) -> None:
        self.folder, self.cells, self.place, self.jobs = folder, cells, place, jobs
        self.report, self.tick = report, tick
        self.folds = folder.grid().folds
        self.keys = {cell.name: warmup_key(cell_config(cell)) for cell in cells}
        self._running: list[_Job] = []
        self._failures = 0

    def run(self) -> bool:
        """Work until nothing is left to do; return whether all cells are finished.

        Raises:
            InputError: cell after cell fails before its first epoch.
            KeyboardInterrupt: after ^C; the cells that were running have saved their work.
        """
        with deferred_interrupts() as interrupts:
            try:
                self._work(interrupts)
            finally:
                self._stop()
        return all(self.folder.state(cell.name) == "finished" for cell in self.cells)

    def _work(self, interrupts: Interrupts) -> None:
        looked = -math.inf
        while interrupts.asked is None:
            if self._collect() or time.monotonic() - looked >= LOOK:
                must_wait = self._fill()
                looked = time.monotonic()
                if not self._running and not must_wait:
                    return
            self.tick()
            time.sleep(POLL)

    def _fill(self) -> bool:
        """Start what can be started; return whether there is something to wait for.

        That is a cell that another runner works on, or one that waits for its warm-up. A cell that another machine
        claimed is not waited for: nobody here can know whether its process runs.
        """
        if self._failures >= LIMIT:
            status = command_line("in2r", "bench", "status", self.folder.path)
            raise InputError(
                f"{self.folder.path}: {LIMIT} cells in a row failed before their first epoch; `{status}` says why, "
                "`--retry` starts them again"
            )
        states = {cell.name: self.folder.state(cell.name) for cell in self.cells}
        alive = [cell for cell in self.cells if states[cell.name] == "running" and self._is_alive(cell)]
        busy = {self.keys[cell.name] for cell in alive if self.folder.epochs_done(cell.name) < warmup_epochs(cell)}
        # interrupted cells come first, then by priority
        left = [cell for state in ("interrupted", "open") for cell in self.cells if states[cell.name] == state]
        for cell in left:
            if len(self._running) >= self.jobs:
                break
            key = self.keys[cell.name]
            if key is not None and key in busy and not self.folder.run(cell.name).exists():
                continue  # another cell trains the same warm-up, which this one will take over
            if self._start(cell) and warmup_epochs(cell):
                busy.add(key)
        return bool(left or alive)

    def _is_alive(self, cell: Cell) -> bool:
        holder = self.folder.holder(cell.name)
        return holder is not None and holder.is_alive

    def _start(self, cell: Cell) -> bool:
        claim = self.folder.claim(cell.name)
        if claim is None:
            return False
        if cell.name in self.folder.records:  # it was finished meanwhile
            claim.release()
            return False
        self._running.append(_Job(cell, claim, start(self.folder, cell, claim, self.place, self.folds)))
        self.report(cell.name, "started")
        return True

    def _collect(self) -> bool:
        """Take notice of the cells whose process has ended; return whether there were any."""
        ended = [job for job in self._running if job.process.poll() is not None]
        for job in ended:
            self._running.remove(job)
            self._note_end(job)
        return bool(ended)

    def _note_end(self, job: _Job) -> None:
        name, status = job.cell.name, job.process.returncode
        if status not in (0, FAILED, STOPPED):
            self.folder.write_failure(name, f"{_reason(status)}; see {self.folder.log_file(name)}")
        job.end()
        state = self.folder.state(name)
        self._failures = self._failures + 1 if state == "failed" and not self.folder.epochs_done(name) else 0
        self.report(name, state)

    def _stop(self) -> None:
        """Ask the running cells to save and stop, and wait for it."""
        for job in self._running:
            if job.process.poll() is None:
                job.process.terminate()
        for job in self._running:
            job.end()
        self._running = []


def _reason(status: int) -> str:
    """Say how a process ended that did not say it itself."""
    if status >= 0:
        return f"ended with status {status}"
    killed = signal.Signals(-status).name
    return f"killed by {killed}{_HINTS.get(killed, '')}"
