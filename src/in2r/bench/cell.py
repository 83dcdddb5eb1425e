"""One cell, in a process of its own: begun or gone on with, tested, recorded. `python -m in2r.bench.cell` runs it.

Whatever happens to it, out of memory say, happens to no other cell. It keeps its lease alive by itself, and stops,
with its step done and saved, when the lease is lost or when the process that started it is gone.
"""

import json
import logging
import os
import shutil
import signal
import sys
import traceback
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from in2r.bench.folder import Fault, GridFolder
from in2r.bench.grid import Cell, cell_config
from in2r.bench.leases import EXPIRES, Heartbeat, Lease
from in2r.bench.records import make_record, write_record
from in2r.config import to_dict
from in2r.data.pairs import open_data
from in2r.engine.run import RunFolder, RunInUseError, changed_settings
from in2r.engine.settings import RunConfig
from in2r.engine.train import resume_run, start_run
from in2r.errors import InputError
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
    data = replace(config.data, path=str((Path(where.data) / config.data.path).absolute()))
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


def _noise_file(folder: GridFolder, cell: Cell, config: RunConfig, where: Where) -> Path:
    """Return the index that a cell names, with {level}, {ratio}, {seed} filled in, or draw one with the cell's seed."""
    noise = config.noise
    asked = cell.asked_index
    if asked is not None:
        try:
            named = asked.format(level=noise.level, ratio=noise.ratio, seed=cell.seed)
        except (KeyError, IndexError, ValueError):
            raise InputError(f"noise.index {asked}: may hold {{level}}, {{ratio}} and {{seed}} in braces") from None
        return (Path(where.data) / named).absolute()
    assert noise.ratio is not None
    assert noise.level is not None
    name = f"{Path(config.data.path).name}_{noise.level}_{noise.ratio:g}_s{cell.seed}.npy"
    file = (folder.noise / name).absolute()
    if not file.is_file():
        data = config.data
        source = open_data(data.path, layout=data.layout, split_seed=data.split_seed, announce=False)
        own = source.split("train")
        save_index(file, draw_noise(own.image_of_caption, noise.ratio, noise.level, cell.seed))
    return file


def train_and_test(folder: GridFolder, cell: Cell, where: Where, folds: int) -> None:
    """Bring a cell from where it stands to its record."""
    run, config = folder.run(cell.name), placed_config(folder, cell, where)
    if run.exists():
        changed = changed_settings(to_dict(run.config()), config)
        if changed:
            raise InputError(f"{run.path}: was begun with other settings: {', '.join(changed)}")
        run.write_config(config)  # data and device may be elsewhere today
        resume_run(run.path)
    else:
        start_run(run.path, config)
    result = evaluate_run(run.path, folds=folds)
    write_record(folder.record_file(cell.name), make_record(cell.name, RunFolder(run.path), result))
    shutil.rmtree(run.checkpoints, ignore_errors=True)  # finished: the best weights stay


def main(argv: list[str]) -> int:
    """Work on the cell that the arguments name: grid folder, cell, number of its lease, `Where` as JSON."""
    path, name, number, places = argv
    where = Where(**json.loads(places))
    folder = GridFolder(path, where.expires)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    logging.getLogger("in2r").setLevel(logging.INFO)
    parent = os.getppid()
    lease = Lease(folder.leases, name, int(number))

    def stop() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    # asked to stop, the engine saves its step first; then the lease is given back
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(STOPPED))
    heartbeat = Heartbeat(lease, stop, where.expires, lambda: os.getppid() == parent)
    try:
        grid = folder.grid()
        [cell] = [cell for cell in grid.cells if cell.name == name]
        train_and_test(folder, cell, where, grid.folds)
    except RunInUseError as error:
        sys.stderr.write(f"{error}\n")
        return IN_USE
    except Exception as error:  # whatever it is: it is told, and the other cells go on
        traceback.print_exc()
        date = datetime.now(UTC).isoformat(timespec="seconds")
        said = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        folder.write_fault(name, Fault(said, date))
        return BROKEN
    finally:
        heartbeat.stop()
        lease.release()
    return 0


def command(folder: GridFolder, lease: Lease, where: Where) -> list[str]:
    """Return the command line that works on a claimed cell."""
    arguments = [str(folder.path), lease.name, str(lease.number), json.dumps(asdict(where))]
    return [sys.executable, "-m", "in2r.bench.cell", *arguments]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
