"""The end of a server, which other tests have used before: this one comes last."""

import http.client
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from serving import PATIENCE, Served


def test_requests_that_run_at_sigterm_are_answered(guarded: Served) -> None:
    paths = [f"/api/search?q=slowly+{number}&k=3" for number in range(6)]
    with ThreadPoolExecutor(len(paths)) as pool:
        asked = [pool.submit(guarded.ask, path, None, **guarded.shown) for path in paths]
        while waiting(guarded) < len(paths):
            time.sleep(0.01)
        assert guarded.ask("/", **guarded.shown)[0] == 200  # comes after all others, which the server has read by now
        guarded.process.terminate()
        answers = [future.result() for future in asked]
    assert [(status, len(body["items"])) for status, body, _ in answers] == [(200, 3)] * len(paths)
    assert guarded.ended() == 0
    assert "Traceback" not in guarded.log.read_text(encoding="utf-8")
    with pytest.raises(ConnectionRefusedError):
        http.client.HTTPConnection("127.0.0.1", guarded.port, timeout=PATIENCE).connect()


def waiting(served: Served) -> int:
    """Return how many connections the server has accepted, as the system lists its open sockets."""
    folder = Path(f"/proc/{served.process.pid}/fd")
    if not folder.is_dir():  # no Linux
        time.sleep(1)
        return 10**6
    sockets = sum(os.readlink(entry).startswith("socket:") for entry in folder.iterdir() if os.path.lexists(entry))
    return sockets - 3  # the one that listens, and the event loop's own pair
