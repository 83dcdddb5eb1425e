"""One cell, in a process of its own: begun or gone on with, tested, recorded. `python -m in2r.bench.cell` runs it.

Whatever happens to it, out of memory say, happens to no other cell. It keeps its lease alive by itself, and stops,
with its step done and saved, when the lease is lost or when the process that started it is gone.
"""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import traceback
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from in2r.bench.folder import Fault, GridFolder
from in2r.bench.grid import Cell, cell_config
from in2r.bench.leases import EXPIRES, Heartbeat, Lease
from in2r.bench.records import make_record, write_record
from in2r.config import to_dict
from in2r.data.pairs import open_configured
from in2r.engine.run import RunFolder, RunInUseError, changed_settings
from in2r.engine.settings import DataConfig, RunConfig
from in2r.engine.train import resume_run, start_run
from in2r.errors import InputError
from in2r.files import describe, expand_home
from in2r.noise import draw_noise, save_index
from in2r.results import evaluate_run

BROKEN, IN_USE, STOPPED = 3, 4, 143
"""exit status of a cell that failed, that another process works on without a lease, that was asked to stop"""


@dataclass(frozen=True)
class Where:
    """Where cells of a grid find their data and compute; no part of what they learn."""

    data: str = ""
    """folder that a relative `data.path` begins in; empty = where the process runs"""
    device: str | None = None
    threads: int | None = None
    expires: float = EXPIRES
    """seconds after which a lease that is not renewed has run out"""


def placed_config(folder: GridFolder, cell: Cell, where: Where) -> RunConfig:
    """Return a cell's settings with all places filled in; a noise index that is to be drawn is drawn."""
    config = cell_config(cell)
    data = replace(
        config.data,
        path=_placed(where, config.data.path),
        vocabulary=_placed(where, config.data.vocabulary),
        word_vectors=_placed(where, config.data.word_vectors),
    )
    train = config.train
    if where.device is not None:
        train = replace(train, device=where.device)
    if train.threads is None:
        train = replace(train, threads=where.threads)
    config = replace(
        config, data=data, train=train, checkpoint=replace(config.checkpoint, warmups=str(folder.warmups.absolute()))
    )
    if config.noise.index is None:
        return config
    return replace(config, noise=replace(config.noise, index=str(_noise_file(folder, cell, config, where))))


def _placed(where: Where, path: str | None) -> Any:
    """Return an absolute path; a relative one begins in the data folder."""
    return path if path is None else str((Path(where.data) / expand_home(path)).absolute())


def _noise_file(folder: GridFolder, cell: Cell, config: RunConfig, where: Where) -> Path:
    """Return the index that a cell names, with {level}, {ratio}, {seed} filled in, or draw one with the cell's seed."""
    noise = config.noise
    asked = cell.asked_index
    if asked is not None:
        for name, value in (("level", noise.level), ("ratio", noise.ratio), ("seed", cell.seed)):
            asked = asked.replace(f"{{{name}}}", str(value))
        return Path(_placed(where, asked))
    assert noise.ratio is not None
    assert noise.level is not None
    stated = Path(cell_config(cell).data.path)
    # data folders of one name in two places are two sets
    place = stated.name if len(stated.parts) == 1 else f"{stated.name}-{sha256(str(stated).encode()).hexdigest()[:6]}"
    name = f"{place}{_split_name(config.data)}_{noise.level}_{noise.ratio:g}_s{cell.seed}.npy"
    file = (folder.noise / name).absolute()
    if not file.is_file():
        own = open_configured(config.data, announce=False).split("train")
        save_index(file, draw_noise(own.image_of_caption, noise.ratio, noise.level, cell.seed))
    return file


def _split_name(data: DataConfig) -> str:
    """Name what else decides the training pairs, where it is not the default: begun grids keep their files."""
    usual = DataConfig()
    seed = "" if data.split_seed == usual.split_seed else f"_split{data.split_seed}"
    return seed if data.layout == usual.layout else f"{seed}_{data.layout}"


def train_and_test(folder: GridFolder, cell: Cell, where: Where, folds: int) -> None:
    """Bring a cell from where it stands to its record."""
    run, config = folder.run(cell.name), placed_config(folder, cell, where)
    if run.exists():
        changed = changed_settings(to_dict(run.config()), config)
        if changed:
            raise InputError(f"{run.path}: was begun with other settings: {', '.join(changed)}")
        run.write_config(config)  # data and device may be elsewhere today
        if len(run.records()) < config.train.epochs or not run.best_file.is_file():
            resume_run(run.path)  # one that is finished is tested only: it has no checkpoints any more
    else:
        start_run(run.path, config)
    result = evaluate_run(run.path, folds=folds)
    write_record(folder.record_file(cell.name), make_record(cell.name, RunFolder(run.path), result))
    shutil.rmtree(run.checkpoints, ignore_errors=True)  # finished: the best weights stay


def main(argv: list[str]) -> int:
    """Work on a cell: the arguments are the grid's folder and the runner's process, standard input has the rest.

    The cell's settings come from the runner, so that an edit of grid.yaml meanwhile changes nothing.
    """
    path, runner = argv
    asked = json.load(sys.stdin)
    where, cell = Where(**asked["where"]), Cell(**asked["cell"])
    folder = GridFolder(path, where.expires)
    lease = Lease(folder.leases, cell.name, asked["lease"], where.expires)
    # asked to stop, the engine saves its step first; then the lease is given back
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(STOPPED))
    heartbeat = Heartbeat(lease, lambda: os.kill(os.getpid(), signal.SIGTERM), lambda: os.getppid() == int(runner))
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    logging.getLogger("in2r").setLevel(logging.INFO)
    try:
        train_and_test(folder, cell, where, asked["folds"])
    except RunInUseError as error:
        sys.stderr.write(f"{error}\n")
        return IN_USE
    except Exception as error:  # whatever it is: it is told, and the other cells go on
        traceback.print_exc()
        date = datetime.now(UTC).isoformat(timespec="seconds")
        folder.write_fault(cell.name, Fault(_said(error), date))
        return BROKEN
    finally:
        heartbeat.stop()
        lease.release()
    return 0


def _said(error: Exception) -> str:
    if isinstance(error, OSError):
        return describe(error)
    return str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"


def start(folder: GridFolder, cell: Cell, lease: Lease, where: Where, folds: int) -> "subprocess.Popen[bytes]":
    """Begin a process that works on a claimed cell; its messages go to the cell's log."""
    log = folder.log_file(cell.name)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "in2r.bench.cell", str(folder.path), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # ^C reaches the runner alone, which asks its cells to stop
        )
    assert process.stdin is not None
    asked = {"cell": asdict(cell), "lease": lease.number, "where": asdict(where), "folds": folds}
    try:
        process.stdin.write(json.dumps(asked).encode())
        process.stdin.close()
    except BrokenPipeError:  # it is gone already: its exit status tells
        pass
    return process


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
