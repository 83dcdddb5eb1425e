"""An interrupted run has done and saved its step: it is resumed bit-identically and repeats nothing."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tiny_engine
from in2r.runs.checkpoints import checkpoints
from in2r.runs.folder import RunFolder
from in2r.tensors import load_tensors
from in2r.training.interrupts import deferred_interrupts
from in2r.training.loop import Trainer
from in2r.training.train import resume_run, start_run
from tiny_engine import assert_same, settings


@pytest.fixture
def config(data: Path, noise: Path) -> Any:
    """Two epochs of ten steps or less; no checkpoint falls due within one."""
    return settings(data, "in2r", f"noise.index={noise}", "train.epochs=2", "checkpoint.every_steps=1000")


@contextmanager
def signalled(within: str, count: int, number: int = signal.SIGINT, times: int = 1) -> Iterator[Callable[[], int]]:
    """Signal this process in the middle of the n-th call of a method; yield the number of calls so far."""
    method, calls = getattr(Trainer, within), 0

    def wrapped(trainer: Trainer, *args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count:
            for _ in range(times):
                signal.raise_signal(number)
        return method(trainer, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, within, wrapped)
        yield lambda: calls


def newest(folder: Path) -> dict[str, Any]:
    return load_tensors(checkpoints(folder / "checkpoints")[-1])[1]


@pytest.mark.parametrize("step", [1, 4, 10, 13])  # the first, in the warm-up, its last one, in the main phase
def test_an_interrupted_run_goes_on_bit_identically_and_repeats_no_step(
    config: Any, tmp_path: Path, step: int, caplog: pytest.LogCaptureFixture
) -> None:
    whole, folder = tmp_path / "whole", tmp_path / "run"
    with signalled("_iterate", 0) as calls:
        start_run(whole, config)
    total = calls()
    with signalled("_iterate", step), pytest.raises(KeyboardInterrupt):
        start_run(folder, config)
    assert newest(folder)["step"] == step
    assert f"interrupted by SIGINT; step {step} is done and saved" in caplog.text
    with signalled("_iterate", 0) as calls:
        resume_run(folder)
    assert calls() == total - step
    assert_same(folder, whole)


@pytest.mark.parametrize(("within", "count", "step", "epoch"), [("_finish_epoch", 1, 10, 1), ("_divide", 1, 11, 1)])
def test_division_and_validation_are_finished_first(
    config: Any, tmp_path: Path, within: str, count: int, step: int, epoch: int
) -> None:
    start_run(tmp_path / "whole", config)
    with signalled(within, count), pytest.raises(KeyboardInterrupt):
        start_run(tmp_path / "run", config)
    assert (newest(tmp_path / "run")["step"], newest(tmp_path / "run")["epoch"]) == (step, epoch)
    resume_run(tmp_path / "run")
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_an_interrupt_in_the_last_validation_is_not_lost(config: Any, tmp_path: Path) -> None:
    with signalled("_finish_epoch", 2), pytest.raises(KeyboardInterrupt):
        start_run(tmp_path / "run", config)
    assert len(RunFolder(tmp_path / "run").records()) == 2


def test_a_second_interrupt_acts_at_once(config: Any, tmp_path: Path) -> None:
    with signalled("_iterate", 4, times=2) as calls, pytest.raises(KeyboardInterrupt):
        start_run(tmp_path / "run", config)
    assert calls() == 4
    assert not checkpoints(tmp_path / "run" / "checkpoints")


def test_a_schedulers_sigterm_ends_the_process_after_a_checkpoint(children: Any, config: Any, tmp_path: Path) -> None:
    ready = children.Event()
    child = children.Process(target=tiny_engine.train_and_wait, args=(tmp_path / "run", config, ready))
    child.start()
    assert ready.wait(60)
    os.kill(child.pid, signal.SIGTERM)
    child.join(60)
    assert child.exitcode == -signal.SIGTERM
    assert newest(tmp_path / "run")["step"] >= 1
    start_run(tmp_path / "whole", config)
    resume_run(tmp_path / "run")
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_handlers_are_as_before_and_what_was_ignored_stays_so() -> None:
    before = signal.getsignal(signal.SIGINT)
    with deferred_interrupts() as interrupts:
        assert signal.getsignal(signal.SIGINT) is not before
    assert (signal.getsignal(signal.SIGINT), interrupts.asked) == (before, None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as `nohup in2r train ... &` does
    try:
        with deferred_interrupts() as interrupts:
            signal.raise_signal(signal.SIGINT)
        assert interrupts.asked is None
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_error_within_comes_before_the_interrupt() -> None:
    def fail() -> None:
        with deferred_interrupts():
            signal.raise_signal(signal.SIGINT)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        fail()


def test_in_another_thread_nothing_is_noted() -> None:
    noted = []

    def within() -> None:
        with deferred_interrupts() as interrupts:
            noted.append(interrupts.asked)

    thread = threading.Thread(target=within)
    thread.start()
    thread.join()
    assert noted == [None]
