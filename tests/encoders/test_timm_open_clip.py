"""Models of timm and open_clip with random weights; skipped where the packages are absent."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from in2r.encoders.regions import to_regions
from in2r.errors import InputError

CPU = torch.device("cpu")


def picture(seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (40, 60, 3), np.uint8))


@pytest.mark.parametrize("name", ["test_vit.r160_in1k", "test_resnet.r160_in1k", "test_convnext.r160_in1k"])
def test_timm_models_give_their_vector_and_a_grid(name: str) -> None:
    timm = pytest.importorskip("timm")
    from in2r.encoders.timm_models import TimmEncoder

    model = timm.create_model(name, pretrained=False, num_classes=0).eval()
    settings = timm.data.resolve_model_data_config(model)
    encoder = TimmEncoder(name, model, settings, timm.data.create_transform(**settings, is_training=False), CPU)
    batch = np.stack([encoder.prepare(picture(seed)) for seed in (0, 1)])
    encoded = encoder.encode(batch)
    with torch.inference_mode():
        torch.testing.assert_close(encoded.whole, model(torch.from_numpy(batch)))
    assert encoded.grid is not None
    height, width = encoded.grid.shape[1:3]
    assert height == width > 1
    assert to_regions(encoded, 2).shape == (2, 5, encoded.grid.shape[-1])
    assert encoder.record["preprocessing"]["input_size"] == [3, 160, 160]


def test_an_open_clip_model_gives_vectors_of_one_space(tmp_path: Path) -> None:
    open_clip = pytest.importorskip("open_clip")
    from in2r.encoders.open_clip_models import load

    model = open_clip.create_model("ViT-B-32")
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    encoder = load(f"ViT-B-32/{tmp_path}/weights.pt", CPU)
    batch = np.stack([encoder.prepare(picture(seed)) for seed in (0, 1)])
    encoded = encoder.encode(batch)
    with torch.inference_mode():
        torch.testing.assert_close(encoded.whole, model.eval().encode_image(torch.from_numpy(batch)))
    assert to_regions(encoded, 3).shape == (2, 10, 512)
    assert encoder.encode_texts(["a dog", "a cat"]).shape == (2, 512)
    with pytest.raises(InputError, match=r"^open_clip:ViT-B-32: expected NAME/PRETRAINED"):
        load("ViT-B-32", CPU)
