"""Real work in children forked from a server that has imported everything: none of them pays for PyTorch again."""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from in2r.bench import cell as cell_process
from in2r.bench.cell import Placement
from in2r.bench.folder import GridFolder
from in2r.bench.grid import Cell
from in2r.cli.main import main


class CellProcess:
    """A child as the runner sees it: what it asks of a `subprocess.Popen`."""

    stdin = None

    def __init__(self, child: Any) -> None:
        self.child = child

    @property
    def returncode(self) -> int | None:
        return self.child.exitcode

    def poll(self) -> int | None:
        return self.child.exitcode

    def wait(self) -> None:
        self.child.join()

    def terminate(self) -> None:
        self.child.terminate()


def start_cell(children: Any, folder: GridFolder, cell: Cell, place: Placement, folds: int) -> CellProcess:
    """Start a child that works on a cell as `python -m in2r.bench.cell` does; this process alone holds the claim."""
    log = folder.log_file(cell.name)
    log.parent.mkdir(parents=True, exist_ok=True)
    asked = {"cell": asdict(cell), "place": asdict(place), "folds": folds}
    child = children.Process(target=_work, args=(str(folder.path), f"{json.dumps(asked)}\n", log))
    child.start()
    return CellProcess(child)


def _work(path: str, asked: str, log: Path) -> None:
    reader, writer = os.pipe()  # the writer stays open: the end of its input asks a cell to stop
    os.write(writer, asked.encode())
    os.dup2(reader, 0)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    _send_messages_to(log)
    sys.exit(cell_process.main(path))


def run_command(arguments: list[str], log: Path) -> None:
    """Run the command line."""
    _send_messages_to(log)
    sys.exit(main(arguments))


def cut_while_training(file: Path, arguments: list[str], log: Path) -> None:
    """Run the command line, with a file that is cut after each epoch, which may end this process by a signal."""
    from in2r.cli import train

    class Cutting(train.Terminal):
        def record(self, record: dict[str, Any]) -> None:
            super().record(record)
            os.truncate(file, 0)

    train.Terminal = Cutting  # type: ignore[misc]
    _send_messages_to(log)
    sys.exit(main(arguments))


def _send_messages_to(log: Path) -> None:
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for standard in (1, 2):
        os.dup2(file, standard)
