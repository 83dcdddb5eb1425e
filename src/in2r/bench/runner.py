"""The runner: claims cells in order of priority and has each worked on by a process of its own.

Several runners, on several machines that share the folder, may work on one grid: each cell is claimed by a lease.
"""

import math
import signal
import subprocess
import time
from collections.abc import Callable, Container
from dataclasses import dataclass
from datetime import UTC, datetime

from in2r.bench.cell import BROKEN, IN_USE, STOPPED, Where, start
from in2r.bench.folder import Fault, GridFolder
from in2r.bench.grid import Cell, Grid, cell_config
from in2r.bench.leases import Lease
from in2r.bench.warmups import warmup_epochs, warmup_key
from in2r.engine.interrupts import Interrupts, deferred_interrupts
from in2r.errors import InputError, command_line

POLL, LOOK = 0.5, 5.0
"""Seconds between two looks at the own cells, and at those of others."""
TRIES = 3
"""Times that a runner begins a cell which ends without a word, before it counts as broken."""
STRIKES = 3
"""Cells in a row that break before their first epoch, after which a runner stops: the fault is not theirs."""

_MEANS = {
    "SIGKILL": ", as the system does when memory runs out",
    "SIGBUS": ", as happens when a feature file is cut short while it is read",
}

Told = Callable[[str, str], None]
"""is told a cell's name and what became of it: begun, or its state afterwards"""


@dataclass
class _Job:
    cell: Cell
    lease: Lease
    process: "subprocess.Popen[bytes]"


class Runner:
    """Works on the cells of a grid until none is left that it could take.

    Args:
        folder: the grid's folder.
        where: where data and devices are.
        jobs: cells at the same time.
        passed_over: cells that are not to be begun here.
        told: hears what becomes of each cell.
        tick: called at every look at the cells.
    """

    def __init__(
        self,
        folder: GridFolder,
        where: Where,
        jobs: int,
        passed_over: Container[str],
        told: Told,
        tick: Callable[[], None],
    ) -> None:
        self.folder, self.where, self.jobs, self.told, self.tick = folder, where, jobs, told, tick
        self.grid: Grid = folder.grid()
        self.cells = [cell for cell in self.grid.cells if cell.name not in passed_over]
        self.keys = {cell.name: warmup_key(cell_config(cell)) for cell in self.cells}
        self._running: list[_Job] = []
        self._tries: dict[str, int] = {}
        self._not_before: dict[str, float] = {}
        self._strikes = 0

    def run(self) -> bool:
        """Work until nothing is left to do; False where a cell is broken.

        Raises:
            InputError: cell after cell breaks before its first epoch.
            KeyboardInterrupt: after ^C; the cells under way have saved what they did.
        """
        with deferred_interrupts() as interrupts:
            try:
                self._work(interrupts)
            finally:
                self._stop()
        return all(self.folder.state(cell.name) == "finished" for cell in self.cells)

    def _work(self, interrupts: Interrupts) -> None:
        looked = renewed = -math.inf
        while interrupts.asked is None:
            now = time.monotonic()
            if now - renewed >= self.folder.expires / 4:  # a process that still starts does not do it itself
                for job in self._running:
                    job.lease.renew()
                renewed = now
            if self._collect() or now - looked >= LOOK:
                waiting = self._fill()
                looked = now
                if not self._running and not waiting:
                    return
            self.tick()
            time.sleep(POLL)

    def _fill(self) -> bool:
        """Begin what can be begun; say whether cells are left that others work on, or that wait for a warm-up."""
        if self._strikes >= STRIKES:
            status = command_line("in2r", "bench", "status", self.folder.path)
            raise InputError(
                f"{self.folder.path}: {STRIKES} cells in a row broke before their first epoch; `{status}` says why, "
                "`--retry` begins them again"
            )
        own = {job.cell.name for job in self._running}  # whatever their leases say: a machine that slept was late
        cells = self.cells
        states = {cell.name: "running" if cell.name in own else self.folder.state(cell.name) for cell in cells}
        # what was begun comes first, then by priority
        left = [cell for state in ("interrupted", "open") for cell in cells if states[cell.name] == state]
        busy = {self.keys[cell.name] for cell in cells if states[cell.name] == "running" and self._warms(cell)}
        for cell in left:
            if len(self._running) >= self.jobs:
                break
            key = self.keys[cell.name]
            if key is not None and key in busy and not self.folder.run(cell.name).exists():
                continue  # another cell trains the same warm-up: it will be taken over
            if time.monotonic() < self._not_before.get(cell.name, 0):
                continue
            if self._begin(cell) and warmup_epochs(cell):
                busy.add(key)
        return bool(left) or "running" in states.values()

    def _warms(self, cell: Cell) -> bool:
        """Say whether a running cell trains a warm-up that others can take over."""
        return self.folder.epochs_done(cell.name) < warmup_epochs(cell)

    def _begin(self, cell: Cell) -> bool:
        lease = self.folder.claim(cell.name)
        if lease is None:
            return False
        if self.folder.state(cell.name) == "finished":
            lease.release()
            return False
        process = start(self.folder, cell, lease, self.where, self.grid.folds)
        self._running.append(_Job(cell, lease, process))
        self._tries[cell.name] = self._tries.get(cell.name, 0) + 1
        self.told(cell.name, "begun")
        return True

    def _collect(self) -> bool:
        """Take notice of the cells that have ended; say whether there were any."""
        ended = [job for job in self._running if job.process.poll() is not None]
        for job in ended:
            self._running.remove(job)
            self._note_end(job)
        return bool(ended)

    def _note_end(self, job: _Job) -> None:
        name, status = job.cell.name, job.process.returncode
        if status == IN_USE:  # a process that lost its lease has not noticed yet, or one that never had any
            self._not_before[name] = time.monotonic() + self.folder.expires
        silent = status not in (0, BROKEN, IN_USE, STOPPED)
        if silent and (status == -signal.SIGKILL or self._tries[name] >= TRIES):
            self._say_broken(name, status)
        job.lease.release()
        state = self.folder.state(name)
        self._strikes = self._strikes + 1 if state == "broken" and not self.folder.epochs_done(name) else 0
        self.told(name, state)

    def _say_broken(self, name: str, status: int) -> None:
        reason = f"ended with status {status}"
        if status < 0:
            killed = signal.Signals(-status).name
            reason = f"killed by {killed}{_MEANS.get(killed, '')}"
        date = datetime.now(UTC).isoformat(timespec="seconds")
        self.folder.write_fault(name, Fault(f"{reason}; see {self.folder.log_file(name)}", date))

    def _stop(self) -> None:
        """Ask the cells under way to save and stop, and wait for it."""
        for job in self._running:
            if job.process.poll() is None:
                job.process.terminate()
        for job in self._running:
            job.process.wait()
            job.lease.release()
        self._running = []
