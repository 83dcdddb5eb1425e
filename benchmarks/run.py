"""Time one training step and the ranks of an evaluation against a plain version, in turns: `make bench`.

Writes a JSON record and prints a table. Random data of the chosen size; --size paper takes minutes and about 4 GB.
"""

import argparse
import json
import multiprocessing
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from os import cpu_count
from pathlib import Path
from typing import Any

import numpy as np
import plain
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.functional import normalize

from in2r.build import Inputs, ModelConfig, build_encoder
from in2r.data.features import Features
from in2r.data.vocabulary import SPECIALS, Vocabulary
from in2r.engine.run import versions
from in2r.engine.training_data import TrainingData
from in2r.methods import Batch, Peer
from in2r.methods.in2r import In2r, In2rConfig
from in2r.metrics import ranks_from_embeddings
from in2r.seeds import numpy_generator, torch_generator

RESULTS = Path(__file__).parent / "results"
CAPTIONS = 5  # per image
DROP = 0.2  # of regions and of words
Call = Callable[[], Any]


@dataclass(frozen=True)
class Size:
    """What is computed: embedding, region features, pairs in a batch, memory entries, training images."""

    dim: int
    regions: int
    region_dim: int
    batch: int
    memory: int
    images: int
    vocabulary: int
    evaluations: tuple[int, ...]


SIZES = {
    "paper": Size(1024, 36, 2048, 128, 65536, 600, 8481, (1000, 5000)),
    "demo": Size(128, 10, 108, 128, 1800, 800, 120, (200,)),
    "toy": Size(16, 4, 8, 8, 32, 20, 30, (20,)),
}


class Steps:
    """The same network twice, ours and plain, with optimisers, batches and a full memory (its own, also queried)."""

    def __init__(self, size: Size) -> None:
        rng = numpy_generator(0, "benchmark")
        pairs = size.images * CAPTIONS
        features = rng.standard_normal((size.images, size.regions, size.region_dim), np.float32)
        features = features.astype(np.float16)
        words = [f"w{number}" for number in range(size.vocabulary - len(SPECIALS) - 1)]
        captions = [" ".join(rng.choice(words, rng.integers(10, 14))) for _ in range(pairs)]
        vocabulary = Vocabulary([*SPECIALS, *words])
        owner = np.repeat(np.arange(size.images), CAPTIONS)
        self.size, self.pairs = size, pairs
        self.data = TrainingData(
            Features(features, np.arange(size.images)),
            vocabulary.encode(captions),
            torch.as_tensor(owner),
            torch.arange(pairs),
            torch.device("cpu"),
            DROP,
            DROP,
            len(vocabulary),
            vocabulary.mask_id,
        )
        self.loader = plain.Loader(features, captions, owner, vocabulary)
        self.method = In2r(In2rConfig(memory_size=size.memory), pairs)
        self.elite = torch.as_tensor(rng.random(pairs) < 0.9)
        self.ours, self.plain = self._networks(len(vocabulary))
        self.optimizers = {net: torch.optim.Adam(net.parameters(), lr=5e-4) for net in (self.ours, self.plain)}

    def _networks(self, words: int) -> tuple[Peer, Peer]:
        torch.manual_seed(0)
        inputs = Inputs(self.size.region_dim, "words", words)
        encoder = build_encoder(ModelConfig(dim=self.size.dim), inputs)
        refiners, memory = self.method.parts(self.size.dim)
        stored = torch.arange(self.size.memory) % self.pairs
        keys = [normalize(torch.randn(self.size.memory, self.size.dim)) for _ in range(2)]
        memory.push(*keys, stored, stored // CAPTIONS)
        same = plain.Encoder(deepcopy(encoder.image), deepcopy(encoder.text))
        ring = plain.Memory(*keys, stored, stored // CAPTIONS)
        return Peer(encoder, refiners, memory), Peer(same, deepcopy(refiners), ring)

    def step(self, net: Peer, number: int) -> None:
        """One whole training step: load a clean and a noisy batch, losses, backward, clip, Adam, push."""
        drawn = torch.randperm(self.pairs, generator=torch_generator(0, "pairs", number))
        clean, noisy = drawn[: self.size.batch], drawn[-self.size.batch :]
        self.update(net, *self.load(net, clean, noisy, number))

    def load(self, net: Peer, clean: Tensor, noisy: Tensor, number: int) -> tuple[Batch, Batch]:
        if net is self.ours:
            generator = torch_generator(0, "augmentation", number)
            return self.data.batch(clean, generator, self.elite), self.data.batch(noisy, generator)
        rng = numpy_generator(0, "augmentation", number)
        batch = self.loader.batch
        return batch(clean, rng, DROP, self.elite), batch(noisy, rng, DROP, None)

    def update(self, net: Peer, clean: Batch, noisy: Batch) -> None:
        done = self.method.partition_step(net, net, clean, noisy)
        optimizer = self.optimizers[net]
        optimizer.zero_grad(set_to_none=True)
        done.losses["total"].backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 2.0)
        optimizer.step()
        net.memory.push(*done.keep)

    def disagreement(self) -> dict[str, float]:
        """Relative difference of loss and gradients, without dropout and augmentation, BatchNorm frozen.

        (In training the plain version's padded rows take part in its BatchNorm, as in the field's code.)
        """
        count = min(16, self.size.images // 2)  # one pair an image: equal images would tie
        clean, noisy = torch.arange(0, 2 * count * CAPTIONS, CAPTIONS).chunk(2)
        rng = numpy_generator(0)
        load = {self.ours: self.data.batch, self.plain: lambda p, _, e: self.loader.batch(p, rng, 0.0, e)}
        losses, gradients = [], []
        for net in (self.ours, self.plain):
            net.eval()
            batches = load[net](clean, None, self.elite), load[net](noisy, None, None)
            loss = self.method.partition_step(net, net, *batches).losses["total"]
            losses.append(float(loss.detach()))
            parameters = [p for p in net.parameters() if p.requires_grad]
            gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]))
            net.train()
        return {
            "loss_difference": abs(losses[0] - losses[1]) / abs(losses[1]),
            "gradient_difference": float((gradients[0] - gradients[1]).norm() / gradients[1].norm()),
        }


