"""Measure `in2r serve` under load: text queries of several clients at a time against made indexes.

    python benchmarks/serve.py 10000 100000

Images are drawn features, captions drawn words, and the model has drawn weights: two networks, vectors of 512 numbers,
as costly as trained ones. The server is a process of its own, as `in2r serve` starts it, with one thread for each
product; clients keep their connections. Every client asks other texts. Figures go to benchmarks/results/serve.json;
docs/serve.md shows them.
"""

import argparse
import http.client
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import torch

from in2r.data.text.vocabulary import Vocabulary
from in2r.files import read_json, write_json
from in2r.models.build import Inputs, ModelConfig, build_backbone
from in2r.models.folder import save_model
from in2r.search.build import DataOptions, build_index

RESULTS = Path(__file__).parent / "results" / "serve.json"
FEATURES, DIM = 64, 256
"""numbers of an image's feature, and of a network's vector: 512 of both networks"""
WORDS, LENGTH = 2000, 10
"""different words, and words of a caption and of a query"""
CLIENTS = (1, 4, 16)
REQUESTS = 200
"""of all clients together, for each number of clients"""
WARM = 20
"""requests before that, which are not counted"""
K = 24
"""items in an answer, as the page asks for"""


def made_index(folder: Path, count: int) -> Path:
    """Write data, a model and an index of so many images."""
    draws = np.random.default_rng(0)
    data = folder / "data"
    data.mkdir()
    np.save(data / "images.npy", draws.standard_normal((count, 1, FEATURES)).astype(np.float16))
    captions = texts(draws, count)
    rows = [f"{image},{caption}" for image, caption in enumerate(captions)]
    (data / "pairs.csv").write_text("\n".join(["image,caption", *rows]) + "\n", encoding="utf-8")
    words = Vocabulary.build(captions, 1)
    config, inputs = ModelConfig(dim=DIM), Inputs(FEATURES, "words", len(words))
    torch.manual_seed(0)
    networks = {name: build_backbone(config, inputs) for name in "AB"}
    save_model(folder / "model", networks, config, inputs, words, "card", {})
    build_index(folder / "model", DataOptions(data), folder / "index", device="cpu")
    return folder / "index"


def texts(draws: np.random.Generator, count: int) -> list[str]:
    return [" ".join(f"w{word}" for word in row) for row in draws.integers(0, WORDS, (count, LENGTH)).tolist()]


class Asking:
    """One client, with a connection that it keeps.

    Args:
        port: of the server.
    """

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, text: str) -> tuple[float, bool]:
        """Return the seconds that an answer took, and whether it was one."""
        start = time.perf_counter()
        self._connection.request("GET", f"/api/search?q={quote(text)}&k={K}")
        response = self._connection.getresponse()
        found = json.loads(response.read())
        return time.perf_counter() - start, response.status == 200 and len(found["items"]) == K


def measure(count: int) -> dict[str, Any]:
    """Return the figures of each number of clients."""
    with tempfile.TemporaryDirectory() as name:
        index = made_index(Path(name), count)
        command = [sys.executable, "-m", "in2r.cli.main", "serve", str(index), "--port", "0", "--rate", "0"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with (Path(name) / "log").open("w") as log:
            server = subprocess.Popen(
                [*command, "--device", "cpu"], stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            )
        assert server.stdout is not None
        try:
            port = int(next(found[1] for line in server.stdout if (found := re.match(r"open http://.*:(\d+)", line))))
            load(port, 1, WARM, 0)
            return {str(clients): figures(server.pid, port, clients) for clients in CLIENTS}
        finally:
            server.terminate()
            server.wait()


def figures(process: int, port: int, clients: int) -> dict[str, Any]:
    start, begun = time.perf_counter(), cpu_seconds(process)
    asked = load(port, clients, REQUESTS, clients)
    took = time.perf_counter() - start
    seconds = [each for each, _ in asked]
    return {
        "p50_ms": round(1e3 * float(np.percentile(seconds, 50)), 1),
        "p95_ms": round(1e3 * float(np.percentile(seconds, 95)), 1),
        "per_second": round(len(asked) / took, 1),
        "cpu_ms": round(1e3 * (cpu_seconds(process) - begun) / len(asked), 1),
        "errors": sum(not right for _, right in asked),
    }


def load(port: int, clients: int, requests: int, seed: int) -> list[tuple[float, bool]]:
    """Ask so many texts by so many clients at a time; return the seconds of each, and whether it was answered."""
    asked = texts(np.random.default_rng([1, seed]), requests)

    def ask(own: list[str]) -> list[tuple[float, bool]]:
        client = Asking(port)
        return [client.ask(text) for text in own]

    with ThreadPoolExecutor(clients) as pool:
        parts = pool.map(ask, [asked[client::clients] for client in range(clients)])
        return [each for part in parts for each in part]


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process, on Linux."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


COLUMNS = {
    "p50_ms": "p50, ms",
    "p95_ms": "p95, ms",
    "per_second": "requests/s",
    "cpu_ms": "CPU of the server, ms a request",
    "errors": "errors",
}
"""figure → heading in docs/serve.md"""


def table(results: dict[str, Any]) -> str:
    """Return the figures as docs/serve.md shows them."""
    lines = [f"| images | clients | {' | '.join(COLUMNS.values())} |", "| --- " * (2 + len(COLUMNS)) + "|"]
    for size, measured in results.items():
        for clients, found in measured["clients"].items():
            lines.append(f"| {int(size):,} | {clients} | {' | '.join(f'{found[name]:g}' for name in COLUMNS)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", type=int, nargs="+", help="numbers of images")
    versions = {name: version(name) for name in ("numpy", "torch", "fastapi", "uvicorn")}
    versions["python"] = platform.python_version()
    for size in parser.parse_args().sizes:
        results = read_json(RESULTS) if RESULTS.is_file() else {}
        write_json(RESULTS, {**results, str(size): {"versions": versions, "clients": measure(size)}})
        print(table(read_json(RESULTS)))


if __name__ == "__main__":
    main()
