"""Measure push and search of a memory bank of 10^4 to 10^6 entries, in float32 and in float16.

    python benchmarks/scale_memory.py

128 queries and as many new entries at D = 512, K = 5, one thread; the bank is full. CPU seconds are medians of five,
memory is anonymous memory: that of the full bank, and what a search adds to it at most. Figures go to
benchmarks/results/scale_memory.json; `python benchmarks/report.py` writes them into docs/scaling.md.
"""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from scale import Meter, anonymous
from torch.nn.functional import normalize

from in2r.files import write_json
from in2r.memory import MemoryBank

RESULTS = Path(__file__).parent / "results" / "scale_memory.json"
ENTRIES, DIM, BATCH, K, TIMES = (10_000, 100_000, 1_000_000), 512, 128, 5, 5
PRECISIONS = {"float32": torch.float32, "float16": torch.float16}


def measure(entries: int, precision: str) -> dict[str, float]:
    """Fill a bank, then time a push and a search."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    meter = Meter()
    before = anonymous()
    bank = MemoryBank(entries, DIM, precision=PRECISIONS[precision])
    v, u, ids = normalize(torch.randn(BATCH, DIM)), normalize(torch.randn(BATCH, DIM)), torch.arange(BATCH)
    for start in range(0, entries, BATCH):
        bank.push(normalize(torch.randn(BATCH, DIM)), normalize(torch.randn(BATCH, DIM)), ids + start)
    held = anonymous()
    took: dict[str, list[float]] = {"push": [], "nearest": []}
    with meter.watching(), meter.part("use"):
        for _ in range(TIMES):
            started = time.process_time()
            bank.push(v, u, ids)
            pushed = time.process_time()
            bank.nearest(v, K)
            took["push"].append(pushed - started)
            took["nearest"].append(time.process_time() - pushed)
    return {
        "push_seconds": statistics.median(took["push"]),
        "nearest_seconds": statistics.median(took["nearest"]),
        "held_bytes": held - before,
        "search_bytes": int(meter.parts["use"]["peak"]) - held,
    }


def main() -> None:
    """Measure each bank in a process of its own."""
    if len(sys.argv) == 3:
        print(json.dumps(measure(int(sys.argv[1]), sys.argv[2])))
        return
    found: dict[str, dict[str, Any]] = {precision: {} for precision in PRECISIONS}
    for precision in PRECISIONS:
        for entries in ENTRIES:
            command = [sys.executable, __file__, str(entries), precision]
            said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            found[precision][str(entries)] = json.loads(said)
            print(precision, entries, said, flush=True)
    write_json(RESULTS, found)


if __name__ == "__main__":
    main()
