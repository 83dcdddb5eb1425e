"""Measure searches among made vectors: this package's kinds of index, FAISS's flat one, and a plain NumPy product.

    python benchmarks/search.py 10000 100000
    python benchmarks/search.py 10000 100000 --postgres postgresql://me@host/db
    python benchmarks/search.py 1000000 --postgres postgresql://me@host/db --ways exact ivf "pgvector exact"

Items are unit vectors of 512 numbers that lie near a space of 64 directions, as embeddings of images do; a query is an
item with noise. Every query is asked of each way in turn, alone, on one thread. Memory is that of a process of its own
on Linux: private, and mapped from files. With a server of PostgreSQL on this machine, pgvector is measured as well
(search_postgres.py). 10⁶ vectors need 8 GB of memory and, without the ways that build hnsw, half an hour. Figures go to
benchmarks/results/search.json; docs/search.md shows them.
"""

import argparse
import json
import math
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from search_postgres import SERVED, Server

from in2r.files import read_json, write_json
from in2r.search.approximate import Approximate, build_approximate, require_faiss
from in2r.search.nearest import exact_scores, nearest_candidates

RESULTS = Path(__file__).parent / "results" / "search.json"
DIM, SHARED = 512, 64
NOISE = 0.5
"""of a query: cosine with its own item 0.9"""
OWN = 0.3
"""length of what lies outside the shared directions, in that of what lies within"""
QUERIES = 200
AT = 10
BLOCK = 10_000
WAYS = ("exact", "plain NumPy", "FAISS flat", "hnsw", "ivf")

Search = Callable[[Any], Any]


def make(count: int, seed: int = 0) -> tuple[Any, Any]:
    """Return items (count, 512) and queries (200, 512), float32 of unit norm."""
    draws = np.random.default_rng(seed)
    way = draws.standard_normal((SHARED, DIM), dtype=np.float32) / math.sqrt(DIM)
    items = draws.standard_normal((count, SHARED), dtype=np.float32) @ way
    for start in range(0, count, BLOCK):
        some = items[start : start + BLOCK]
        some += OWN * math.sqrt(SHARED / DIM) * draws.standard_normal(some.shape, dtype=np.float32)
    chosen = items[draws.choice(count, QUERIES, replace=False)]
    queries = chosen + NOISE * draws.standard_normal((QUERIES, SHARED), dtype=np.float32) @ way
    return unit(items), unit(queries)


def unit(values: Any) -> Any:
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    return values


def nearest(items: Any, queries: Any) -> list[set[int]]:
    """Return the rows of the 10 nearest items of each query, by products in float64."""
    wide = queries.astype(np.float64)
    best, rows = np.full((len(queries), AT), -np.inf), np.zeros((len(queries), AT), np.int64)
    for start in range(0, len(items), BLOCK):
        some = items[start : start + BLOCK].astype(np.float64)
        scores = np.concatenate([best, wide @ some.T], axis=1)
        numbers = np.concatenate(
            [rows, np.broadcast_to(np.arange(start, start + len(some)), (len(wide), len(some)))], 1
        )
        chosen = np.argpartition(scores, -AT, axis=1)[:, -AT:]
        best, rows = np.take_along_axis(scores, chosen, 1), np.take_along_axis(numbers, chosen, 1)
    return [set(line) for line in rows.tolist()]


def build(way: str, folder: Path, server: Server | None) -> float:
    """Write what a way reads; return the CPU time in seconds, of a database the server's."""
    vectors, start = np.load(folder / "vectors.npy", mmap_mode="r"), time.process_time()
    if way in ("hnsw", "ivf"):
        build_approximate(way, vectors, folder / way)  # type: ignore[arg-type]
    if server is not None and way in SERVED:
        return server.build(way, vectors)
    if way == "FAISS flat":
        faiss = require_faiss()
        index = faiss.IndexFlatIP(DIM)
        index.add(np.asarray(vectors))
        faiss.write_index(index, str(folder / way))
    return time.process_time() - start


def opened(way: str, folder: Path, server: Server | None = None) -> Search:
    """Return a function: a query (512,) → its 10 nearest rows."""
    if server is not None and way in SERVED:
        return server.opened(way, AT)
    vectors = np.asarray(np.load(folder / "vectors.npy", mmap_mode="r"))
    if way == "plain NumPy":
        return lambda query: plain(vectors @ query)
    if way == "FAISS flat":
        index = require_faiss().read_index(str(folder / way))
        return lambda query: index.search(query[None], AT)[1][0]
    if way == "exact":
        return lambda query: best(vectors, query, next(nearest_candidates(vectors, query[None], AT)))
    approximate = Approximate(way, folder / way)  # type: ignore[arg-type]
    return lambda query: best(vectors, query, approximate.candidates(query))


def plain(scores: Any) -> Any:
    found = np.argpartition(scores, -AT)[-AT:]
    return found[np.argsort(-scores[found])]


def best(vectors: Any, query: Any, rows: Any) -> Any:
    return rows[np.argsort(-exact_scores(vectors, query, rows), kind="stable")[:AT]]


