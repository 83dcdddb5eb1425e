"""Data for grids that are really run."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from tiny_run import make_data


@pytest.fixture(scope="session")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that holds the data set `tiny`."""
    root = tmp_path_factory.mktemp("data")
    make_data(root / "tiny")
    return root
