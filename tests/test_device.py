"""In which precision a device computes, and what a process keeps of the memory it frees."""

import subprocess
import sys

import pytest
import torch

from in2r.device import resolve_precision
from in2r.errors import InputError

COUNT = """
import resource, torch
from in2r.device import hold_freed_memory

def work():
    kept = [torch.ones(megabytes * 2**18) for megabytes in (40, 70, 33, 90)]
    del kept[1]
    kept.append(torch.ones(50 * 2**18))

if {held}:
    hold_freed_memory()
for _ in range(3):
    work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc is asked")
def test_large_blocks_are_taken_again_without_a_fault_for_each_page() -> None:
    counts = []
    for held in (True, False):
        command = [sys.executable, "-c", COUNT.format(held=held)]
        counts.append(int(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    if counts[1] < 1000:
        pytest.skip("this C library keeps large blocks anyway")
    assert counts[0] < counts[1] / 5


def test_precision_is_float32_unless_the_device_gains_by_less() -> None:
    cpu = torch.device("cpu")
    assert resolve_precision("auto", cpu) is None
    assert resolve_precision("float32", torch.device("cuda")) is None
    assert resolve_precision("bf16", cpu) is torch.bfloat16
    assert resolve_precision("auto", torch.device("mps")) is None
    with pytest.raises(InputError, match=r"`train.precision` \(bf16\) is for cuda and cpu"):
        resolve_precision("bf16", torch.device("mps"))
