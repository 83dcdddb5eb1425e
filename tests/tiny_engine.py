"""Runs on the tiny data set of `in2r.testing`, and ways to die in the middle of one."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from in2r import tensors as tensors_file
from in2r.runs import checkpoints as saving
from in2r.runs.checkpoints import load_newest
from in2r.runs.folder import RunFolder
from in2r.runs.settings import RunConfig, load_config
from in2r.training import division, loop
from in2r.training.train import Silent, resume_run, start_run


def settings(data: Path, preset: str = "in2r", *overrides: str, words: bool = False) -> RunConfig:
    """Return the settings of a run of three epochs on the CPU; captions as vectors, or as words."""
    base = [
        f"data.path={data}",
        "data.min_count=1",
        "data.vocabulary=null" if words else "data.caption_vectors=vecs",
        "model.dim=8",
        "model.word_dim=4",
        "train.epochs=3",
        "train.batch_size=12",
        "train.learning_rate=0.01",
        "train.device=cpu",
        "partition.batch_size=30",
        "partition.single_mode=split",
        "checkpoint.every_steps=4",
    ]
    if preset.split("/")[0] == "in2r":
        base += ["method.warmup_epochs=1", "method.memory_size=16"]
    return load_config(preset, [*base, *overrides])


def outcome(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any], bytes, list[dict[str, Any]]]:
    """Return what a run ends with: last checkpoint's tensors and position, best weights, record without times."""
    found = load_newest(folder / "checkpoints")
    assert found is not None
    _, tensors, meta = found
    records = [{k: v for k, v in record.items() if k != "seconds"} for record in RunFolder(folder).records()]
    return tensors, meta, (folder / "best.safetensors").read_bytes(), records


def assert_same(one: Path, other: Path) -> None:
    """Two runs ended bit-identically."""
    (tensors, meta, best, records), (tensors2, meta2, best2, records2) = outcome(one), outcome(other)
    assert records == records2
    assert meta == meta2
    assert tensors.keys() == tensors2.keys()
    differing = [name for name in tensors if not torch.equal(tensors[name], tensors2[name])]
    assert not differing
    assert best == best2


# --- dying: these run in child processes


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _at_call(count: int, function: Callable[..., Any], before: bool) -> Callable[..., Any]:
    calls = 0

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if before and calls == count:
            _kill()
        result = function(*args, **kwargs)
        if calls == count:
            _kill()
        return result

    return wrapped


def _half_a_line(folder: RunFolder, record: dict[str, Any]) -> None:
    with folder.log_file.open("a", encoding="utf-8") as file:
        file.write(str(record)[:40])
    _kill()


def _half_a_file(tensors: dict[str, torch.Tensor], path: str, metadata: dict[str, str]) -> None:
    Path(path).write_bytes(b"half")
    _kill()


def die_at(point: str, count: int) -> None:
    """Arrange that this process kills itself at the n-th time that a run passes a point."""
    if point == "step":  # after the optimiser's step, before its position is counted
        loop.Trainer._iterate = _at_call(count, loop.Trainer._iterate, before=False)  # type: ignore[method-assign]
    elif point == "partition":  # one network has judged the pairs, the other has not
        division.observe_pairs = _at_call(count, division.observe_pairs, before=True)
    elif point == "append":
        append, calls = RunFolder.append, iter(range(1, 99))
        RunFolder.append = lambda *args: (_half_a_line if next(calls) == count else append)(*args)  # type: ignore[method-assign, assign]
    elif point == "best":  # best weights are written, the checkpoint is not
        loop.save_tensors = _at_call(count, loop.save_tensors, before=False)
    elif point == "write":  # in the middle of writing a file
        save, calls = tensors_file.save_file, iter(range(1, 99))
        tensors_file.save_file = lambda *args, **more: (_half_a_file if next(calls) == count else save)(*args, **more)
    elif point == "checkpoint":  # the new one is there, an old one is not yet removed
        saving.save_tensors = _at_call(count, saving.save_tensors, before=False)
    else:
        raise ValueError(point)


def start_and_die(folder: Path, config: RunConfig, point: str, count: int) -> None:
    """Start a run and be killed."""
    torch.set_num_threads(1)
    die_at(point, count)
    start_run(folder, config)


def resume_and_die(folder: Path, point: str, count: int) -> None:
    """Resume a run and be killed."""
    torch.set_num_threads(1)
    die_at(point, count)
    resume_run(folder)


def hold(folder: Path, ready: Any) -> None:
    """Hold a run folder until killed."""
    with RunFolder(folder).locked():
        ready.set()
        signal.pause()


class Waiting(Silent):
    """A display that says when the run has come to a step and gives others time."""

    def __init__(self, ready: Any) -> None:
        self.ready = ready

    def step(self) -> None:
        self.ready.set()
        time.sleep(0.05)


def train_and_wait(folder: Path, config: RunConfig, ready: Any) -> None:
    """Train at a slow pace."""
    start_run(folder, config, Waiting(ready))
