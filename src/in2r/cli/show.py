"""What the terminal shows of a run: the plan, a progress bar, a line per epoch."""

from typing import Any

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

from in2r.engine.plan import Plan


class _Rate(ProgressColumn):
    """Steps per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.1f} steps/s")


class Terminal:
    """A progress bar per epoch (on a terminal) and one line per finished epoch."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def plan(self, plan: Plan) -> None:
        """Print what the run will cost."""
        table = Table(show_header=False, box=None, title="Plan", title_justify="left")
        table.add_row("steps", f"{plan.warmup_steps:,} on all pairs + about {plan.cotraining_steps:,} of co-training")
        table.add_row("time", f"about {duration(plan.seconds)}")
        table.add_row("memory", f"{size(plan.memory_bytes)} for weights, optimisers and memory banks")
        table.add_row("disk", f"at most {size(plan.disk_bytes)} ({size(plan.free_disk_bytes)} free)")
        self.console.print(table)

    def epoch(self, epoch: int, epochs: int, phase: str, steps: int, done: int) -> None:
        """Open the bar of an epoch."""
        self.close()
        if not self.console.is_terminal:
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            _Rate(),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=self.console, transient=True)
        self._progress.start()
        self._task = self._progress.add_task(f"epoch {epoch + 1}/{epochs} {phase}", total=steps, completed=done)

    def step(self) -> None:
        """Move the bar by one step."""
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task)

    def record(self, record: dict[str, Any]) -> None:
        """Print the epoch's line."""
        self.close()
        rsum = record["dev"]["ensemble"]["rsum"]
        parts = [f"epoch {record['epoch']:>3}  {record['phase']:<11} dev rSum {rsum:6.1f}"]
        if "clean_fraction_A" in record:
            parts.append(f"clean {100 * record['clean_fraction_A']:.0f} %/{100 * record['clean_fraction_B']:.0f} %")
        parts.append(f"{record['seconds']:.0f} s")
        self.console.print("  ".join(parts), highlight=False)

    def close(self) -> None:
        """Take the bar away."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


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
