"""`in2r serve` as a process of its own, and requests to it."""

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPMessage
from pathlib import Path
from typing import Any

PATIENCE = 60
"""seconds to wait for any one thing"""


@dataclass
class Served:
    """A server that runs; `address` is without a slash at its end."""

    process: "subprocess.Popen[str]"
    address: str
    said: list[str]
    log: Path

    @property
    def token(self) -> str:
        """What --make-token has made."""
        return self.said[-1].rpartition("#token=")[2]

    @property
    def shown(self) -> dict[str, str]:
        """The header that shows the token."""
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def ask(self, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any, HTTPMessage]:
        """Return status, content (JSON as values), headers."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self.address + path, body, named)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                return response.status, content(response), response.headers
        except urllib.error.HTTPError as error:
            with error:
                return error.code, content(error), error.headers

    def end(self) -> int:
        """End it by SIGTERM; return its status."""
        self.process.terminate()
        return self.ended()

    def ended(self) -> int:
        """Wait until it has ended; return its status."""
        status = self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status


def content(response: Any) -> Any:
    read = response.read()
    return json.loads(read) if response.headers.get_content_type() == "application/json" else read


def start(log: Path, *words: object) -> Served:
    """Start `in2r serve` at a free port, and wait until it says where it is."""
    command = [sys.executable, "-m", "in2r.cli.main", "serve", *map(str, words), "--port", "0", "--device", "cpu"]
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    said = []
    while line := process.stdout.readline():
        said.append(line.rstrip("\n"))
        if found := re.match(r"open (http://[^/\s]+)", line):
            return Served(process, found[1], said, log)
    process.wait(PATIENCE)
    raise AssertionError(log.read_text(encoding="utf-8"))
