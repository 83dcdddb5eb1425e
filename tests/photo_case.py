"""Photos, a table and an encoder of one's own that can be told to stop or to hang."""

import csv
from pathlib import Path

from PIL import Image

from in2r.extract.make import Made, make_features
from in2r.extract.options import Options
from in2r.raw.table import read_pairs

OWN = """
import os
import time
import numpy as np

STOP, HANG = STOP_FILE, HANG_FILE

class Means:
    identity = {"version": VERSION}
    def prepare(self, image):
        if image.size == (7, 7):
            raise ValueError("seven is unlucky")
        return np.asarray(image.resize((6, 6)), np.float32)
    def encode(self, batch):
        if os.path.exists(HANG) and (batch[:, 0, 0, 0] > 100).any():
            try:
                os.rename(HANG, f"{HANG}.{os.getpid()}")
            except FileNotFoundError:  # of several processes one alone hangs
                pass
            else:
                time.sleep(600)
        if os.path.exists(STOP) and (batch[:, 0, 0, 0] > 100).any():
            raise KeyboardInterrupt
        return batch
    def encode_texts(self, texts):
        return np.array([[len(text), 1.0] for text in texts])
"""


class Watched:
    """A display that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, int]] = []

    def update(self, what: str, done: int, total: int) -> None:
        self.told.append((what, done, total))


class Case:
    """A folder of 30 grey photos and a table of two captions each, in an order of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.photos, self.stop = folder, folder / "photos", folder / "stop"
        self.hang = folder / "hang"
        self.photos.mkdir()
        self.table = folder / "shop.csv"
        self.names = [f"p{number:02}.png" for number in range(30)]
        for number, name in enumerate(self.names):
            Image.new("RGB", (8, 8), (number * 5, 0, 0)).save(self.photos / name)
        self.write([(name, f"{name} {k}") for k in range(2) for name in self.names])
        self.encoder = self.own("own.py", 1)

    def write(self, rows: list[tuple[str, str]]) -> None:
        with self.table.open("w", newline="") as file:
            csv.writer(file).writerows([("sku", "photo", "title"), *((n, *row) for n, row in enumerate(rows))])

    def own(self, name: str, version: int) -> str:
        code = OWN.replace("VERSION", str(version))
        code = code.replace("STOP_FILE", repr(str(self.stop))).replace("HANG_FILE", repr(str(self.hang)))
        (self.folder / name).write_text(code)
        return f"python:{self.folder / name}:Means"

    def make(self, out: str = "data", display: Watched | None = None, **options: object) -> Made:
        source = read_pairs(self.photos, self.table)
        chosen = Options(**{"encoder": self.encoder, "batch": 4, "workers": 2, **options})  # type: ignore[arg-type]
        return make_features(source, self.folder / out, chosen, display or Watched())
