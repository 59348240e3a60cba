# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium for tests, driven over its debugging pipe (Chrome DevTools Protocol: JSON
messages that end with a NUL byte, commands into descriptor 3, answers from descriptor 4)."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common.places import ROOT

PROGRAMS = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
FLAGS = (
    "--headless",
    "--no-sandbox",  # tests may run as root, which has no sandbox
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
AXE = ROOT / ".venv/share/downpour-test/axe.min.js"  # ansible/roles/testtools
ANSWER_S = 120.0  # a busy machine may be slow; normally it takes milliseconds


class BrowserError(Exception):
    """The browser ended, did not answer, or refused a command."""


def program() -> str | None:
    """Return the first browser of `PROGRAMS` that works; Ubuntu's are snaps, which may not
    work."""
    for name in PROGRAMS:
        path = shutil.which(name)
        if path is None:
            continue
        done = subprocess.run([path, "--version"], capture_output=True, timeout=60, check=False)
        if done.returncode == 0:
            return path
    return None


def axe_source() -> str | None:
    """Return the text of axe-core, which finds violations of accessibility; None if it is not
    installed."""
    return AXE.read_text(encoding="utf-8") if AXE.is_file() else None


class Browser:
    """One page. `events` are all messages that are no answers, in their order."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._buffer = b""
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []

    def attach(self) -> None:
        """Open the page, and listen to its console and log from now on."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data) :]
        while True:
            answer = self._receive()
            if answer.get("id") != number:
                self.events.append(answer)
            elif "error" in answer:
                raise BrowserError(f"{method}: {answer['error']}")
            else:
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + ANSWER_S
        while b"\0" not in self._buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                raise BrowserError(f"no answer within {ANSWER_S:g} s")
            data = os.read(self._answers, 1 << 20)
            if not data:
                raise BrowserError("the browser ended")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def open(self, url: str) -> None:
        """Go to `url` and wait until it and all its images are loaded."""
        self.events.clear()
        error = self.call("Page.navigate", url=url).get("errorText")
        if error:
            raise BrowserError(f"{url}: {error}")
        end = time.monotonic() + ANSWER_S
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            if time.monotonic() > end:
                raise BrowserError(f"{url}: not loaded within {ANSWER_S:g} s")
            self.events.append(self._receive())

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page; wait for a promise."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise BrowserError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def resize(self, width: int, height: int = 900) -> None:
        """Set the window to that many CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip

    def media(
        self, scheme: str = "light", medium: str = "screen", *, forced_colours: bool = False
    ) -> None:
        """Set the media. `scheme`: light or dark; `medium`: screen or print."""
        features = {
            "prefers-color-scheme": scheme,
            "forced-colors": "active" if forced_colours else "none",
        }
        self.call(
            "Emulation.setEmulatedMedia",
            media=medium,
            features=[{"name": name, "value": value} for name, value in features.items()],
        )

    def press(self, key: str, code: int, *, shift: bool = False) -> None:
        """Press and release a key. `code`: its virtual key code."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        event = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        typed = {"text": text} if text else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **event, **typed)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def axe(self, source: str) -> list[str]:
        """Return violations of accessibility that axe-core (its `source`) finds: rule, element,
        remedy."""
        self.evaluate(f"{source}\n;0")
        found = self.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{rule['id']}: {node['html'][:120]}: {node['failureSummary'][:200]}"
            for rule in found["violations"]
            for node in rule["nodes"]
        ]

    def screenshot(self, *, whole: bool = True, height: int = 0) -> bytes:
        """Return a PNG of the whole page, of its first `height` pixels, or of what the window
        shows."""
        parameters: dict[str, Any] = {"format": "png"}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "scale": 1}
            clip["height"] = min(size["height"], height or 16_000)
            parameters |= {"captureBeyondViewport": True, "clip": clip}
        return base64.b64decode(self.call("Page.captureScreenshot", **parameters)["data"])

    def pdf(self) -> bytes:
        """Return the page as it would be printed."""
        return base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=True)["data"])

    def complaints(self) -> list[str]:
        """Return errors and warnings of the console and the log, and what the page requested from a
        network."""
        found = []
        for event in self.events:
            parameters = event.get("params", {})
            match event.get("method"):
                case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown":
                    found.append(json.dumps(parameters)[:300])
                case "Log.entryAdded":
                    found.append(parameters["entry"]["text"])
                case "Network.requestWillBeSent":
                    url = parameters["request"]["url"]
                    if not url.startswith(("file:", "data:", "about:")):
                        found.append(f"request to {url}")
        return found


@contextmanager
def browser(path: str, profile: Path) -> Iterator[Browser]:
    """Start `path` with an empty profile directory, and end it whatever happens."""
    to_child, commands = os.pipe()
    answers, from_child = os.pipe()
    # dup2 in the child: the pipe's ends may be the descriptors 3 and 4 of the other direction.
    script = 'exec "$@" 3<&%d 4>&%d' % (to_child, from_child)  # noqa: UP031
    with (profile.parent / "browser.log").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", script, "bash", path, *FLAGS, f"--user-data-dir={profile}"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(to_child, from_child),
            env={**os.environ, "HOME": str(profile.parent)},
        )
    os.close(to_child)
    os.close(from_child)
    try:
        page = Browser(commands, answers)
        page.attach()
        yield page
    finally:
        os.close(commands)
        os.close(answers)
        try:
            process.wait(timeout=10)  # it ends when its pipe is closed
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
