"""A headless Chromium, spoken to by the DevTools protocol over two pipes: no port, no package."""

import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-extensions", "--remote-debugging-pipe",
)  # fmt: skip
PATIENCE = 30
"""seconds to wait for any one thing"""


def find_browser() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page of a browser of its own; `close` ends it."""

    def __init__(self, profile: Path) -> None:
        here_read, there_write = os.pipe()
        there_read, here_write = os.pipe()
        command = [str(find_browser()), *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self.process = subprocess.Popen(  # Chromium reads from descriptor 3 and writes to 4
            ["bash", "-c", f'exec "$@" 3<&{there_read} 4>&{there_write}', "bash", *command],
            pass_fds=(there_read, there_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(there_read)
        os.close(there_write)
        self._read, self._write = here_read, here_write
        self._buffer, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        pages = self.send("Target.getTargets")["targetInfos"]
        target = next(page["targetId"] for page in pages if page["type"] == "page")
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "DOM", "CSS"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._read)
        os.close(self._write)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command; return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session and not method.startswith(("Target.", "Browser.")):
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, (method, answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            assert select.select([self._read], [], [], PATIENCE)[0], "the browser does not answer"
            got = os.read(self._read, 1 << 20)
            assert got, "the browser has ended"
            self._buffer += got
        message, self._buffer = self._buffer.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(message)
        return answer

    def open(self, address: str) -> None:
        """Go to an address and wait until it is loaded."""
        self.events.clear()
        self.send("Page.navigate", url=address)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    def reload(self) -> None:
        """Load the page again and wait until it is loaded: meanwhile there is nothing that could be asked."""
        self.events.clear()
        self.send("Page.reload")
        self.wait_for_event("Page.loadEventFired")

    def value(self, script: str) -> Any:
        """Return what an expression of JavaScript gives, as plain values."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, script: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + PATIENCE
        while not self.value(script):
            assert time.monotonic() < end, script
            time.sleep(0.02)

    def open_without_scripts(self, address: str) -> None:
        """Go to an address where scripts are off, and `value` with them, and wait until it is loaded."""
        self.events.clear()
        self.send("Page.navigate", url=address)
        self.wait_for_event("Page.loadEventFired")

    def wait_for_event(self, method: str, **params: Any) -> None:
        """Wait until an event with certain parameters has come."""
        while not any(event["method"] == method and params.items() <= event["params"].items() for event in self.events):
            self.events.append(self._receive())

    def height(self, selector: str) -> float:
        """Return the height in pixels of what a selector finds first; 0 if it is not shown. Needs no scripts."""
        root = self.send("DOM.getDocument")["root"]["nodeId"]
        node = self.send("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        style = self.send("CSS.getComputedStyleForNode", nodeId=node)["computedStyle"]
        found = {each["name"]: each["value"] for each in style}
        return 0.0 if found["display"] == "none" else float(found["height"].removesuffix("px"))

    def key(self, key: str) -> None:
        """Press a key: a character, or a name such as ArrowDown."""
        text = {"text": key} if len(key) == 1 else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key)

    def click(self, selector: str) -> None:
        """Click with the mouse on what a selector finds first."""
        script = """(selector) => {
            const element = document.querySelector(selector);
            element.scrollIntoView({block: "center"});
            const box = element.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2];
        }"""
        place = self.value(f"({script})({json.dumps(selector)})")
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)
