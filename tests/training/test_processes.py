"""Several processes that train one run do what one process does, and end together."""

import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import launched
from in2r.errors import InputError, MethodError
from in2r.methods.registry import build_method
from in2r.processes import Processes
from in2r.runs.checkpoints import checkpoints
from in2r.runs.folder import RunFolder
from in2r.runs.settings import RunConfig, load_config
from in2r.tensors import load_tensors
from in2r.testing import Case
from in2r.training import launch, networks
from tiny_engine import assert_same

EVERYWHERE = [
    "in2r on gpo",
    "ncr on gpo",
    "l2rm on gpo",
    "corroborate on gpo",
    "in2r on sgr",
    "ncr on sgr",
    "l2rm on sgr",
]
"""memories; soft labels; an optimiser of its own; ours"""
ONCE = [
    "in2r on saf",
    "gsc on sgr",
    "in2r+recipe/softmax on gpo",
    "in2r on gpo, centred",
    "in2r on gpo, small batches",
    "sps on gpo",
    "pcsr on gpo",
]
"""a norm of similarities; relations inside a side; batches of images; a running mean; batches below the processes;
captions of one batch with images of another; buffers of small integers"""
MORE = {"centred": ["model.center=true"], "small batches": ["train.batch_size=2", "train.epochs=2"]}


def config(folder: Path, name: str, dropout: bool = False) -> RunConfig:
    """Return the settings of "METHOD on BACKBONE, MORE"."""
    case, _, more = name.partition(", ")
    method, backbone = case.split(" on ")
    overrides = ["train.epochs=2", *MORE.get(more, [])]
    if not dropout:  # each process draws for its own rows
        overrides += ["model.image_dropout=0", "model.text_dropout=0", "model.attention_dropout=0"]
        overrides += ["method.refiner_dropout=0"] * method.startswith("in2r")
    return Case(method, backbone, folder).config(*overrides)


def learnt(path: Path) -> dict[str, Tensor]:
    """Return what a run has learnt; GSC's consistencies aside: they divide by how much relations differ."""
    tensors, _ = load_tensors(checkpoints(path / "checkpoints")[-1])
    return {name: value for name, value in tensors.items() if name.startswith("net.") and "intra" not in name}


def losses(path: Path) -> dict[str, float]:
    """Return the means of all losses of all epochs, and the sizes of their gradients."""
    return {
        f"{record['epoch']} {name}": value
        for record in RunFolder(path).records()
        for name, value in record.items()
        if name.startswith(("loss_", "gradient_norm_"))
    }