def measure_step(size: Size, repeat: int) -> list[dict[str, Any]]:
    steps = Steps(size)
    same = steps.disagreement()
    first, last = torch.arange(2 * size.batch).chunk(2)

    def step(net: Peer) -> Call:
        steps.step(net, 0)  # the first one allocates the optimiser's state
        numbers = iter(range(1, repeat + 1))
        return lambda: steps.step(net, next(numbers))

    def load(net: Peer) -> Call:
        return lambda: steps.load(net, first, last, 0)

    return [
        {"what": "training step", **in_turns(step(steps.ours), step(steps.plain), repeat), **same},
        {"what": "its two batches", **in_turns(load(steps.ours), load(steps.plain), repeat)},
    ]


def embeddings(images: int, dim: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Unit-norm images (N, D), and captions (N · 5, D) that scatter around their image."""
    generator = torch_generator(0, "embeddings")
    v = normalize(torch.randn(images, dim, generator=generator, dtype=dtype))
    u = torch.randn(images * CAPTIONS, dim, generator=generator, dtype=dtype).mul_(0.5)  # own cosine: 2 sigma of others
    return v, normalize(u.view(images, CAPTIONS, dim).add_(v[:, None]).flatten(0, 1))


def measure_evaluation(images: int, dim: int, repeat: int, peak: dict[str, float]) -> dict[str, Any]:
    owner = np.repeat(np.arange(images), CAPTIONS)
    # rounding decides between the nearest of millions of float32 similarities: exact equality needs more digits
    v, u = embeddings(images, dim, torch.float64)
    ours = ranks_from_embeddings(v, u, owner, tolerance=0.0)
    other = plain.ranks(np.repeat(v.numpy(), CAPTIONS, axis=0), u.numpy(), CAPTIONS)
    equal = all(np.array_equal(a, b) for a, b in zip(ours, other, strict=True))
    v, u = v.float(), u.float()
    repeated = np.repeat(v.numpy(), CAPTIONS, axis=0)
    times = in_turns(
        lambda: ranks_from_embeddings(v, u, owner),
        lambda: plain.ranks(repeated, u.numpy(), CAPTIONS),
        repeat,
    )
    what = f"ranks, {images:,} × {images * CAPTIONS:,}"
    return {"what": what, **times, **peak, "ranks_equal": equal, "mean_rank_t2i": float(ours[1].mean()) + 1}


def peak_memory(images: int, dim: int, threads: int) -> dict[str, float]:
    """Peak resident memory of a fresh process: with the embeddings made, and after our ranks of them."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_peak_memory, images, dim, threads).result()


def _peak_memory(images: int, dim: int, threads: int) -> dict[str, float]:
    torch.set_num_threads(threads)
    v, u = embeddings(images, dim)
    before = _peak_mb()
    ranks_from_embeddings(v, u, np.repeat(np.arange(images), CAPTIONS))
    return {"peak_mb_before": before, "peak_mb": _peak_mb()}


def _peak_mb() -> float:
    unit = 1 if sys.platform == "darwin" else 1024
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, 1)


