"""Work outside the event loop: a few threads, and a queue that is refused when it is long."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class BusyError(Exception):
    """Too much waits already."""


class Lane:
    """A few threads with a bounded queue; used from one event loop.

    Args:
        threads: what runs at the same time.
        waiting: what may wait beside that.
    """

    def __init__(self, threads: int, waiting: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="in2r-serve")
        self._room = threads + waiting

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `work` returns, in its turn.

        Raises:
            BusyError: at once, where the queue is full.
        """
        if self._room == 0:
            raise BusyError
        self._room -= 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, partial(work, *args, **kwargs))
        finally:
            self._room += 1

    def close(self) -> None:
        """Let what runs end, and drop what waits."""
        self._pool.shutdown(wait=True, cancel_futures=True)
