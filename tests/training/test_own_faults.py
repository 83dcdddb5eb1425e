"""What a method of one's own may get wrong: each fault is one line, and none ends in figures of something else."""

import shutil
from pathlib import Path

import pytest

from in2r.bench.folder import GridFolder
from in2r.bench.grid_file import read_grid
from in2r.cli.main import main
from in2r.errors import InputError
from in2r.methods import find_method
from in2r.methods.base import MethodConfig
from in2r.methods.division import PartitionConfig
from in2r.methods.registry import build_method
from in2r.runs.folder import RunFolder
from in2r.training.train import start_run
from tiny_engine import assert_same, settings

HEAD = """
from dataclasses import dataclass

import torch
from torch import nn

from in2r.config import key
from in2r.losses import triplet_loss
from in2r.methods import Method, MethodConfig, Step, Walk


def loss_of(net, batch):
    images, texts = net.encode(batch)[0]
    return triplet_loss(net.score(images, texts), 0.2, negatives="mean")

"""
PLAIN = """
class Mine(Method):
    def steps(self, net, peer, batches, now):
        yield Step({"total": loss_of(net, batches["all"])})
"""
WARM = """
@dataclass(frozen=True)
class Scaled:
    margin: float = 0.2

    def step(self, net, batch):
        return Step({"total": FACTOR * net.own.scale * loss_of(net, batch)})


class Mine(Method):
    def own(self, dim, pairs, batch_size):
        own = nn.Module()
        own.scale = nn.Parameter(torch.ones(()))
        return own

    def warmup(self):
        return 2, Scaled()

    def steps(self, net, peer, batches, now):
        yield Step({"total": net.own.scale * loss_of(net, batches["all"])})
"""


def own(file: Path, code: str) -> str:
    file.write_text(HEAD + code, encoding="utf-8")
    return f"{file}:Mine"


def test_a_warm_up_of_ones_own_is_shared_by_the_same_file_with_all_that_it_trains(data: Path, tmp_path: Path) -> None:
    shared = f"checkpoint.warmups={tmp_path / 'warmups'}"
    same = own(tmp_path / "same.py", WARM.replace("FACTOR", "1.0"))
    other = own(tmp_path / "other.py", WARM.replace("FACTOR", "-1.0"))
    alone = start_run(tmp_path / "alone", settings(data, same))
    runs = [
        start_run(tmp_path / name, settings(data, who, shared))
        for name, who in zip("abc", (same, same, other), strict=True)
    ]
    assert [[record.get("taken_over") for record in run.records()] for run in runs] == [
        [None, None, None],
        [1, 1, None],
        [None, None, None],
    ]
    last = [run.records()[-1]["loss_total_A"] for run in (alone, *runs)]
    assert last[0] == last[1] == last[2] != last[3]
    (runs[1].path / "log.jsonl").write_bytes((runs[0].path / "log.jsonl").read_bytes())
    assert_same(runs[0].path, runs[1].path)


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ('{"epoch": now.epoch}', "figure `epoch` is a key of every record"),
        ('{"steps": 3.0}', "figure `steps` is a key of every record"),
        ('{"mixture": 3.0}', "figure `mixture` is a key of every record"),
        ('{"worst": torch.ones(2)}', r"figure `worst` is no number: tensor"),
    ],
)
def test_a_figure_that_would_break_the_record_is_refused(
    data: Path, tmp_path: Path, figures: str, message: str
) -> None:
    code = f"{PLAIN}\n    def end_epoch(self, nets, now):\n        return {figures}\n"
    with pytest.raises(InputError, match=message):
        start_run(tmp_path / "run", settings(data, own(tmp_path / "mine.py", code)))
    assert RunFolder(tmp_path / "run").records() == []


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("class Mine(Method):\n    networks = 3\n", "`networks` must be 1 or 2, got 3"),
        ("class Mine(Method):\n    sets = ()\n", r"`sets` must hold one `Walk` or more, got \(\)"),
        ("class Mine(Method):\n    sets = ('all',)\n", "`sets` must hold one `Walk` or more"),
        ("class Mine(Method):\n    Config = None\n", "`Config` must be derived from"),
        (
            "class C(MethodConfig):\n    floor: float = 3\nclass Mine(Method):\n    Config = C\n",
            "`Config` must be a dataclass",
        ),
        ("import sys\nsys.exit(3)\n", r"mine\.py: cannot be run \(SystemExit: 3\)"),
        ("raise ValueError('two\\nlines')\n", r"mine\.py: cannot be run \(ValueError: two lines\)"),
    ],
)
def test_a_class_that_cannot_be_a_method_is_one_line(tmp_path: Path, code: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_method(own(tmp_path / "mine.py", code))


@pytest.mark.parametrize("returned", ["(1.5, None)", "(-3, None)", "2", "(1, 'loss')"])
def test_a_warm_up_of_another_form_is_one_line(tmp_path: Path, returned: str) -> None:
    code = f"{PLAIN}\n    def warmup(self):\n        return {returned}\n"
    with pytest.raises(InputError, match=r"mine\.py:Mine: .*warmup\(\)"):
        build_method(MethodConfig(own(tmp_path / "mine.py", code)), PartitionConfig())


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ('alpha: float = key(None, "why", low=0)', r"the default of `method\.alpha` must be a number, got None"),
        ('alpha: float = key(-1.0, "why", low=0)', r"the default of `method\.alpha` must be at least 0"),
        ('alpha: float = key("zero", "why", low=0)', r"the default of `method\.alpha` must be a number"),
    ],
)
def test_a_default_that_its_own_key_forbids_is_refused_before_the_training(
    data: Path, tmp_path: Path, declared: str, message: str
) -> None:
    code = f"@dataclass(frozen=True)\nclass C(MethodConfig):\n    {declared}\n{PLAIN}    Config = C\n"
    with pytest.raises(InputError, match=message):
        settings(data, own(tmp_path / "mine.py", code))


