"""Join the processes that a launcher such as torchrun has started, and end with them: all at once, with one message."""

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch.distributed as dist

from in2r.errors import InputError
from in2r.processes import ALONE, EndedElsewhereError, Processes

LAST_WORDS = timedelta(seconds=10)
"""How long a process that ends by a mistake waits for the others to say the same one."""

LET_GO = 0.2
"""Seconds in which PyTorch's threads give back the tensors of a collective that has failed. They need the interpreter's
lock for it; the end of the process holds that lock and waits for these threads."""


def process_count() -> int:
    """Return how many processes a launcher says that it has started; 1 without one."""
    return _number("WORLD_SIZE", 1)


def is_first_process() -> bool:
    """Say whether this process writes the files of a run and shows its progress."""
    return process_count() == 1 or _number("RANK", 0) == 0


@contextmanager
def joined() -> Iterator[Processes]:
    """Join the other processes, where a launcher has started several; leave them at the end of the block.

    A mistake that all of them find is raised by the first one alone; one that a single process finds is raised there.

    Raises:
        InputError: the others cannot be reached, or one of them has ended.
        SystemExit: in a process whose end another one explains.
    """
    count = process_count()
    if count == 1:
        yield ALONE
        return
    try:
        dist.init_process_group()
        host = dist.new_group(backend="gloo")
        last_words = dist.new_group(backend="gloo", timeout=LAST_WORDS)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"{count} processes: cannot join the others ({' '.join(str(error).split())})") from None
    here = Processes(dist.get_rank(), dist.get_world_size(), _number("LOCAL_RANK", 0), host)
    if not here.first:
        logging.getLogger("in2r").setLevel(logging.ERROR)
    try:
        with _said_once(here, last_words):
            yield here
    finally:
        dist.destroy_process_group()


@contextmanager
def _said_once(here: Processes, last_words: "dist.ProcessGroup") -> Iterator[None]:
    """End a process silently where another one says why."""
    try:
        yield
    except EndedElsewhereError:
        raise SystemExit(2) from None
    except InputError as error:
        everybody = _all_end(here, last_words)
        if here.first:
            raise
        if everybody:
            raise SystemExit(2) from None
        raise InputError(f"process {here.number}: {error}") from None
    except KeyboardInterrupt:
        if here.first:
            raise
        raise SystemExit(130) from None
    except RuntimeError as error:
        if not _is_lost(error):
            raise
        time.sleep(LET_GO)
        if not here.first:
            raise SystemExit(1) from None
        raise InputError(
            f"one of {here.count} processes has ended ({' '.join(str(error).split())[:120]}); if there "
            "is a checkpoint, `in2r resume` goes on from it"
        ) from None


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    if not text.isdigit():
        raise InputError(f"environment: {name}={text}; expected a number, as torchrun sets it")
    return int(text)


def _is_lost(error: RuntimeError) -> bool:
    """Recognise what a collective raises when another process is gone; gloo's is a plain RuntimeError."""
    said = str(error)
    return isinstance(error, dist.DistError) or "gloo" in said or "Connection closed by peer" in said


def _all_end(here: Processes, last_words: "dist.ProcessGroup") -> bool:
    """Say whether all processes end by a mistake now."""
    try:
        dist.all_gather_object([None] * here.count, here.number, group=last_words)
    except RuntimeError:
        return False
    return True
