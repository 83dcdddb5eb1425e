"""`in2r eval RUN RUN`: the mean similarity of several runs, held against their exported models; what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

import in2r
from in2r.cli.main import main
from in2r.errors import InputError
from in2r.metrics import recall_at_k
from in2r.models.blocks import SAME_LOG_ODDS
from in2r.results import evaluate_run, evaluate_runs, export_model
from in2r.runs.folder import RunFolder
from in2r.training.train import reopen
from tiny_run import IMAGES, make_data, make_noise, train

QUICK = ("train.region_drop=0", "model.sgr_dim=6", "train.epochs=1")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("together") / "data")


def made(data: Path, name: str, method: str, *overrides: str, words: bool = True) -> Path:
    folder = train(data.parent / name, data, method, *QUICK, *overrides, words=words)
    return export_model(folder, reopen(folder)).parent


@pytest.fixture(scope="module")
def saf(data: Path) -> Path:
    return made(data, "saf", "sce", "model.backbone=saf")


@pytest.fixture(scope="module")
def sgr(data: Path) -> Path:
    """Of one network."""
    return made(data, "sgr", "decl", "model.backbone=sgr", "method.warmup_epochs=0")


@pytest.fixture(scope="module")
def gpo(data: Path) -> Path:
    return made(data, "gpo", "sce", "train.seed=1")


def similarity(run: Path, data: Path, split: str = "test") -> np.ndarray:
    captions = (data / f"{split}_caps.txt").read_text().splitlines()
    return in2r.load(run, device="cpu").score(np.load(data / f"{split}_ims.npy"), captions).astype(np.float64)


def test_every_run_counts_alike_however_many_networks_it_has(data: Path, saf: Path, sgr: Path) -> None:
    result = evaluate_runs([saf, sgr])
    assert {name: len(run["protocol"]["steps_per_network"]) for name, run in result["runs"].items()} == {
        "saf": 2,
        "sgr": 1,
    }
    owner = np.repeat(np.arange(IMAGES["test"]), 5)
    mine, other = similarity(saf, data), similarity(sgr, data)
    for name, matrix in (("saf", mine), ("sgr", other), ("together", (mine + other) / 2)):
        log_odds = np.log(matrix / (1 - matrix))  # by which bounded similarities are ranked
        expected = recall_at_k(log_odds, owner, tolerance=SAME_LOG_ODDS)
        assert result["rows"][name]["rsum"] == pytest.approx(expected["rsum"]), name
    for run in (saf, sgr):
        assert result["rows"][run.name] == evaluate_run(run)["rows"]["ensemble"]
    assert len({row["t2i_meanr"] for row in result["rows"].values()}) == 3


def test_the_command_writes_the_result_and_says_where(
    data: Path, saf: Path, sgr: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["eval", str(saf), str(sgr), "--split", "dev"]) == 0
    printed = capsys.readouterr().out
    mark = RunFolder(sgr).info()["mark"][:8]
    file = saf / f"result_dev_with_sgr-{mark}.json"
    assert printed.rstrip().endswith(str(file))
    kept = json.loads(file.read_text())
    assert list(kept["rows"]) == ["saf", "sgr", "together"]
    assert {name: run["path"] for name, run in kept["runs"].items()} == {"saf": str(saf), "sgr": str(sgr)}
    assert kept["runs"]["sgr"]["protocol"]["method"] == "decl"
    assert kept["runs"]["saf"]["protocol"]["evaluated"]["split"] == "dev"
    for name, row in kept["rows"].items():
        line = next(line for line in printed.splitlines() if line.startswith(f"{name} "))
        assert f"{row['rsum']:.1f}" in line
    assert "saf: sce, seed 0, epoch 1 of 1" in printed


def test_two_dual_encoders_and_folds(data: Path, gpo: Path) -> None:
    other = made(data, "other/gpo", "triplet", "method.warmup_epochs=0", "train.seed=2", "data.min_count=2")
    result = evaluate_runs([gpo, other], folds=5)
    assert set(result["rows"]) == {str(gpo), str(other), "together"}  # the folders have one name
    both = (similarity(gpo, data) + similarity(other, data)) / 2
    fold = [
        recall_at_k(both[2 * k : 2 * k + 2, 10 * k : 10 * k + 10], np.repeat([0, 1], 5), tolerance=1e-6)["rsum"]
        for k in range(5)
    ]
    assert result["rows"]["together"]["rsum"] == pytest.approx(np.mean(fold))
    assert Path(result["file"]).name.startswith("result_test_5fold_with_gpo-")


def test_runs_that_have_no_common_pairs_or_scale_are_refused_by_name(data: Path, saf: Path, gpo: Path) -> None:
    with pytest.raises(InputError, match=r"saf: given twice; expected different runs"):
        evaluate_runs([saf, saf.parent / "data" / ".." / "saf"])
    with pytest.raises(InputError, match=r"differ in the scale of the similarity \(model\.backbone saf, gpo\)$"):
        evaluate_runs([saf, gpo])
    noise = make_noise(data.parent / "noise.npy")
    noisy = made(data, "noisy", "sce", f"noise.index={noise}")
    oracle = made(data, "oracle", "sce", f"noise.index={noise}", "noise.oracle=true")
    with pytest.raises(InputError, match=r"differ in the noise \(no injected noise; caption-level noise 0\.4 \("):
        evaluate_runs([gpo, noisy])
    with pytest.raises(InputError, match=r"differ in the noise \(caption-level .*; caption-level .* ORACLE: "):
        evaluate_runs([noisy, oracle])
    vectors = made(data, "vectors", "sce", words=False)
    with pytest.raises(InputError, match=r"differ in the captions \(words, vectors vecs\)$"):
        evaluate_runs([gpo, vectors])
    full = made(data, "full", "sce", "data.dev_rule=full")
    with pytest.raises(InputError, match=r"differ in data\.dev_rule \(scan, full\)$"):
        evaluate_runs([gpo, full])
    other = make_data(data.parent / "data2", seed=1)
    elsewhere = made(other, "elsewhere", "sce")
    with pytest.raises(InputError, match=r"differ in the data \(train, dev, test\)$"):
        evaluate_runs([gpo, elsewhere])
    assert not list(gpo.glob("result_test_with*"))


def test_an_unfinished_run_is_refused_as_alone(data: Path, saf: Path, gpo: Path) -> None:
    copy = data.parent / "longer"
    made(data, "longer", "sce")
    config = yaml.safe_load((copy / "config.yaml").read_text())
    config["train"]["epochs"] = 9
    (copy / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(InputError, match=r"longer: unfinished \(1 of 9 epochs\)"):
        evaluate_runs([gpo, copy])
