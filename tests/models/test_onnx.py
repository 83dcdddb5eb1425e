"""The ONNX files: the same vectors as the networks, for every number of items, regions and words, padded or not."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from in2r.cli.main import main
from in2r.data.text.vocabulary import Vocabulary
from in2r.errors import InputError
from in2r.models.build import Inputs, ModelConfig, build_backbone
from in2r.models.folder import load, save_model
from in2r.models.onnx_folder import export_onnx
from in2r.models.retrieval import RetrievalModel

pytest.importorskip("onnx", reason="onnx is not installed: pip install 'in2r[onnx]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'in2r[onnx]'")

WORDS = Vocabulary.build(["a red dog runs", "two cats sit on a mat", "the old man reads"], min_count=1)
INPUTS = {"words": Inputs(8, "words", len(WORDS)), "vectors": Inputs(8, "vectors", 6)}
SHAPES = [(1, 1), (1, 5), (3, 4), (7, 36), (40, 50)]
"""items × regions or words"""
CLOSE = 1e-5


def make(reads: str, networks: str = "AB", spread: float = 0.3, **changes: Any) -> RetrievalModel:
    """Return networks whose weights, BatchNorm statistics and means are all far from the initial ones."""
    inputs, config = INPUTS[reads], ModelConfig(**{"dim": 16, "word_dim": 5, **changes})
    with torch.random.fork_rng():
        torch.manual_seed(3)
        backbones = {name: build_backbone(config, inputs) for name in networks}
        for backbone in backbones.values():
            for values in backbone.buffers():
                if values.dtype == torch.float32:
                    values.uniform_(0.1, 1.5)
            for values in backbone.parameters():
                values.data += spread * torch.randn_like(values)
    info = {"model": {"backbone": config.backbone}, "networks": list(networks)}
    return RetrievalModel(backbones, inputs, WORDS if reads == "words" else None, torch.device("cpu"), info)


def session(file: Path) -> Any:
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.log_severity_level = 2  # a warning of a wrong shape is seen
    return onnxruntime.InferenceSession(str(file), settings, providers=["CPUExecutionProvider"])


def run(file: Any, **inputs: Any) -> np.ndarray:
    [vectors] = file.run(None, {name: np.asarray(value) for name, value in inputs.items()})
    assert vectors.dtype == np.float32
    return np.asarray(vectors)


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("words", {}),
        ("words", {"pooling": "mean"}),
        ("words", {"center": True}),
        ("words", {"backbone": "vsepp", "networks": "A"}),
        ("words", {"backbone": "vsepp", "vsepp_words": "last"}),
        ("vectors", {"networks": "A", "hidden": 5}),
        ("vectors", {"image": "mlp", "residual": True}),
        ("vectors", {"image": "linear", "text": "linear", "center": True}),
    ],
    ids=["gpo", "mean", "centred", "vsepp", "vsepp-last", "one-network", "mlp", "linear"],
)
def test_the_files_give_the_networks_vectors(text: str, changes: dict[str, Any], tmp_path: Path) -> None:
    model = make(text, **changes)
    folder = export_onnx(model, tmp_path / "onnx")
    images, texts = session(folder / "image.onnx"), session(folder / "text.onnx")
    draw = np.random.default_rng(0)
    for items, places in SHAPES:
        regions = draw.standard_normal((items, places, 8)).astype(np.float32)
        for lengths in (np.full(items, places), draw.integers(1, places + 1, items)):
            mask = np.arange(places) < lengths[:, None]
            found = run(images, regions=np.where(mask[..., None], regions, 1e9).astype(np.float32), mask=mask)
            assert found.shape == (items, model.dim)
            np.testing.assert_allclose(found, model.encode_images(regions, lengths), atol=CLOSE)
        if text == "vectors":
            vectors = draw.standard_normal((items, 6)).astype(np.float32)
            np.testing.assert_allclose(run(texts, vectors=vectors), model.encode_captions(vectors), atol=CLOSE)
            continue
        captions = [" ".join(draw.choice(WORDS.words[4:-1], draw.integers(1, places + 1))) for _ in range(items)]
        ids, mask = (values.numpy() for values in WORDS.encode(captions).gather(torch.arange(items)))
        expected = model.encode_captions(captions)
        np.testing.assert_allclose(run(texts, ids=ids, mask=mask), expected, atol=CLOSE)
        wider = np.pad(ids, ((0, 0), (0, 3)), constant_values=5)  # what stands beyond has no influence
        np.testing.assert_allclose(run(texts, ids=wider, mask=np.pad(mask, ((0, 0), (0, 3)))), expected, atol=CLOSE)


@pytest.mark.parametrize("changes", [{}, {"pooling": "mean"}, {"image": "linear"}], ids=["gpo", "mean", "linear"])
def test_regions_may_be_absent_at_any_place(changes: dict[str, Any], tmp_path: Path) -> None:
    model = make("vectors", "A", **changes)
    folder = export_onnx(model, tmp_path / "onnx")
    draw = np.random.default_rng(1)
    regions, mask = draw.standard_normal((30, 9, 8)).astype(np.float32), draw.random((30, 9)) < 0.4
    mask[0] = False  # no region at all
    with torch.no_grad():
        expected = model.networks["A"].encode_images(torch.from_numpy(regions), torch.from_numpy(mask)).vector
    found = run(session(folder / "image.onnx"), regions=regions, mask=mask)
    np.testing.assert_allclose(found, expected.numpy(), atol=CLOSE)


def test_wide_networks_and_long_captions_agree(tmp_path: Path) -> None:
    model = make("words", "A", 0.1, dim=256, word_dim=300)  # with 0.3, so wide a recurrence is chaotic, in PyTorch too
    captions = [" ".join(WORDS.words[4:-1] * repeat) for repeat in (1, 8)]
    folder = export_onnx(model, tmp_path / "onnx")
    ids, mask = (values.numpy() for values in WORDS.encode(captions).gather(torch.arange(2)))
    found = run(session(folder / "text.onnx"), ids=ids, mask=mask)
    np.testing.assert_allclose(found, model.encode_captions(captions), atol=CLOSE)


def test_the_description_names_the_inputs(tmp_path: Path) -> None:
    folder = export_onnx(make("words"), tmp_path / "onnx")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert (config["format"], config["networks"]) == ("in2r-onnx", ["A", "B"])
    assert config["files"]["image.onnx"] == {
        "inputs": {"regions": ["batch", "regions", 8], "mask": ["batch", "regions"]},
        "outputs": {"vector": ["batch", 32]},
    }
    for name, given in config["files"].items():
        file = session(folder / name)
        assert {value.name: value.shape for value in file.get_inputs()} == given["inputs"]
        assert {value.name: value.shape for value in file.get_outputs()} == given["outputs"]
    assert Vocabulary.load(folder / "vocabulary.json").hash == WORDS.hash
    assert sorted(file.name for file in folder.iterdir()) == [
        "config.json", "image.onnx", "text.onnx", "vocabulary.json"
    ]  # fmt: skip
    assert not (export_onnx(make("vectors"), folder) / "vocabulary.json").exists()  # replaced as a whole


def test_what_is_no_export_is_kept(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match=r"mine: exists and is not a folder of in2r-onnx \(no valid config\.json\)"):
        export_onnx(make("vectors"), tmp_path / "mine")
    assert [file.name for file in tmp_path.rglob("*")] == ["mine", "notes.txt"]


def test_a_model_that_compares_words_with_regions_is_refused(tmp_path: Path) -> None:
    inputs = Inputs(8, "words", len(WORDS), 3)
    backbone = build_backbone(ModelConfig(backbone="sgr", dim=8, word_dim=5, sgr_dim=4), inputs)
    model = RetrievalModel({"A": backbone}, inputs, WORDS, torch.device("cpu"), {})
    with pytest.raises(InputError, match=r"compares words with regions: two encoders do not give its similarities"):
        export_onnx(model, tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


def test_a_missing_onnx_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match=r'an export to ONNX needs onnx: pip install "in2r\[onnx\]"'):
        export_onnx(make("vectors"), tmp_path / "onnx")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, config = make("vectors", dim=4), ModelConfig(dim=4)
    save_model(tmp_path / "m", model.networks, config, model.inputs, None, None, {})
    assert main(["export", str(tmp_path / "m"), "--onnx", "--out", str(tmp_path / "o"), "--network", "B"]) == 0
    assert f"{tmp_path}/o/image.onnx  " in capsys.readouterr().out
    vectors = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    found = run(session(tmp_path / "o" / "text.onnx"), vectors=vectors)
    np.testing.assert_allclose(found, load(tmp_path / "m", "cpu", "B").encode_captions(vectors), atol=CLOSE)
    shutil.rmtree(tmp_path / "m")
    with pytest.raises(SystemExit):  # another form may come
        main(["export", str(tmp_path / "m"), "--out", str(tmp_path / "o")])