def measure(count: int, ways: tuple[str, ...], url: str | None) -> dict[str, Any]:
    """Return the figures of each way."""
    server = None if url is None else Server(url)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        items, queries = make(count)
        np.save(folder / "vectors.npy", items)
        np.save(folder / "queries.npy", queries)
        truth = nearest(items, queries)
        del items
        figures: dict[str, Any] = {way: {"build_s": round(build(way, folder, server), 2)} for way in ways}
        searches = {way: opened(way, folder, server) for way in ways}
        wall: dict[str, list[float]] = {way: [] for way in ways}
        busy: dict[str, list[float]] = {way: [] for way in ways}
        found = dict.fromkeys(ways, 0)
        for number, query in enumerate(queries):
            for way in ways[number % len(ways) :] + ways[: number % len(ways)]:
                start, begun = time.perf_counter(), cpu(server)
                rows = searches[way](query)
                busy[way].append(cpu(server) - begun)
                wall[way].append(time.perf_counter() - start)
                found[way] += len(truth[number] & set(rows.tolist()))
        for way in ways:
            figures[way] |= {
                "recall_at_10": round(found[way] / (QUERIES * AT), 4),
                "p50_ms": round(1e3 * float(np.percentile(wall[way], 50)), 2),
                "p95_ms": round(1e3 * float(np.percentile(wall[way], 95)), 2),
                "cpu_p50_ms": round(1e3 * float(np.percentile(busy[way], 50)), 2),
                "file_mib": round(size(way, folder, server) / 2**20, 1),
                **memory(way, folder, url),
            }
        if server is not None:
            server.close(ways)
        return figures


def cpu(server: Server | None) -> float:
    """Return the CPU time in seconds of this process, and of the database's that answers it."""
    return time.process_time() + (0 if server is None else server.cpu())


def size(way: str, folder: Path, server: Server | None) -> int:
    """Return the bytes of what a way has on the disk: beside the vectors, or a table with them."""
    if server is not None and way in SERVED:
        return server.size(way)
    return (folder / way).stat().st_size if (folder / way).is_file() else 0


def memory(way: str, folder: Path, url: str | None) -> dict[str, float]:
    """Return what searches add to the memory of a process of their own, in MiB."""
    named = [] if url is None else ["--postgres", url]
    done = subprocess.run(
        [sys.executable, __file__, "--memory", way, str(folder), *named], capture_output=True, text=True, check=True
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def own_memory(way: str, folder: Path, url: str | None) -> dict[str, float]:
    require_faiss()
    server = None if url is None or way not in SERVED else Server(url)
    queries, before = np.load(folder / "queries.npy"), resident()
    search = opened(way, folder, server)
    for query in queries[:50]:
        search(query)
    return {key: round((value - before[key]) / 1024, 1) for key, value in resident().items()}


def resident() -> dict[str, int]:
    """Return the resident memory of this process in KiB."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {"private_mib": int(lines["RssAnon"].split()[0]), "mapped_mib": int(lines["RssFile"].split()[0])}


COLUMNS = {
    "recall_at_10": "recall@10",
    "p50_ms": "p50, ms",
    "p95_ms": "p95, ms",
    "cpu_p50_ms": "CPU p50, ms",
    "build_s": "build, CPU s",
    "file_mib": "own file, MiB",
    "private_mib": "memory, MiB",
    "mapped_mib": "mapped, MiB",
}
"""figure → heading in docs/search.md"""


def table(results: dict[str, Any]) -> str:
    """Return the figures as docs/search.md shows them."""
    lines = [f"| vectors | way | {' | '.join(COLUMNS.values())} |", "| --- " * (2 + len(COLUMNS)) + "|"]
    for size, measured in results.items():
        for way, figures in measured["ways"].items():
            lines.append(f"| {int(size):,} | {way} | {' | '.join(f'{figures[name]:g}' for name in COLUMNS)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", type=int, nargs="*", help="numbers of vectors")
    parser.add_argument("--postgres", metavar="URL", help="a database with pgvector, on this machine")
    parser.add_argument("--ways", nargs="+", choices=WAYS + SERVED, metavar="WAY", help=", ".join(WAYS + SERVED))
    parser.add_argument("--memory", nargs=2, metavar=("WAY", "FOLDER"), help="what a run asks of a process of its own")
    args = parser.parse_args()
    if args.memory:
        print(json.dumps(own_memory(args.memory[0], Path(args.memory[1]), args.postgres)))
        return
    ways = tuple(args.ways or (WAYS if args.postgres is None else WAYS + SERVED))
    if args.postgres is None and set(ways) & set(SERVED):
        parser.error("pgvector needs --postgres URL")
    require_faiss().omp_set_num_threads(1)
    versions = {name: version(name) for name in ("numpy", "faiss-cpu")} | {"python": platform.python_version()}
    if args.postgres is not None:
        versions |= Server(args.postgres).versions()
    for count in args.sizes:
        results = read_json(RESULTS) if RESULTS.is_file() else {}
        write_json(
            RESULTS, {**results, str(count): {"versions": versions, "ways": measure(count, ways, args.postgres)}}
        )
        print(table(read_json(RESULTS)))


if __name__ == "__main__":
    main()
