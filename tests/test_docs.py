"""README and docs say what the package does: code runs, commands parse, names and keys exist."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

import in2r
from in2r.cli.main import build_parser
from in2r.data.text.vocabulary import Vocabulary
from in2r.errors import InputError
from in2r.files import read_json
from in2r.methods import METHODS
from in2r.models.build import Inputs, ModelConfig, build_backbone
from in2r.models.folder import save_model
from in2r.models.onnx_folder import export_onnx
from in2r.report import Share
from in2r.results import evaluate_run, export_model, score_run
from in2r.runs.folder import RunFolder
from in2r.runs.presets import presets
from in2r.runs.settings import RunConfig, load_config
from in2r.testing import check_method
from in2r.training.train import reopen
from tiny_run import make_data, make_noise, train

CHECKOUT = Path(__file__).resolve().parent.parent
PAGES = [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").rglob("*.md"))]
PLACEHOLDERS = ("VERB", "…", "...", "$")
"""A command with one of these is a pattern, not a command."""

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(CHECKOUT).as_posix())


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def inline_code(page: Path) -> list[str]:
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose)]


# --- Python


def run_blocks(page: Path, names: dict[str, object]) -> dict[str, object]:
    found = blocks(page, "python")
    assert found
    for block in found:
        exec(compile(block, str(page), "exec"), names)
    return names


def test_data_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_blocks(CHECKOUT / "docs" / "data.md", {})


def test_report_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = CHECKOUT / "docs" / "report.md"
    monkeypatch.chdir(tmp_path)
    [example] = blocks(page, "json")
    (tmp_path / "decisions.json").write_text(example, encoding="utf-8")
    names = run_blocks(page, {"verdicts": ["mismatch"] * 541})
    assert (names["rate"], names["found"]) == (Share(0, 1, 0), Share(1, 1, 0))


def test_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config, inputs = ModelConfig(dim=8), Inputs(6, "vectors", 5)
    torch.manual_seed(0)
    encoders = {name: build_backbone(config, inputs) for name in "AB"}
    save_model(tmp_path / "runs" / "mine" / "model", encoders, config, inputs, None, "card", {})
    (tmp_path / "audited" / "data").mkdir(parents=True)
    np.save(tmp_path / "audited" / "data" / "images.npy", np.ones((3, 4, 6), np.float32))
    np.save(tmp_path / "audited" / "data" / "captions.npy", np.ones((9, 5), np.float32))
    names = run_blocks(CHECKOUT / "README.md", {})
    assert np.shape(names["similarity"]) == (3, 1)


def test_sharing_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of the ONNX files gives what the model gives, in a process that never imports PyTorch."""
    for package in ("onnx", "onnxruntime"):
        pytest.importorskip(package, reason="not installed: pip install 'in2r[onnx]'")
    monkeypatch.chdir(tmp_path)
    texts = ["a red dog runs", "two cats", ""]
    words = Vocabulary.build(texts, min_count=1)
    config, inputs = ModelConfig(dim=8, word_dim=5), Inputs(6, "words", len(words), 4)
    torch.manual_seed(0)
    encoders = {name: build_backbone(config, inputs) for name in "AB"}
    save_model("runs/mine/model", encoders, config, inputs, words, None, {})
    loading, serving = blocks(CHECKOUT / "docs" / "sharing.md", "python")
    names: dict[str, object] = {}
    exec(loading, names)
    features = np.random.default_rng(0).standard_normal((5, 4, 6)).astype(np.float32)
    np.save("features.npy", features)
    Path("captions.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    export_onnx(in2r.load("shared", "cpu"), "mine-onnx")
    ending = "import sys\nassert 'torch' not in sys.modules\nnp.save('similarity.npy', similarity)\n"
    subprocess.run([sys.executable, "-c", serving + ending], check=True)
    expected = names["model"].score(features, texts)  # type: ignore[attr-defined]
    np.testing.assert_allclose(np.load("similarity.npy"), expected, atol=1e-5)


def test_the_parts_of_corroborate_run_in_a_loop_of_ones_own() -> None:
    """Right pairs of planted vectors get the trust, and the loss has a gradient."""
    draws = torch.Generator().manual_seed(0)
    groups = torch.randn(40, 16, generator=draws).repeat_interleave(10, 0)
    topics = torch.nn.functional.normalize(groups + torch.randn(400, 16, generator=draws) / 2, dim=1)
    owner = torch.arange(400).repeat_interleave(3)
    u = topics[owner]
    wrong = torch.rand(1200, generator=draws) < 0.4
    moved = owner[wrong]
    owner[wrong] = moved[torch.randperm(len(moved), generator=draws)]
    v = topics.clone().requires_grad_()
    names = run_blocks(
        CHECKOUT / "docs" / "methods" / "corroborate.md",
        {"v": v, "u": u, "owner": owner, "pixels": topics, "words": u},
    )
    trust, share = names["trust"], names["share"]
    assert isinstance(trust, torch.Tensor)
    assert share == pytest.approx(float((~wrong).float().mean()), abs=0.1)
    assert float(trust[~wrong].mean() - trust[wrong].mean()) > 0.5
    names["loss"].backward()  # type: ignore[attr-defined]
    assert v.grad is not None


def test_the_example_of_a_method_of_your_own_passes_the_common_tests(tmp_path: Path) -> None:
    page = CHECKOUT / "docs" / "own-method.md"
    [example] = blocks(page, "python")
    assert len(example.splitlines()) < 75
    (tmp_path / "reweight.py").write_text(example, encoding="utf-8")
    passed: list[str] = []
    check_method(f"{tmp_path}/reweight.py:Reweight", on_passed=passed.append)
    rows = re.findall(
        r"^\| ([a-z0-9 ]+) \| [^|]+ \|$", page.read_text(encoding="utf-8").partition("## What a method")[0], re.M
    )
    assert [row.replace(" ", "_") for row in rows if row != "test"] == passed


# --- commands


def commands(page: Path) -> Iterator[str]:
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("in2r "):
                yield line
    yield from (code for code in inline_code(page) if code.startswith("in2r "))


def parses(command: str) -> bool:
    """Say whether a command would be taken; a bare verb (`in2r data convert`) must exist."""
    words = shlex.split(command.partition(" > ")[0], comments=True)[1:]
    try:
        args = build_parser().parse_args(words)
    except SystemExit:
        if not all(re.fullmatch("[a-z]+", word) for word in words):
            return False
        with pytest.raises(SystemExit) as stopped:
            build_parser().parse_args([*words, "--help"])
        return stopped.value.code == 0
    settings = getattr(args, "settings", None)
    if settings is not None and not settings.endswith(".yaml") and ".py:" not in settings:
        try:
            load_config(settings, args.overrides)
        except InputError:
            return False
    return True


@every_page
def test_commands_parse(page: Path) -> None:
    written = [command for command in commands(page) if not any(sign in command for sign in PLACEHOLDERS)]
    assert [command for command in written if not parses(command)] == []


def test_wrong_commands_would_be_found() -> None:
    assert parses("in2r data convert")
    assert not parses("in2r data konvert")
    assert parses("in2r eval")  # a bare verb
    assert not parses("in2r eval runs/mine --fold 5 --what")
    assert parses("in2r train in2r/tuned train.epochs=4 --out runs/mine")
    assert not parses("in2r train in3r --out runs/mine")
    assert not parses("in2r train in2r train.epoch=4 --out runs/mine")
    assert list(commands(CHECKOUT / "README.md"))


# --- names


def known_keys() -> set[str]:
    keys = {
        f"{section.name}.{entry.name}"
        for section in fields(RunConfig)
        for entry in fields(getattr(RunConfig(), section.name))
    }
    return keys | {f"method.{entry.name}" for method in METHODS.values() for entry in fields(method.Config)}


def is_known(name: str) -> bool:
    """A key of the configuration, or a public name of a module (`partition.fit_two_gaussians`)."""
    section, _, rest = name.partition(".")
    module = f"in2r.{section}"
    return name in known_keys() or (find_spec(module) is not None and hasattr(import_module(module), rest))


@every_page
def test_configuration_keys_exist(page: Path) -> None:
    sections = "|".join(section.name for section in fields(RunConfig))
    written = [re.fullmatch(rf"((?:{sections})\.[a-z_0-9]+)(=.*)?", code) for code in inline_code(page)]
    names = {found[1] for found in written if found}
    files = {name for name in names if name.endswith((".py", ".json", ".safetensors"))}
    assert sorted(name for name in names - files if not is_known(name)) == []


def test_a_wrong_key_would_be_found() -> None:
    assert is_known("method.warmup_epochs")
    assert is_known("partition.fit_two_gaussians")
    assert not is_known("method.warm_up_epochs")
    assert not is_known("train.fit_two_gaussians")


@every_page
def test_presets_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    written = set(re.findall(r"[Pp]reset `([^`]+)`|`([^`]+)` preset", text))
    named = {name for pair in written for name in pair if name}
    assert named <= set(presets())


def test_readme_lists_every_preset() -> None:
    table = (CHECKOUT / "README.md").read_text(encoding="utf-8").partition("| preset |")[2].partition("\n\n")[0]
    named = set()
    for names, suffixes in re.findall(r"^\| (`[^|]+`) \|([^|]*)\|", table, re.MULTILINE):
        for name in re.findall("`([a-z0-9/]+)`", names):
            named |= {name, *(name + suffix for suffix in re.findall("`(/[a-z0-9]+)`", suffixes))}
    assert sorted(named) == presets()


# --- the run folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Train on words under injected noise: such a run has every file and every key there is."""
    root = tmp_path_factory.mktemp("documented")
    noise = [f"noise.index={make_noise(root / 'noise.npy')}", "noise.ratio=0.4", "partition.single_mode=split"]
    finished = train(root / "run", make_data(root / "data"), "in2r", *noise, words=True)
    export_model(finished, reopen(finished))
    evaluate_run(finished.path)
    score_run(finished.path)
    return finished


def explained() -> set[str]:
    return set(inline_code(CHECKOUT / "docs" / "run-folder.md"))


def test_every_key_of_the_record_is_explained(run: RunFolder) -> None:
    keys = {key.removesuffix("_A").removesuffix("_B") for line in run.records() for key in line}
    recalls = {key for line in run.records() for row in line["dev"].values() for key in row}
    assert {"loss_sce", "loss_rect", "partition_recall", "neighbors_same_image_i2t"} <= keys
    assert sorted((keys | recalls) - explained()) == []


def test_every_file_of_a_run_is_explained(run: RunFolder) -> None:
    names = {path.name + ("/" if path.is_dir() else "") for path in run.path.iterdir()} - {"checkpoints/"}
    assert {"vocabulary.json", "best.safetensors", "scores.csv", "model/"} <= names
    assert sorted((names | {path.name for path in run.model.iterdir()}) - explained()) == []


def test_every_key_of_description_result_and_scores_is_explained(run: RunFolder) -> None:
    result, scores = read_json(run.path / "result_test.json"), read_json(run.path / "scores.json")
    header = (run.path / "scores.csv").read_text(encoding="utf-8").split("\n", 1)[0].split(",")
    columns = {name for name in header if not name.startswith("loss_")}
    keys = {*run.info(), *result, *result["protocol"], *scores, *columns}
    assert sorted(keys - explained()) == []
