"""What every test runs under: one thread, repeatable property tests, reference data only where it lies."""

import os
import signal
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch and NumPy load; child processes inherit it

import hypothesis
import pytest
import torch

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
    no_gpu = pytest.mark.skip(reason="no CUDA device")
    for item in items:
        if "shared" in getattr(item, "fixturenames", ()):
            item.add_marker("shared")
        if item.get_closest_marker("shared") and not shared_folder().is_dir():
            item.add_marker(absent)
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(no_gpu)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of reference data; a test that asks for it is skipped where there is none."""
    return shared_folder()
