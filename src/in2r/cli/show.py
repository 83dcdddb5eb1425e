"""What the terminal shows of a run: the plan, a progress bar, a line per epoch."""

import sys
import time
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from in2r.errors import command_line

if TYPE_CHECKING:
    from in2r.runs.folder import RunFolder
    from in2r.training.plan import Plan
    from in2r.training.residency import Residency
    from in2r.training.setup import Setup


TIMED = 50
"""steps whose time is said"""
SHORT = 120
"""seconds of a run below which it is not"""


class Rate(ProgressColumn):
    """Steps, or items, per second."""

    def __init__(self, unit: str = "") -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        """Return the speed so far."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.1f}{self._unit}/s")


class Terminal:
    """A progress bar per epoch (on a terminal) and one line per finished epoch.

    Args:
        console: where to.
        warmup: epochs of the warm-up, where the run was planned before.
    """

    def __init__(self, console: Console, warmup: int = 0) -> None:
        self.console = console
        self._warmup = warmup
        self._took: dict[str, list[float]] = {}
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self.started = False
        """whether an epoch was"""
        self._epochs = self._steps = self._per_epoch = 0
        self._first: float | None = None

    def plan(self, plan: "Plan") -> None:
        """Print what the run will cost."""
        self._warmup = plan.warmup_epochs
        table = Table(show_header=False, box=None, title="Plan", title_justify="left")
        networks = f"{plan.networks} network{'s' * (plan.networks > 1)}"
        table.add_row("method", f"{plan.method}, {networks}")
        phases = f" ({plan.warmup_epochs} of warm-up)" if plan.warmup_epochs else ""
        table.add_row(
            "epochs", f"{plan.epochs}{phases}, of up to {plan.steps_per_epoch:,} steps on {plan.pairs:,} pairs"
        )
        if plan.round_epochs:
            rounds = " and ".join(map(str, plan.round_epochs))
            fresh = "; fresh weights in the first" if plan.fresh_weights else ""
            table.add_row("rounds", f"{len(plan.round_epochs)}, of {rounds} epochs after the warm-up{fresh}")
        table.add_row(
            "dev rSum",
            f"six recalls on {plan.dev_images:,} images; by chance {plan.dev_rsum_by_chance:.1f}, at most 600",
        )
        if plan.processes > 1:
            least, left = divmod(plan.batch_rows, plan.processes)
            rows = f"{least} or {least + 1} of {plan.batch_rows}" if left else f"{least} of {plan.batch_rows}"
            if not least:  # `Processes.share`
                rows = f"all {plan.batch_rows} (too few to share out)"
            table.add_row(
                "processes",
                f"{plan.processes}; each encodes {rows} images of a batch and sends "
                f"about {size(plan.sent_bytes)} in a step; memory is that of each",
            )
        table.add_row("device", plan.computes)
        lasting, more = size(plan.memory_bytes), size(plan.step_bytes)
        table.add_row("memory", f"{lasting} for weights, optimisers, memory banks; {more} more in a step")
        table.add_row("features", _features(plan.features))
        table.add_row("disk", f"at most {size(plan.disk_bytes)} ({size(plan.free_disk_bytes)} free)")
        self.console.print(table)

    def epoch(self, epoch: int, epochs: int, phase: str, steps: int, done: int) -> None:
        """Open the bar of an epoch; first name the place where a run is resumed."""
        self.close()
        self._epochs, self._per_epoch = epochs, steps
        if not self.started and (epoch or done):
            step = f", step {done:,} of {steps:,}" if done else ""
            self.console.print(f"resumed at epoch {epoch + 1}{step}", highlight=False)
        self.started = True
        if not self.console.is_terminal:
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            Rate(" steps"),
            TimeRemainingColumn(),
        )
        # a standard error that goes to a file keeps its lines
        self._progress = Progress(*columns, console=self.console, transient=True, redirect_stderr=sys.stderr.isatty())
        self._progress.start()
        self._task = self._progress.add_task(f"epoch {epoch + 1}/{epochs} {phase}", total=steps, completed=done)

    def step(self) -> None:
        """Move the bar by one step; once, say what the first steps took."""
        self._steps += 1
        if self._steps == 1:
            self._first = time.monotonic()
        elif self._steps == 1 + TIMED and self._first is not None:
            self._forecast((time.monotonic() - self._first) / TIMED)
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task)

    def record(self, record: dict[str, Any]) -> None:
        """Print the epoch's line."""
        self.close()
        rsum = record["dev"]["ensemble"]["rsum"]
        shares = [_clean(record, name) for name in "AB" if f"clean_fraction_{name}" in record]
        one_group = bool(shares) and set(shares) == {"all"}
        phase = f"round {record['round']}" if "round" in record else record["phase"]
        parts = [f"epoch {record['epoch']:>3}/{self._epochs}  {phase:<8} dev rSum {rsum:6.1f}"]
        if one_group:
            parts.append("no group of mismatched pairs")
        elif shares:
            parts.append(f"clean {'/'.join(shares)}{_judged_by(record)}")
        parts.append(f"{record['seconds']:.0f} s{self._left(record)}")
        self.console.print("  ".join(parts), highlight=False, soft_wrap=True)

    def _forecast(self, seconds: float) -> None:
        """Say how long the run takes, by its first steps; later phases may take longer steps."""
        whole = seconds * self._per_epoch * self._epochs
        if whole > SHORT:
            said = f"first {TIMED} steps: {seconds:.2g} s each, at least {duration(whole)} for {self._epochs} epochs"
            self.console.print(said, highlight=False)

    def _left(self, record: dict[str, Any]) -> str:
        """Say how long the other epochs will take, by the measured ones of each phase."""
        if not record.get("taken_over"):
            self._took.setdefault(record["phase"], []).append(record["seconds"])
        ended = record["epoch"]
        left = {"warm-up": max(0, self._warmup - ended), "main": self._epochs - max(ended, self._warmup)}
        timed = {phase: sum(times) / len(times) for phase, times in self._took.items()}
        if not timed or not any(left.values()):
            return ""
        known = all(phase in timed for phase, epochs in left.items() if epochs)
        seconds = sum(epochs * timed.get(phase, min(timed.values())) for phase, epochs in left.items())
        return f", {'' if known else 'at least '}{duration(seconds)} left"

    def close(self) -> None:
        """Take the bar away."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def print_done(console: Console, folder: "RunFolder", setup: "Setup") -> None:
    """Say where the model of a trained run is, how it is tested, and whether the last epoch ended badly."""
    has_test = "test" in setup.source.split_names
    test = f"   test it: {command_line('in2r', 'eval', folder.path)}" if has_test else ""
    console.print(f"model: {folder.model}{test}", markup=False, highlight=False, soft_wrap=True)
    from in2r.training.evaluation import failures

    for line in failures(folder.records()[-1]):
        console.print(f"the last epoch: {line}", markup=False, highlight=False, soft_wrap=True)


def _clean(record: dict[str, Any], name: str) -> str:
    """Say what a network counts as clean; "all" where it could tell no two groups, so that its peer took every pair."""
    fraction = record[f"clean_fraction_{name}"]
    return "all" if fraction == 1 and record.get(f"single_mode_{name}") else f"{100 * fraction:.0f} %"


def _judged_by(record: dict[str, Any]) -> str:
    """Name the losses that made the partitions; they may differ from epoch to epoch."""
    losses = dict.fromkeys(fitted["loss"] for fitted in record.get("mixture", {}).values() if fitted)
    return f" by {'/'.join(losses)}" if losses else ""


def _features(residency: "Residency") -> str:
    """Say where the features lie, and what was free there."""
    if residency.free_bytes is None:
        return f"{size(residency.bytes)}, read from the file batch by batch"
    place = "in" if residency.where == "main memory" else "on"
    sent = ", sent batch by batch" if residency.place == "pinned" else ""
    return f"{size(residency.bytes)} {place} {residency.where} ({size(residency.free_bytes)} free){sent}"


def duration(seconds: float) -> str:
    """Say a time as a person would."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def size(count: float) -> str:
    """Say a number of bytes in MiB or GiB."""
    return f"{count / 2**20:.0f} MiB" if count < 2**30 else f"{count / 2**30:.1f} GiB"
