"""Every random draw of a run is a pure function of the seed and of the names of its purpose.

A generator is derived from (seed, purpose, epoch, step, ...), never carried along: a new consumer cannot shift
another one's draws, and an interrupted run needs no generator state to be resumed bit-identically.
"""

import hashlib

import numpy as np
import torch


def derive(seed: int, *names: str | int) -> int:
    """Return a child seed in [0, 2**63) that depends on the seed and on every name, in order."""
    text = "\x1f".join([str(seed), *map(str, names)]).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


def torch_generator(seed: int, *names: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    """Return a fresh torch generator for one purpose, on the given device."""
    return torch.Generator(device=device).manual_seed(derive(seed, *names))


def numpy_generator(seed: int, *names: str | int) -> np.random.Generator:
    """Return a fresh NumPy generator for one purpose."""
    return np.random.default_rng(derive(seed, *names))