def test_an_error_in_a_method_names_its_line(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    who = own(tmp_path / "mine.py", PLAIN.replace("        yield", "        raise KeyError('lost')\n        yield"))
    line = (tmp_path / "mine.py").read_text(encoding="utf-8").splitlines().index("        raise KeyError('lost')") + 1
    given = [f"data.path={data}", "data.caption_vectors=vecs", "model.dim=8", "train.epochs=1"]
    assert main(["train", who, *given, "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"in2r: {tmp_path / 'mine.py'}, line {line}: KeyError: 'lost' (--debug shows the traceback)"


def test_the_common_tests_report_an_error_in_a_method(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    who = own(tmp_path / "mine.py", PLAIN.replace("        yield", "        raise KeyError('lost')\n        yield"))
    assert main(["methods", "--check", who]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "failed KeyError: 'lost'" in said
    assert "mine.py, line" in said


def test_a_grid_finds_a_method_of_ones_own_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own(tmp_path / "mine.py", PLAIN)
    grid = "settings: {data: {path: d}}\ngroups: {g: {axes: {row: {mine: {method: {name: 'mine.py:Mine'}}}}}}\n"
    (tmp_path / "grid.yaml").write_text(grid, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    GridFolder(tmp_path / "kept").write(read_grid("grid.yaml"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    [cell] = GridFolder(tmp_path / "kept").grid().cells
    assert cell.settings["method"]["name"] == f"{tmp_path / 'mine.py'}:Mine"
    shutil.rmtree(elsewhere)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("yield Step({'mine': loss_of(net, batches['all'])})", "a step has no loss `total`; it has mine"),
        (
            "yield Step({'total': loss_of(net, batches['all']).expand(2)})",
            r"loss `total` must be a tensor of one number",
        ),
        ("yield Step({'total': loss_of(net, batches['all']).detach()})", "loss `total` has no gradient"),
        (
            "yield Step({'total': loss_of(net, batches['all'])}, of='head')",
            "a step of 'head'; there is an optimiser of net",
        ),
        ("return Step({'total': loss_of(net, batches['all'])})", r"steps\(\) must yield steps \(`yield Step"),
        ("return None", r"steps\(\) must yield steps \(`yield Step\(...\)`\), it returned nothing"),
        (
            "yield Step({'total': loss_of(net, batches['all'])}, notes={'w': torch.ones(3)})",
            "note `w` must be one",
        ),
        (
            "yield Step({'total': loss_of(net, batches['all'])}, notes={'w': 'much'})",
            "note `w` must be one",
        ),
        ("return []", r"steps\(\) yielded no step"),
        ("yield loss_of(net, batches['all'])", r"steps\(\) must yield `Step`, got a tensor of shape \(\)"),
        (
            "batches['all'].column('weight')\n        return []",
            "no column `weight`; it has clean_prob",
        ),
    ],
)
def test_a_step_of_another_form_is_one_line(data: Path, tmp_path: Path, code: str, message: str) -> None:
    code = f"class Mine(Method):\n    def steps(self, net, peer, batches, now):\n        {code}\n"
    with pytest.raises(InputError, match=message):
        start_run(tmp_path / "run", settings(data, own(tmp_path / "mine.py", code)))


@pytest.mark.parametrize(
    ("observed", "divided", "message"),
    [
        (
            "loss.mean()",
            "whole(data.pairs, 60)",
            r"`far` of shape \(30,\), one per pair; got a tensor of shape \(\)",
        ),
        ("S", "whole(data.pairs, 60)", r"`far` of shape \(30,\), one per pair; got a tensor of shape \(30, 30\)"),
        ("loss", "None", r"divide\(\) must return a `Division` of network A, got nothing"),
        (
            "loss",
            "whole(data.pairs[:9], 9)",
            r"divide\(\) must return `sets` with a row for each of the 60 training pairs",
        ),
        ("loss", "replace(whole(data.pairs, 60), figures={'w': 'x'})", r"figure `w` of divide\(\) must be a number"),
        (
            "loss",
            "replace(whole(data.pairs, 60), columns={'w': seen['A']['far'][:9]})",
            r"divide\(\) must return `w` with a row for each of the 60 training pairs, got a tensor of shape \(9,\)",
        ),
    ],
)
def test_a_division_of_another_form_is_one_line(
    data: Path, tmp_path: Path, observed: str, divided: str, message: str
) -> None:
    code = f"""
from dataclasses import replace
from in2r.methods import whole
{PLAIN}
    def observe(self, net, images, texts, pairs):
        S = net.score(images, texts)
        loss = 1 - S.diag()
        return {{"far": {observed}}}

    def divide(self, seen, nets, data, now):
        return {{"A": {divided}}}
"""
    with pytest.raises(InputError, match=message):
        start_run(tmp_path / "run", settings(data, own(tmp_path / "mine.py", code)))


def test_a_run_of_one_network_is_scored(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = start_run(tmp_path / "run", settings(data, own(tmp_path / "mine.py", PLAIN), "train.epochs=1"))
    assert main(["score", str(run.path), "--top", "3"]) == 0
    assert "caption" in capsys.readouterr().out


def test_a_class_that_is_not_in_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"mine\.py: no class Main, did you mean Mine\?|mine\.py: no class Main"):
        find_method(own(tmp_path / "mine.py", PLAIN).replace(":Mine", ":Main"))


def test_an_optimiser_of_what_is_not_there_is_named(data: Path, tmp_path: Path) -> None:
    code = f"{PLAIN}\n    def optimizers(self):\n        return {{'head': 1.0}}\n"
    with pytest.raises(InputError, match=r"optimizers\(\) names 'head', which is no child"):
        start_run(tmp_path / "run", settings(data, own(tmp_path / "mine.py", code)))


def test_a_method_whose_file_is_gone_is_the_only_fault_that_is_told(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        settings(data, f"{tmp_path / 'gone.py'}:Mine", "method.floor=0.1")
    assert "no such file" in str(caught.value)
    assert "unknown key" not in str(caught.value)


def test_a_grid_does_not_mix_two_versions_of_a_methods_file(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    who = own(tmp_path / "mine.py", PLAIN)
    (tmp_path / "grid.yaml").write_text(
        f"settings:\n  data: {{path: {data}, caption_vectors: vecs}}\n  model: {{dim: 8}}\n"
        "  train: {epochs: 1, batch_size: 12, device: cpu}\n"
        f"groups: {{g: {{axes: {{row: {{mine: {{method: {{name: '{who}'}}}}}}}}}}}}\n",
        encoding="utf-8",
    )
    asked = ["bench", "run", str(tmp_path / "grid.yaml"), "--out", str(tmp_path / "grid")]
    assert main(asked) == 0
    assert main(asked) == 0  # the same file: nothing to do
    capsys.readouterr()
    (tmp_path / "mine.py").write_text(HEAD + PLAIN + "# edited\n", encoding="utf-8")
    assert main(asked) == 2
    assert f"was run with another version of {tmp_path / 'mine.py'}" in capsys.readouterr().err
