"""A hub on this machine: as much of its HTTP interface as huggingface_hub asks for to make, fill and read a model."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_test"


class Hub(ThreadingHTTPServer):
    """Models by name: private or not, files by commit; only who has the token may write."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.models: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def put(self, name: str, files: dict[str, bytes], private: bool = False) -> None:
        """Add a commit."""
        model = self.models.setdefault(name, {"private": private, "commits": {}, "newest": ""})
        kept = {**model["commits"].get(model["newest"], {}), **files}
        model["newest"] = hashlib.sha1(repr((sorted(kept.items()), len(model["commits"]))).encode()).hexdigest()
        model["commits"][model["newest"]] = kept


@contextmanager
def hub() -> Iterator[Hub]:
    """Serve until the block ends."""
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Answers(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._get()

    def do_GET(self) -> None:
        self._get()

    def _get(self) -> None:
        self.server.requests.append(f"{self.command} {self.path}")
        path = self.path.partition("?")[0]
        if found := re.fullmatch(r"/api/models/([\w.-]+/[\w.-]+)(?:/revision/(\w+))?", path):
            if (commit := self._commit(found[1], found[2])) is not None:
                model = self.server.models[found[1]]
                names = [{"rfilename": name} for name in model["commits"].get(commit, {})]
                self._json({"id": found[1], "sha": commit, "private": model["private"], "siblings": names})
        elif found := re.fullmatch(r"/api/models/([\w.-]+/[\w.-]+)/tree/(\w+)", path):
            if (commit := self._commit(found[1], found[2])) is not None:
                files = self.server.models[found[1]]["commits"][commit]
                self._json([{"type": "file", "path": p, "size": len(c), "oid": _oid(c)} for p, c in files.items()])
        elif found := re.fullmatch(r"/([\w.-]+/[\w.-]+)/resolve/(\w+)/(.+)", path):
            if (commit := self._commit(found[1], found[2])) is not None:
                content = self.server.models[found[1]]["commits"][commit].get(found[3])
                if content is None:
                    return self._refuse(404, "EntryNotFound")
                self._answer(200, content, {"ETag": f'"{_oid(content)}"', "X-Repo-Commit": commit})
        else:
            self._refuse(404, "RepoNotFound")
        return None

    def do_POST(self) -> None:
        self.server.requests.append(f"POST {self.path}")
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        path = self.path.partition("?")[0]
        if path == "/api/validate-yaml":
            return self._json({"errors": [], "warnings": []})
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            return self._refuse(401, "")
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            status = 409 if name in self.server.models else 200
            if status == 200:
                self.server.put(name, {}, asked.get("private") or asked.get("visibility") == "private")
            return self._json({"url": f"{self.server.address}/{name}", "id": name}, status)
        if found := re.fullmatch(r"/api/models/([\w.-]+/[\w.-]+)/preupload/main", path):
            names = [file["path"] for file in json.loads(body)["files"]]
            return self._json({"files": [{"path": p, "uploadMode": "regular", "shouldIgnore": False} for p in names]})
        if found := re.fullmatch(r"/api/models/([\w.-]+/[\w.-]+)/commit/main", path):
            lines = [json.loads(line) for line in body.splitlines()]
            files = [line["value"] for line in lines if line["key"] == "file"]
            self.server.put(found[1], {file["path"]: base64.b64decode(file["content"]) for file in files})
            commit = self.server.models[found[1]]["newest"]
            return self._json({"commitUrl": f"{self.server.address}/{found[1]}/commit/{commit}", "commitOid": commit})
        return self._refuse(404, "RepoNotFound")

    def _commit(self, name: str, revision: str | None) -> str | None:
        """Return the commit of a revision, or answer that there is none."""
        model = self.server.models.get(name)
        allowed = model is not None and (not model["private"] or self.headers["Authorization"] == f"Bearer {TOKEN}")
        if model is None or not allowed:
            self._refuse(401, "RepoNotFound")
            return None
        commit = str(model["newest"]) if revision in (None, "main") else str(revision)
        if commit not in model["commits"]:
            self._refuse(404, "RevisionNotFound")
            return None
        return commit

    def _json(self, value: Any, status: int = 200) -> None:
        self._answer(status, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, b'{"error": "refused"}', {"X-Error-Code": code, "Content-Type": "application/json"})

    def _answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _oid(content: bytes) -> str:
    """Return git's name of a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
