"""Encoders in a Python file or an ONNX file, and packages that are not installed."""

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from in2r.encoders.regions import describe, to_regions
from in2r.encoders.registry import open_encoder, open_text_encoder
from in2r.errors import InputError

CPU = torch.device("cpu")
ONNX = Path(__file__).parent.parent / "arrays" / "pooled.onnx"

OWN = """
class Grid:
    identity = {"weights": "none"}
    def prepare(self, image):
        import numpy as np
        return np.asarray(image.resize((6, 6)), np.float32)
    def encode(self, batch):
        return batch
    def encode_texts(self, texts):
        return [[len(text), 1.0] for text in texts]

def squares(batch):
    return batch.reshape(len(batch), 4, -1)

def lengths(texts):
    return [[float(len(text))] for text in texts]

class Nothing:
    pass

def flat(batch):
    return 3.0
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(OWN)
    return f"python:{tmp_path}/own.py:"


def test_a_class_gives_a_grid_and_texts(own: str) -> None:
    encoder = open_encoder(f"{own}Grid", CPU)
    image = Image.new("RGB", (12, 12), (10, 20, 30))
    image.paste((250, 20, 30), (6, 0, 12, 12))
    encoded = encoder.encode(encoder.prepare(image)[None])
    regions = to_regions(encoded, 2)
    assert regions.shape == (1, 5, 3)
    torch.testing.assert_close(regions[0, 0], regions[0, 1:].mean(0))
    assert regions[0, 2, 0] > 200 > regions[0, 1, 0]  # the right half is red
    assert describe(encoded, 2) == "the mean of the grid, then 2 x 2 means row by row"
    assert open_text_encoder(f"{own}Grid", CPU).encode_texts(["ab"]).tolist() == [[2.0, 1.0]]
    assert encoder.record["preprocessing"] == {"weights": "none"}


def test_a_function_is_known_by_its_argument(own: str) -> None:
    encoder = open_encoder(f"{own}squares", CPU)
    encoded = encoder.encode(np.stack([encoder.prepare(Image.new("RGB", (9, 5)))]))
    assert to_regions(encoded, 3).shape == (1, 4, 224 * 224 * 3 // 4)
    assert open_text_encoder(f"{own}lengths", CPU).encode_texts(["abc"]).tolist() == [[3.0]]


def test_a_file_is_found_at_home(own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_encoder("python:~/own.py:Grid", CPU).record["name"] == f"{tmp_path}/own.py:Grid"


def test_what_is_no_encoder_is_said(own: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0")
    faults = {
        f"{own}Nothing": "Nothing: expected a method encode(batch), or encode_texts(texts)",
        f"{own}absent": f"{tmp_path}/own.py: no function or class absent",
        f"{own}lengths": f"{own}lengths: encodes texts only; name an encoder of images, and this one with "
        "--text-encoder",
        f"python:{tmp_path}/no.py:A": f"{tmp_path}/no.py: no such file",
        f"python:{tmp_path}/own.py": f"python:{tmp_path}/own.py: expected python:FILE.py:NAME, NAME a function or a "
        "class in it",
        f"python:{tmp_path}/broken.py:A": f"{tmp_path}/broken.py: cannot be run (ZeroDivisionError: division by zero)",
    }
    for name, said in faults.items():
        with pytest.raises(InputError) as error:
            open_encoder(name, CPU)
        assert str(error.value) == said
    encoder = open_encoder(f"{own}flat", CPU)
    with pytest.raises(InputError, match=r"returned shape \(\); expected"):
        encoder.encode(np.zeros((1, 2, 2, 3), np.float32))


def test_an_onnx_file_is_run_as_the_json_beside_it_says(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "m.onnx").write_bytes(ONNX.read_bytes())
    with pytest.raises(InputError, match=r"m\.json: no such file; write how images are prepared"):
        open_encoder(f"onnx:{tmp_path}/m.onnx", CPU)
    (tmp_path / "m.json").write_text(json.dumps({"size": 8, "mean": [0.5, 0, 0], "std": [0.5, 1, 1]}))
    encoder = open_encoder(f"onnx:{tmp_path}/m.onnx", CPU)
    image = Image.new("RGB", (30, 10), (0, 0, 255))
    image.paste((255, 0, 0), (10, 0, 20, 10))  # the middle square alone is looked at
    encoded = encoder.encode(encoder.prepare(image)[None])
    assert encoded.whole is not None
    np.testing.assert_allclose(encoded.whole.numpy(), [[1.0, 0.0, 0.0]], atol=0.02)  # the graph is the mean
    (tmp_path / "m.json").write_text(json.dumps({"size": 8, "output": "z"}))
    with pytest.raises(InputError, match="no output 'z'; the model has pooled"):
        open_encoder(f"onnx:{tmp_path}/m.onnx", CPU)


@pytest.mark.parametrize(("kind", "package", "extra"), [
    ("timm:resnet18", "timm", "timm"), ("open_clip:ViT-B-32/openai", "open_clip", "open-clip"),
])  # fmt: skip
def test_an_absent_package_is_named_with_its_install_command(kind: str, package: str, extra: str) -> None:
    if find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    with pytest.raises(InputError, match=rf'pip install "in2r\[{extra}\]"$'):
        open_encoder(kind, CPU)
