"""How long a grid will take: which cells are timed, and which are reckoned from another's steps."""

from pathlib import Path
from typing import Any

import pytest

from in2r.bench import estimate as bench_estimate
from in2r.bench.cell import Where
from in2r.bench.folder import GridFolder
from in2r.runs.settings import RunConfig, load_config
from in2r.training.plan import Rates

SETTINGS = {
    "preset": "paper",
    "data": {"path": "tiny", "caption_vectors": "vecs"},
    "method": {"warmup_epochs": 1},
    "train": {"epochs": 4},
}


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[RunConfig]:
    """Keep the settings of the cells that are timed: 1 s a step, and nothing for the rest."""
    seen = []

    def rehearse(config: RunConfig) -> bench_estimate._Kind:
        seen.append(config)
        return bench_estimate._Kind(Rates(1.0, 1.0, 0.0), pairs=128, dev=10)

    monkeypatch.setattr(bench_estimate, "_rehearse", rehearse)
    return seen


def seconds(folder: Path, points: dict[str, Any], seeds: tuple[int, ...] = (0,)) -> list[float]:
    """Return the estimate of each row of a grid with these rows."""
    grid = GridFolder(folder)
    grid.write({"settings": SETTINGS, "seeds": list(seeds), "groups": {"a": {"axes": {"row": points}}}})
    found = bench_estimate.estimate(grid, grid.grid().cells, Where())
    assert not found.faults
    return list(found.seconds.values())


COSTLY: dict[str, Any] = {
    "as it is": {},
    "one view": {"method": {"lambda_intra": 0}},
    "more neighbours": {"method": {"num_neighbors": 20}},
    "another refiner": {"method": {"refiner": "gat"}},
    "wider candidates": {"method": {"candidates": "both"}},
    "another rectification": {"method": {"rectification": "prototype-contrast"}},
    "a smaller memory": {"method": {"memory_size": 9}},
    "another precision": {"train": {"precision": "bf16"}},
    "another batch": {"train": {"batch_size": 64}},
    "augmented scoring": {"partition": {"augmented": True}},
    "no warm-up": {"method": {"warmup_epochs": 0}},
    "warm-up only": {"method": {"warmup_epochs": 4}},
    "another model": {"model": {"dim": 64}},
}
ALIKE: dict[str, Any] = {
    "as it is": {},
    "weights": {"method": {"gamma": 0.1, "lambda_intra": 0.1, "ce_weight": 2}},
    "margins": {"method": {"margin": 0.3, "intra_margin": 0.3}},
    "temperature": {"method": {"rectification_temperature": 0.1}},
    "whose memory": {"method": {"memory_source": "self"}},
    "rate": {"train": {"learning_rate": 1e-3, "schedule": "step"}},
    "partition": {"partition": {"loss": "triplet-mean", "threshold": 0.6}},
    "split": {"data": {"split_seed": 1}},
    "longer": {"method": {"warmup_epochs": 2}, "train": {"epochs": 8}},
}


def test_what_costs_another_time_is_timed(tmp_path: Path, timed: list[RunConfig]) -> None:
    seconds(tmp_path, COSTLY)
    assert len(timed) == len(COSTLY)


def test_what_costs_alike_is_timed_once(tmp_path: Path, timed: list[RunConfig]) -> None:
    found = seconds(tmp_path, ALIKE, seeds=(0, 1))
    assert len(timed) == 1
    assert len(found) == 2 * len(ALIKE)


def test_every_key_that_costs_nothing_exists() -> None:
    """One that is renamed would be timed for nothing."""
    config = load_config("paper")
    for section, keys in bench_estimate._AT_NO_COST.items():
        assert [key for key in keys if not hasattr(getattr(config, section), key)] == []


def test_a_warm_up_that_cells_share_is_counted_once(tmp_path: Path, timed: list[RunConfig]) -> None:
    """128 pairs are one step a network and epoch: four epochs, of which the second cell takes the first over."""
    assert seconds(tmp_path, {"first": {}, "second": {"method": {"gamma": 2}}}) == [8, 6]
