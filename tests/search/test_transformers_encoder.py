"""Texts and photos through a CLIP of transformers, as its record in encoder.json says; another CLIP is refused."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tiny_models import save_clip

import in2r
from in2r.cli.main import main
from in2r.data.encoder_record import read_encoder
from in2r.errors import InputError
from in2r.models.build import Inputs
from in2r.search.build import DataOptions, build_index


def test_queries_are_encoded_as_in2r_features_did(shop: Path, make_model: Callable[..., Path], tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed (in2r[transformers])")
    save_clip(tmp_path / "clip")
    data = tmp_path / "data"
    words = [
        "features",
        shop / "photos",
        shop / "shop.csv",
        "--out",
        data,
        "--encoder",
        f"transformers:{tmp_path}/clip",
    ]
    assert main([*map(str, words), "--device", "cpu"]) == 0
    images, captions = np.load(data / "images.npy"), np.load(data / "captions.npy")
    inputs = Inputs(images.shape[-1], "vectors", captions.shape[-1])
    model = make_model(inputs, protocol={"data": {"encoder": read_encoder(data)}})
    build_index(model, DataOptions(data), tmp_path / "i", device="cpu")
    index, loaded = in2r.Index.open(tmp_path / "i", device="cpu"), in2r.load(model, "cpu")
    texts = [line.split(",")[1] for line in (shop / "shop.csv").read_text(encoding="utf-8").splitlines()[1:6]]
    sims = loaded.score(images, captions[:5])
    names = [f"{number}.png" for number in range(12)]
    for column, hits in enumerate(index.search(texts, 12).hits):
        scores = {hit.id: hit.score for hit in hits}
        assert [scores[name] for name in names] == pytest.approx(sims[:, column].tolist(), abs=1e-3)
    [hits] = index.search_images([shop / "photos" / "3.png"], 12).hits
    assert next(hit.score for hit in hits if hit.id == "3.png") == pytest.approx(1, abs=1e-5)

    (tmp_path / "clip").rename(tmp_path / "moved")
    assert index.search(texts).hits  # an encoder that was opened is kept
    index = in2r.Index.open(tmp_path / "i", device="cpu")
    with pytest.raises(
        InputError, match=r"^the text encoder \(transformers:.*clip made the caption vectors\) is not open"
    ):
        index.search(texts)
    moved = in2r.Index.open(tmp_path / "i", encoder=f"transformers:{tmp_path}/moved", device="cpu")
    assert moved.search(texts).hits
    save_clip(tmp_path / "clip", seed=1)
    for search in (lambda: index.search(texts), lambda: index.search_images([shop / "photos" / "3.png"])):
        with pytest.raises(InputError, match=r"^not the encoder of the index: .*: other weights sha256"):
            search()
