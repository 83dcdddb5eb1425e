"""A token bucket for each client: how often it may ask."""

import time
from collections import OrderedDict
from collections.abc import Callable

from in2r.serve.limits import BURST_SECONDS, CLIENTS


class Buckets:
    """What each client has left; a bucket fills at the rate, up to what comes in `BURST_SECONDS`.

    Args:
        rate: requests a second, above 0.
        clock: seconds, as `time.monotonic`.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._most = max(1.0, rate * BURST_SECONDS)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """Take one request from a client's bucket.

        Returns:
            0 where it may go on; else the seconds until it may, and nothing is taken.
        """
        now = self._clock()
        left, before = self._left.pop(client, (self._most, now))
        left = min(self._most, left + (now - before) * self._rate)
        missing = max(0.0, 1 - left)
        self._left[client] = (left if missing else left - 1, now)
        if len(self._left) > CLIENTS:
            self._left.popitem(last=False)
        return missing / self._rate
