"""The model card and the description of a copy: from config.json alone, and without folders of this machine."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from in2r.data.text.vocabulary import Vocabulary
from in2r.models.build import Inputs, ModelConfig, build_backbone
from in2r.models.card import front_matter, model_card
from in2r.models.description import rows_of, without_folders
from in2r.models.folder import load, save_model

WORDS = Vocabulary.build(["a red dog runs on the grass"], min_count=1)
ROW = {f"{way}_r{at}": 10.0 * at for way in ("i2t", "t2i") for at in (1, 5, 10)} | {"rsum": 123.456}
ENCODER = {
    "image": {"kind": "timm", "name": "vit", "weights_sha256": "ab" * 32, "preprocessing": {"size": 224}},
    "text": None,
}
PROTOCOL: dict[str, Any] = {
    "data": {
        "path": "/home/me/data/f30k", "fingerprint": "f" * 64, "fingerprint_in_training": "f" * 64,
        "encoder": ENCODER, "captions_as": "words", "word_vectors": None,
    },
    "noise": None, "method": "triplet", "epochs": 3, "epochs_done": 3, "seed": 7, "imported": None,
    "steps_per_network": {"A": 5, "B": 5}, "selection": {"rule": "highest dev rSum", "epoch": 2, "dev_rsum": 123.456},
}  # fmt: skip
EVALUATED = {
    "split": "test", "images": 1000, "captions": 5000, "folds": 1, "tie_rule": "a tie counts as wrong",
    "duplicates": {"counted_as": "wrong", "images": 0, "captions": 0},
}  # fmt: skip
TEST = {
    "rows": {"A": ROW, "B": ROW, "ensemble": {**ROW, "i2t_r1": 11.0}},
    "protocol": PROTOCOL | {"evaluated": EVALUATED},
}
INFO: dict[str, Any] = {
    "networks": ["A", "B"],
    "model": {"backbone": "gpo", "dim": 8},
    "inputs": {"image_dim": 8, "text": "words", "text_dim": 9, "regions": 3},
    "dev": {"A": ROW, "B": ROW, "ensemble": ROW},
    "train": {"images": 12, "pairs": 60},
    "protocol": PROTOCOL,
}


def head(text: str) -> dict[str, Any]:
    empty, values, _ = text.split("---\n", 2)
    assert empty == ""
    loaded: dict[str, Any] = yaml.safe_load(values)
    return loaded


def test_the_head_has_licence_tags_and_results_with_their_protocol() -> None:
    text = front_matter(INFO, "me/mine", "apache-2.0", TEST)
    assert "&id" not in text  # an alias, which some readers of YAML do not take
    found = head(text)
    assert (found["library_name"], found["license"]) == ("in2r", "apache-2.0")
    assert {"image-text-retrieval", "noisy-correspondence", "triplet"} <= set(found["tags"])
    [index] = found["model-index"]
    assert index["name"] == "mine"
    dev, test = index["results"]
    assert dev["dataset"]["args"]["selected_on_this_split"] is True
    assert (test["dataset"]["name"], test["dataset"]["split"]) == ("f30k", "test")
    args = test["dataset"]["args"]
    assert (args["seed"], args["images"], args["injected_noise"]) == (7, 1000, "no injected noise")
    assert args["duplicates"]["counted_as"] == "wrong"
    assert test["metrics"][0] == {"type": "i2t_r1", "name": "image to text R@1", "value": 11.0}  # the ensemble's
    assert test["metrics"][-1] == {"type": "rsum", "name": "rSum", "value": 123.46}
    assert "license" not in head(front_matter(INFO, "me/mine"))


def test_the_library_of_the_hub_reads_the_head() -> None:
    cards = pytest.importorskip("huggingface_hub", reason="not installed: pip install 'in2r[hub]'")
    text = front_matter(INFO, "me/mine", "mit", TEST) + model_card(INFO, "me/mine", TEST)
    data = cards.ModelCard(text).data
    assert (data.library_name, data.license, data.model_name) == ("in2r", "mit", "mine")
    assert len(data.eval_results) == 14
    assert {result.dataset_split for result in data.eval_results} == {"dev", "test"}


def test_the_card_names_encoder_data_selection_and_figures() -> None:
    card = model_card(INFO, "me/mine", TEST)
    for part in (
        f"timm:vit (weights SHA-256 {'ab' * 6}; preprocessing {{'size': 224}})",
        "f30k (fingerprint ffffffffffff): 12 images, 60 training pairs",
        "Method triplet, 3 of 3 epochs, 5 / 5 optimiser steps per network, seed 7.",
        "| ensemble | 11.0 |",
        "1,000 images, 5,000 captions, all at once",
        "one vector of length 16",
    ):
        assert part in card
    assert "in2r eval RUN" not in card
    assert "/home" not in card
    alone = model_card({**INFO, "networks": ["B"], "dev": {"B": ROW}}, "me/mine", TEST)
    assert "Network: B." in alone
    assert "| ensemble |" not in alone


def test_a_description_of_little_gives_a_short_card() -> None:
    little = {key: INFO[key] for key in ("networks", "model", "inputs")}
    assert "## Training" not in model_card(little)
    assert head(front_matter(little, "me/mine")) == {
        "library_name": "in2r",
        "tags": ["image-text-retrieval", "cross-modal-retrieval", "noisy-correspondence"],
    }


@pytest.mark.parametrize(
    ("inputs", "backbone"),
    [
        (Inputs(8, "words", len(WORDS), 3), "gpo"),
        (Inputs(8, "words", len(WORDS), 3), "sgr"),
        (Inputs(8, "words", len(WORDS), 3), "scan"),
        (Inputs(8, "vectors", 6, 1), "gpo"),
        (Inputs(8, "vectors", 6), "gpo"),
    ],
    ids=["words", "sgr", "scan", "flat", "vectors"],
)
def test_the_example_of_the_card_runs(
    inputs: Inputs, backbone: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = ModelConfig(backbone=backbone, dim=4, word_dim=5, sgr_dim=4)
    with torch.random.fork_rng():
        networks = {name: build_backbone(config, inputs) for name in "AB"}
    save_model(tmp_path / "this folder", networks, config, inputs, WORDS if inputs.text == "words" else None, None, {})
    monkeypatch.chdir(tmp_path)
    example = (tmp_path / "this folder" / "README.md").read_text(encoding="utf-8").split("```")[1]
    names: dict[str, Any] = {}
    exec(example.removeprefix("python"), names)
    assert capsys.readouterr().out == "(2, 2)\n"
    assert np.isfinite(names["model"].score(names["images"], names["captions"])).all()
    assert load("this folder").info["networks"] == ["A", "B"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("/home/me/data/f30k", "f30k"),
        ("/home/me/my data/f30k", "f30k"),
        (r"C:\Users\me\f30k", "f30k"),
        ("~/x/mine.py:Mine", "mine.py:Mine"),
        ("data.path=/home/me/f30k", "data.path=f30k"),
        ("the word vectors /home/me/glove.txt (changed)", "the word vectors glove.txt (changed)"),
        ("openai/clip-vit", "openai/clip-vit"),
        ("onnx:/home/me/net.onnx", "onnx:net.onnx"),
        ("https://example.org/a/b", "https://example.org/a/b"),
        ("5 / 5 steps, R@1/5/10", "5 / 5 steps, R@1/5/10"),
        ([{"a": "/b/c"}, 3, None], [{"a": "c"}, 3, None]),
    ],
)
def test_folders_are_left_out(value: Any, expected: Any) -> None:
    assert without_folders(value) == expected


def test_figures_are_those_of_the_networks_that_are_there() -> None:
    rows = {"A": 1, "B": 2, "ensemble": 3}
    assert rows_of(rows, ["A", "B"]) == rows
    assert rows_of(rows, ["B"]) == {"B": 2}