@pytest.fixture(scope="module")
def alone(children: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that trains runs in one process, each once, and returns where they are."""
    folder, made = tmp_path_factory.mktemp("alone"), set()

    def train(names: list[str], optimizer: Callable[..., Any]) -> Path:
        missing = {name: config(folder, name) for name in names if (name, optimizer.__name__) not in made}
        made.update((name, optimizer.__name__) for name in missing)
        where = folder / optimizer.__name__
        assert launched.launched(children, 1, launched.train_all, where, missing, optimizer) == [0]
        return where

    return train


@pytest.mark.parametrize(
    ("count", "optimizer", "names"),
    [
        (2, launched.by_sgd, EVERYWHERE),
        (3, launched.by_sgd, ONCE),
        (2, launched.by_adam, ["l2rm on gpo", "in2r on sgr"]),
        (3, launched.by_adam, EVERYWHERE),
    ],
)
def test_processes_have_the_losses_gradients_and_weights_of_one(
    count: int,
    optimizer: Callable[..., Any],
    names: list[str],
    children: Any,
    alone: Callable[..., Path],
    tmp_path: Path,
) -> None:
    close = 3e-5 if optimizer is launched.by_sgd else 1e-3  # Adam divides rounding by small gradients
    one = alone(names, optimizer)
    configs = {name: config(one.parent, name) for name in names}
    assert launched.launched(children, count, launched.train_all, tmp_path, configs, optimizer) == [0] * count
    for name in names:
        wanted, found = learnt(one / name), learnt(tmp_path / name)
        assert wanted.keys() == found.keys()
        for key, value in wanted.items():
            assert torch.allclose(found[key].double(), value.double(), rtol=close, atol=close), f"{name}: {key}"
        assert losses(tmp_path / name) == pytest.approx(losses(one / name), rel=10 * close, abs=close), name
        if optimizer is launched.by_sgd:
            ranked = [[record["dev"] for record in RunFolder(path / name).records()] for path in (one, tmp_path)]
            assert ranked[0] == ranked[1]
        costs = [[record["cost"] for record in RunFolder(path / name).records()] for path in (one, tmp_path)]
        assert costs[0] == costs[1]


@given(st.integers(1, 50), st.integers(1, 9))
def test_rows_are_shared_out_evenly_and_each_once(total: int, count: int) -> None:
    shares = [range(total)[Processes(number, count).rows(total)] for number in range(count)]
    assert [row for share in shares for row in share] == list(range(total))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert Processes(0, count).share(total) == (count > 1 and min(map(len, shares)) > 0)


# --- the end of one is the end of all


@pytest.fixture(scope="module")
def whole(children: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that two processes trained to the end, with dropout."""
    path = tmp_path_factory.mktemp("whole") / "run"
    launched_config = config(path.parent, "in2r on gpo", dropout=True)
    assert launched.launched(children, 2, launched.train, path, launched_config) == [0, 0]
    return path


@pytest.mark.parametrize(
    ("who", "point", "count"),
    [(0, "step", 15), (1, "step", 15), (1, "partition", 1), (0, "append", 1), (0, "checkpoint", 3), (1, "step", 2)],
)
def test_a_run_of_which_a_process_was_killed_is_resumed_bit_identically(
    who: int, point: str, count: int, children: Any, whole: Path, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    ended = launched.launched(
        children, 2, launched.train_and_die, path, config(whole.parent, "in2r on gpo", dropout=True), who, point, count
    )
    assert ended[who] == -signal.SIGKILL
    assert ended[1 - who] == (2 if who else 1)
    assert launched.said(path).keys() == ({0} if who else set())
    if who:
        assert "one of 2 processes has ended" in launched.said(path)[0]
    assert launched.launched(children, 2, launched.resume, path) == [0, 0]
    assert_same(whole, path)


@pytest.mark.parametrize("count", [1, 3])
def test_a_run_is_resumed_by_another_number_of_processes(
    count: int, children: Any, tmp_path: Path, alone: Callable[..., Path]
) -> None:
    name, path = "in2r on gpo", tmp_path / "run"
    one = alone([name], launched.by_adam) / name
    launched.launched(children, 2, launched.train_and_die, path, config(one.parent.parent, name), 1, "step", 15)
    assert launched.launched(children, count, launched.resume, path) == [0] * count
    records, wanted = RunFolder(path).records(), RunFolder(one).records()
    assert [record["epoch"] for record in records] == [record["epoch"] for record in wanted]
    assert records[0]["loss_total_A"] == pytest.approx(wanted[0]["loss_total_A"], rel=1e-2)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 1), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_signal_to_one_process_stops_all_after_the_same_step(
    number: signal.Signals, code: int, children: Any, whole: Path, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    ended = launched.launched(
        children, 2, launched.train_and_signal, path, config(whole.parent, "in2r on gpo", dropout=True), number
    )
    assert ended == [code, 130 if number == signal.SIGINT else code]
    assert load_tensors(checkpoints(path / "checkpoints")[-1])[1]["step"] == 3
    assert launched.launched(children, 2, launched.resume, path) == [0, 0]
    assert_same(whole, path)


def test_a_mistake_is_said_once(children: Any, tmp_path: Path) -> None:
    path = tmp_path / "run"
    for target in (launched.fail, launched.fail_later):
        assert launched.launched(children, 2, target, path, {0: "no such file", 1: "no such file"}) == [2, 2]
        assert launched.said(path) == {0: "no such file"}


def test_a_mistake_of_one_process_names_it(children: Any, tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert launched.launched(children, 2, launched.fail, path, {1: "no such file"}) == [2, 2]
    assert launched.said(path) == {0: "process 1: no such file"}


def test_a_mistake_of_one_process_in_a_step_ends_all(children: Any, tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "run"
    assert launched.launched(children, 2, launched.fail_later, path, {1: "file cut short"}) == [2, 2]
    assert launched.said(path)[1] == "process 1: file cut short"
    assert "one of 2 processes has ended" in launched.said(path)[0]


def test_processes_with_other_settings_or_data_are_refused(children: Any, tmp_path: Path) -> None:
    first = config(tmp_path / "one", "in2r on gpo")
    path = tmp_path / "run"
    other = replace(first, train=replace(first.train, seed=5, batch_size=7))
    assert launched.launched(children, 2, launched.train_each, path, [first, other]) == [2, 2]
    assert launched.said(path) == {
        0: "process 1: all processes of a run need the same settings and data: "
        f"train.seed (5, the first process has 0); train.batch_size (7, the first process has {first.train.batch_size})"
    }
    assert not path.exists()

    other = config(tmp_path / "other", "ncr on gpo")
    assert launched.launched(children, 2, launched.train_each, path, [first, other]) == [2, 2]
    assert "method.name (ncr, the first process has in2r)" in launched.said(path)[0]

    copy = Path(shutil.copytree(first.data.path, tmp_path / "copy"))
    images = copy / "train_ims.npy"
    np.save(images, np.load(images)[::-1])
    other = replace(first, data=replace(first.data, path=str(copy)))
    assert launched.launched(children, 2, launched.train_each, path, [first, other]) == [2, 2]
    assert "process 1: all processes of a run need the same settings and data: fingerprint" in launched.said(path)[0]

    same = Path(shutil.copytree(first.data.path, tmp_path / "same"))
    other = replace(first, data=replace(first.data, path=str(same)))
    assert launched.launched(children, 2, launched.train_each, path, [first, other]) == [0, 0]


def test_a_tensor_of_any_layout_is_sent(children: Any) -> None:
    assert launched.launched(children, 2, launched.send_every_layout) == [0, 0]


def test_a_tensor_of_a_method_whose_entries_share_memory_is_refused() -> None:
    own = torch.nn.Module()
    own.register_buffer("bank", torch.zeros(1, 4).expand(3, 4))
    settings = load_config("in2r", ["data.path=d"])
    method = build_method(settings.method, settings.partition)
    with pytest.raises(MethodError, match=r"^method in2r: own\(\) returns bank, an expanded tensor; add \.clone\(\)$"):
        networks._require_own_entries(method, own)
    own.bank = torch.zeros(3, 4).t()
    networks._require_own_entries(method, own)


def test_no_launcher_means_one_process_and_odd_values_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert launch.process_count() == 1
    assert launch.is_first_process()
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(InputError, match="WORLD_SIZE=two; expected a number"):
        launch.process_count()