def in_turns(ours: Call, other: Call, repeat: int) -> dict[str, Any]:
    """Time both calls in turns, both called before: wall clock, and CPU seconds of the process."""
    rounds = [(_seconds(ours), _seconds(other)) for _ in range(repeat)]
    result: dict[str, Any] = {}
    for clock, name in enumerate(("seconds", "cpu_seconds")):
        mine, theirs = ([side[clock] for side in sides] for sides in zip(*rounds, strict=True))
        paired = [b / a for a, b in zip(mine, theirs, strict=True)]
        result[name] = {
            "ours": mine,
            "plain": theirs,
            "ours_median": statistics.median(mine),
            "plain_median": statistics.median(theirs),
            "ratio": statistics.median(theirs) / statistics.median(mine),
            "ratio_min": min(paired),
            "ratio_max": max(paired),
        }
    return result


def _seconds(call: Call) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


def machine() -> dict[str, Any]:
    """The processor's model name and its cores."""
    name = platform.processor()
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        name = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    elif Path("/proc/cpuinfo").is_file():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    return {"cpu": name, "cores": cpu_count()}


def table(record: dict[str, Any]) -> Table:
    title = f"{record['size']} size, {record['threads']} thread(s), medians of {record['repeat']}"
    shown = Table(title=title)
    for heading in ("", "ours, s", "plain, s", "plain / ours", "CPU time", "peak MB"):
        shown.add_column(heading, justify="right" if heading else "left")
    for row in record["rows"]:
        wall, cpu = row["seconds"], row["cpu_seconds"]
        ratios = (f"{c['ratio']:.2f} ({c['ratio_min']:.2f}-{c['ratio_max']:.2f})" for c in (wall, cpu))
        times = (f"{wall['ours_median']:.3g}", f"{wall['plain_median']:.3g}")
        shown.add_row(row["what"], *times, *ratios, f"{row['peak_mb']:.0f}" if "peak_mb" in row else "")
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="demo")
    parser.add_argument("--only", choices=["step", "evaluation"], help="measure one of the two")
    parser.add_argument("--repeat", type=int, default=3, help="timed turns")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--out", type=Path, help="JSON record (default: benchmarks/results/bench_SIZE[_ONLY].json)")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    size = SIZES[args.size]
    wanted = [] if args.only == "step" else size.evaluations
    # first of all: a child's peak begins at what its parent holds when it starts it
    peaks = [peak_memory(images, size.dim, args.threads) for images in wanted]
    rows = [] if args.only == "evaluation" else measure_step(size, args.repeat)
    rows += [
        measure_evaluation(images, size.dim, args.repeat, peak) for images, peak in zip(wanted, peaks, strict=True)
    ]
    record = {
        "size": args.size,
        "settings": asdict(size),
        "threads": args.threads,
        "repeat": args.repeat,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "rows": rows,
    }
    out = args.out or RESULTS / ("_".join(filter(None, ("bench", args.size, args.only))) + ".json")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1) + "\n")
    Console(width=110).print(table(record))


if __name__ == "__main__":
    main()
