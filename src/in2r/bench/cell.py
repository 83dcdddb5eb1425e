"""One cell, in a process of its own: trained or resumed, tested, recorded. `python -m in2r.bench.cell` runs it.

So a failure of one cell, out of memory say, is no failure of another. The process stops, with its step done and saved,
when it is asked to, or when the process that started it is gone.
"""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import traceback
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from threading import Thread

from in2r.bench.folder import GridFolder
from in2r.bench.grid import Cell, cell_config
from in2r.bench.records import make_record, write_record
from in2r.claims import Claim
from in2r.config import deciding, to_dict, with_values
from in2r.data.noise import draw_noise, save_index
from in2r.data.sources import open_configured
from in2r.errors import InputError
from in2r.files import describe, expand_home
from in2r.results import evaluate_run
from in2r.runs.identity import changed_settings
from in2r.runs.settings import DataConfig, RunConfig
from in2r.training.train import resume_run, start_run

FAILED, STOPPED = 3, 143
"""exit status of a cell that failed and said why, and of one that was asked to stop"""


@dataclass(frozen=True)
class Placement:
    """Where cells of a grid find their data, and on what they compute; no part of what they learn."""

    data: str = ""
    """folder that a relative `data.path` begins in; empty = where the process runs"""
    device: str | None = None
    threads: int | None = None


def placed_config(folder: GridFolder, cell: Cell, place: Placement) -> RunConfig:
    """Return a cell's settings with all paths filled in; draw its noise index where that is to be drawn."""
    config = cell_config(cell)
    placed = with_values(
        config,
        {
            **{key: _placed(place, path) for key, path in deciding(config, "place").items()},
            "train.device": place.device or config.train.device,
            "train.threads": config.train.threads or place.threads,
            "checkpoint.warmups": str(folder.warmups.absolute()),
        },
    )
    if config.noise.index is None:
        return placed
    return with_values(placed, {"noise.index": str(_noise_file(folder, cell, placed, place))})


def _placed(place: Placement, path: str | None) -> str | None:
    """Return an absolute path; a relative one begins in the data folder."""
    return path if path is None else str((Path(place.data) / expand_home(path)).absolute())


def _noise_file(folder: GridFolder, cell: Cell, config: RunConfig, place: Placement) -> Path:
    """Return the index that a cell names, with {level}, {ratio}, {seed} filled in, or draw one with the cell's seed."""
    noise = config.noise
    asked = cell.asked_index
    if asked is not None:
        for name, value in (("level", noise.level), ("ratio", noise.ratio), ("seed", cell.seed)):
            asked = asked.replace(f"{{{name}}}", str(value))
        return Path(str(_placed(place, asked)))
    assert noise.ratio is not None
    assert noise.level is not None
    stated = Path(cell_config(cell).data.path)
    # data folders of one name in two places are two sets
    data = stated.name if len(stated.parts) == 1 else f"{stated.name}-{sha256(str(stated).encode()).hexdigest()[:6]}"
    name = f"{data}{_split_name(config.data)}_{noise.level}_{noise.ratio:g}_s{cell.seed}.npy"
    file = (folder.noise / name).absolute()
    if not file.is_file():
        own = open_configured(config.data, announce=False).split("train")
        save_index(file, draw_noise(own.image_of_caption, noise.ratio, noise.level, cell.seed))
    return file


def _split_name(data: DataConfig) -> str:
    """Name what else decides the training pairs, where it is not the default."""
    usual = DataConfig()
    seed = "" if data.split_seed == usual.split_seed else f"_split{data.split_seed}"
    layout = "" if data.layout == usual.layout else f"_{data.layout}"
    return f"{seed}{layout}{'_skip' if data.skip_missing else ''}"


def train_and_test(folder: GridFolder, cell: Cell, place: Placement, folds: int) -> None:
    """Train or resume a cell as far as it is not done, test it and write its record."""
    run, config = folder.run(cell.name), placed_config(folder, cell, place)
    if run.exists():
        changed = changed_settings(to_dict(run.config()), config)
        if changed:
            raise InputError(f"{run.path}: was started with other settings: {', '.join(changed)}")
        run.write_config(config)  # data and device may be elsewhere today
        if len(run.records()) < config.train.epochs or not run.best_file.is_file():
            resume_run(run.path)  # one that is finished is tested only: it has no checkpoints any more
    else:
        start_run(run.path, config)
    result = evaluate_run(run.path, folds=folds)
    write_record(folder.records.file(cell.name), make_record(cell.name, run, result))
    shutil.rmtree(run.checkpoints, ignore_errors=True)  # finished: the best weights stay


def main(path: str) -> int:
    """Work on a cell of the grid's folder; the first line of standard input describes it.

    It comes from the runner, so that an edit of grid.yaml meanwhile changes nothing.
    """
    asked = json.loads(sys.stdin.readline())
    cell, place, folder = Cell(**asked["cell"]), Placement(**asked["place"]), GridFolder(path)
    stop = _Stop()
    signal.signal(signal.SIGTERM, stop)  # the training saves its step first
    Thread(target=_stop_without_runner, daemon=True).start()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    logging.getLogger("in2r").setLevel(logging.INFO)
    try:
        train_and_test(folder, cell, place, asked["folds"])
    except Exception as error:  # whatever it is: it is noted, and the other cells are not concerned
        if stop.asked:
            return STOPPED
        traceback.print_exc()
        folder.write_failure(cell.name, _reason(error))
        return FAILED
    return 0


class _Stop:
    """Ends the process when asked to, and keeps that it was asked: compiled code may turn the exit into an error."""

    asked = False

    def __call__(self, *_: object) -> None:
        self.asked = True
        sys.exit(STOPPED)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return describe(error)
    return str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"


def _stop_without_runner() -> None:
    """Ask this process to stop when standard input ends: the runner holds it open as long as it lives."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def start(folder: GridFolder, cell: Cell, claim: Claim, place: Placement, folds: int) -> "subprocess.Popen[bytes]":
    """Start a process that works on a claimed cell and holds the claim; its messages go to the cell's log."""
    log = folder.log_file(cell.name)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "in2r.bench.cell", str(folder.path)],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # ^C reaches the runner alone, which asks its cells to stop
            pass_fds=(claim.descriptor,),
        )
    assert process.stdin is not None
    asked = {"cell": asdict(cell), "place": asdict(place), "folds": folds}
    try:
        process.stdin.write(f"{json.dumps(asked)}\n".encode())
        process.stdin.flush()
    except BrokenPipeError:  # it is gone already: its exit status says so
        pass
    return process


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
