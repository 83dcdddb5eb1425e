"""The tiny data set, made once; and child processes that may be killed."""

import multiprocessing
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_engine


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a precomp folder; tests that change it make their own."""
    return tiny_engine.make_data(tmp_path_factory.mktemp("tiny") / "data")


@pytest.fixture(scope="session")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a noise index of the training split, 40 % at caption level."""
    return tiny_engine.make_noise(tmp_path_factory.mktemp("noise") / "noise_0.4.npy")


@pytest.fixture(scope="session")
def children() -> Any:
    """Return a context whose children are forked from one server that has imported everything already.

    Forking this process itself would copy threads' locks that other tests have left behind.
    """
    context = multiprocessing.get_context("forkserver")
    # the first optimiser imports torch._dynamo, at length
    context.set_forkserver_preload(["in2r.training.train", "torch._dynamo"])
    return context


@pytest.fixture
def killed(children: Any) -> Callable[..., None]:
    """Return a function that runs another one in a child, which must end by SIGKILL."""

    def run(target: Callable[..., None], *args: Any) -> None:
        child = children.Process(target=target, args=args)
        child.start()
        child.join(120)
        assert child.exitcode == -signal.SIGKILL

    return run
