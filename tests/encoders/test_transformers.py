"""Models that `transformers` loads: which vectors they give, and the record that tells two of them apart."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("transformers")

from tiny_models import save_clip, save_sentences, save_siglip, save_vit

from in2r.encoders.regions import describe, to_regions
from in2r.encoders.registry import open_encoder, open_text_encoder
from in2r.encoders.transformers_models import DualEncoder
from in2r.errors import InputError

CPU = torch.device("cpu")


def picture(seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (40, 60, 3), np.uint8))


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> DualEncoder:
    found = open_encoder(f"transformers:{save_clip(tmp_path_factory.mktemp('clip'))}", CPU)
    assert isinstance(found, DualEncoder)
    return found


def test_a_clip_gives_its_own_vector_and_projected_patches(clip: DualEncoder) -> None:
    model = clip._model
    batch = np.stack([clip.prepare(picture(seed)) for seed in (0, 1)])
    encoded = clip.encode(batch)
    with torch.inference_mode():
        vision = model.vision_model(pixel_values=torch.from_numpy(batch))
        tokens = model.visual_projection(model.vision_model.post_layernorm(vision.last_hidden_state))
        whole = model.visual_projection(vision.pooler_output)
    regions = to_regions(encoded, 2)
    assert regions.shape == (2, 5, 16)
    torch.testing.assert_close(regions[:, 0], whole)
    corner = tokens[:, 1:].reshape(2, 4, 4, 16)[:, :2, 2:].mean((1, 2))  # rows 0 and 1, columns 2 and 3
    torch.testing.assert_close(regions[:, 2], corner)
    assert to_regions(encoded, None).shape == (2, 17, 16)
    assert to_regions(encoded, 0).shape == (2, 1, 16)
    assert describe(encoded, 2) == "the model's vector, then 2 x 2 means row by row"


def test_a_text_has_the_same_vector_alone_and_beside_others(clip: DualEncoder) -> None:
    both = clip.encode_texts(["a dog", "a red cat runs"])
    assert both.shape == (2, 16)
    torch.testing.assert_close(both[:1], clip.encode_texts(["a dog"]))
    assert not torch.allclose(both[0], both[1])


def test_a_siglip_and_a_vision_transformer(tmp_path: Path) -> None:
    siglip = open_encoder(f"transformers:{save_siglip(tmp_path / 's')}", CPU)
    encoded = siglip.encode(siglip.prepare(picture())[None])
    assert to_regions(encoded, 3).shape == (1, 10, 32)
    assert encoded.whole is not None
    torch.testing.assert_close(to_regions(encoded, 3)[:, 0], encoded.whole)
    vit = open_encoder(f"transformers:{save_vit(tmp_path / 'v')}", CPU)
    encoded = vit.encode(vit.prepare(picture())[None])
    assert encoded.whole is None  # its pooler may never have been trained
    assert encoded.grid is not None
    assert encoded.grid.shape == (1, 4, 4, 32)
    torch.testing.assert_close(to_regions(encoded, 2)[:, 0], encoded.grid.mean((1, 2)))


def test_sentences_are_the_mean_of_their_words(tmp_path: Path) -> None:
    encoder = open_text_encoder(f"transformers:{save_sentences(tmp_path / 't')}", CPU)
    found = encoder.encode_texts(["a dog runs", "cat"])
    torch.testing.assert_close(found.norm(dim=1), torch.ones(2))
    torch.testing.assert_close(found[1:], encoder.encode_texts(["cat"]))
    with torch.inference_mode():
        tokens = encoder._tokenizer("cat", return_tensors="pt")  # type: ignore[attr-defined]
        states = encoder._model(**tokens).last_hidden_state  # type: ignore[attr-defined]
    torch.testing.assert_close(found[1], torch.nn.functional.normalize(states[0].mean(0), dim=0))
    assert encoder.text_record["pooling"] == "mean, unit norm"


def test_the_record_follows_the_weights_and_not_the_place(clip: DualEncoder, tmp_path: Path) -> None:
    copy = open_encoder(f"transformers:{save_clip(tmp_path / 'copy')}", CPU).record
    other = open_encoder(f"transformers:{save_clip(tmp_path / 'other', seed=1)}", CPU).record
    assert copy["weights_sha256"] == clip.record["weights_sha256"] != other["weights_sha256"]
    assert copy["preprocessing"] == clip.record["preprocessing"]
    assert copy["preprocessing"]["size"] == {"height": 32, "width": 32}


def test_wrong_names_are_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"^--encoder 'transformer:x': expected one of .*; did you mean transformers\?$"
    ):
        open_encoder("transformer:x", CPU)
    with pytest.raises(InputError, match=f"^transformers:{tmp_path}: cannot be loaded"):
        open_encoder(f"transformers:{tmp_path}", CPU)
    folder = save_vit(tmp_path / "v")
    with pytest.raises(InputError, match="encodes no texts"):
        open_text_encoder(f"transformers:{folder}", CPU)
