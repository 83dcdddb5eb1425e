"""What every test runs under: one thread, repeatable property tests, reference data only where it lies."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch and NumPy load; child processes inherit it

import hypothesis
import pytest
import torch

from browser import find_browser

CHECKOUT = Path(__file__).resolve().parent.parent

# A slow machine must not fail a property. Built on the current profile: CI's own one stays derandomised.
hypothesis.settings.register_profile("in2r", deadline=None)
hypothesis.settings.load_profile("in2r")


def shared_folder() -> Path:
    """Return where the reference data is expected: $IN2R_SHARED, else `shared` beside the checkout."""
    return Path(os.environ.get("IN2R_SHARED") or CHECKOUT.parent / "shared")


def pytest_sessionstart(session: pytest.Session) -> None:
    torch.set_num_threads(1)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background, and inherited by every child
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    absent = pytest.mark.skip(reason=f"no reference data at {shared_folder()} (set IN2R_SHARED)")
    no_browser = pytest.mark.skip(reason="no Chromium (apt-get install chromium)")
    no_gpu = pytest.mark.skip(reason="no CUDA device")
    for item in items:
        if "shared" in getattr(item, "fixturenames", ()):
            item.add_marker("shared")
        if item.get_closest_marker("shared") and not shared_folder().is_dir():
            item.add_marker(absent)
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(no_gpu)
        if item.get_closest_marker("browser") and find_browser() is None:
            item.add_marker(no_browser)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of reference data; a test that asks for it is skipped where there is none."""
    return shared_folder()


# --- the tiny data set, made once, and child processes that may be killed


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a precomp folder; tests that change it make their own."""
    from in2r.testing.tiny import make_data

    return make_data(tmp_path_factory.mktemp("tiny") / "data")


@pytest.fixture(scope="session")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a noise index of the training split, 40 % at caption level."""
    from in2r.testing.tiny import make_noise

    return make_noise(tmp_path_factory.mktemp("noise") / "noise_0.4.npy")


@pytest.fixture(scope="session")
def children() -> Any:
    """Return a context whose children are forked from one server that has imported everything already.

    Forking this process itself would copy threads' locks that other tests have left behind.
    """
    context = multiprocessing.get_context("forkserver")
    # the first optimiser imports torch._dynamo, at length
    context.set_forkserver_preload(["in2r.training.train", "in2r.results", "torch._dynamo"])
    return context


@pytest.fixture
def forked_cells(children: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the runner fork the processes of its cells; how they start is tested where a runner is a process itself."""
    import forked
    from in2r.bench import runner

    def start(folder: Any, cell: Any, _claim: Any, place: Any, folds: int) -> forked.CellProcess:
        return forked.start_cell(children, folder, cell, place, folds)

    monkeypatch.setattr(runner, "start", start)
    monkeypatch.setattr(runner, "POLL", 0.05)


@pytest.fixture
def killed(children: Any) -> Callable[..., None]:
    """Return a function that runs another one in a child, which must end by SIGKILL."""

    def run(target: Callable[..., None], *args: Any) -> None:
        child = children.Process(target=target, args=args)
        child.start()
        child.join(120)
        assert child.exitcode == -signal.SIGKILL

    return run
