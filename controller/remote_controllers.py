# SPDX-License-Identifier: Apache-2.0
"""Controllers for networks that are emulated somewhere else: `python -m controller attend DIR`.

DIR is shared with the emulations (in docker-compose.yml: /run/downpour, mounted at the same path in
both containers). An emulation requests a controller with the file DIR/<run>/<name>.request.json,
{"arguments": [...], "attendant": NAME}, where the arguments are those of `python -m controller`. It
deletes the file when it no longer needs the controller. The controller runs as long as the file
exists: if it ends, this program starts it again. After its own restart, this program starts all of
them again. Meanwhile switches keep their flows, and a controller returns with its store.

With `--domain NAME`, this program only takes requests whose attendant is that domain; without it,
those whose attendant is "". So each domain may have its own container.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from common.contracts import ENDED_SUFFIX, REQUEST_SUFFIX, attendant_name
from common.exit_codes import EXIT_USAGE

LOOK_S = 0.2
AGAIN_S = 1.0  # after an unrequested exit
STOP_S = 5.0


class BadRequest(Exception):
    """A request that cannot be carried out; the text says why."""


@dataclass
class Running:
    process: subprocess.Popen[bytes] | None
    request: str  # the file's text
    again_s: float = 0.0  # when to restart it; 0: never


def arguments_of(text: str) -> list[str]:
    """Return the arguments that a request asks for. Raises BadRequest."""
    try:
        found = json.loads(text)["arguments"]
    except (ValueError, KeyError, TypeError) as error:
        raise BadRequest(f'found {text[:60]!r}; valid: {{"arguments": [...]}}') from error
    if not isinstance(found, list) or not all(isinstance(a, str) for a in found):
        raise BadRequest(f"found arguments {found!r}; valid: a list of strings")
    return found


def attendant_of(text: str) -> str:
    """Return the attendant that a request names; "": the one of all domains."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        found = json.loads(text)["attendant"]
        return found if isinstance(found, str) else ""
    return ""


class RemoteControllers:
    """The controllers that were requested from `domain` ("": the attendant of all domains).

    `look` does once what is due, without waiting.
    """

    def __init__(self, root: Path, domain: str = "") -> None:
        self._root = root
        self._domain = domain
        self._running: dict[Path, Running] = {}

    def look(self, now_s: float) -> None:
        """Start, restart and end controllers as requested; `now_s` is monotonic."""
        requests = {}
        for path in self._root.glob(f"*/*{REQUEST_SUFFIX}"):
            with contextlib.suppress(OSError):  # removed meanwhile
                text = path.read_text(errors="replace")
                if attendant_of(text) == self._domain:
                    requests[path] = text
        for path in [*self._running]:
            if requests.get(path) != self._running[path].request:
                self._end(self._running.pop(path))
                say(f"{path.name}: no longer requested")
        for path, text in requests.items():
            running = self._running.get(path)
            if running is None:
                self._running[path] = self._started(path, text, now_s)
            elif running.process is not None and running.process.poll() is not None:
                self._ended(path, running, now_s)
            elif running.again_s and now_s >= running.again_s:
                self._running[path] = self._started(path, text, now_s)

    def close(self) -> None:
        """End all controllers."""
        for running in self._running.values():
            if running.process is not None:
                running.process.terminate()
        for running in self._running.values():
            self._end(running)
        self._running.clear()

    def _started(self, path: Path, text: str, now_s: float) -> Running:
        """Start it, or report why it must be tried again later: its network may be ending."""
        try:
            return self._start(path, text)
        except OSError as error:
            say(f"{path}: {error.filename}: {error.strerror}")
            return Running(None, text, now_s + AGAIN_S)

    def _start(self, path: Path, text: str) -> Running:
        try:
            argv = [sys.executable, "-m", "controller", *arguments_of(text)]
            if not _own(path).is_dir():
                raise BadRequest(f"found no directory '{_own(path)}' for what it writes")
        except BadRequest as error:
            say(f"{path}: {error}")
            if _own(path).is_dir():
                _write_ended(path, EXIT_USAGE)
            return Running(None, text)
        _ended_file(path).unlink(missing_ok=True)
        say(f"{path.name}: starting")
        with (_own(path) / f"{_name(path)}.stderr").open("ab") as complaints:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=complaints, stderr=complaints
            )
        return Running(process, text)

    def _ended(self, path: Path, running: Running, now_s: float) -> None:
        assert running.process is not None
        code = running.process.returncode
        say(f"{path.name}: ended with {code}")
        running.process = None
        if code == EXIT_USAGE:  # it would fail again in the same way
            _write_ended(path, code)
        else:
            running.again_s = now_s + AGAIN_S

    def _end(self, running: Running) -> None:
        if running.process is None:
            return
        running.process.terminate()
        try:
            running.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            running.process.kill()
            running.process.wait()


def _name(request: Path) -> str:
    return request.name.removesuffix(REQUEST_SUFFIX)


def _own(request: Path) -> Path:
    """Return the directory that this program may write to, which the requesting network creates."""
    return request.parent / _name(request)


def _ended_file(request: Path) -> Path:
    return _own(request) / f"{_name(request)}{ENDED_SUFFIX}"


def _write_ended(request: Path, code: int) -> None:
    path = _ended_file(request)
    temporary = path.with_suffix(".tmp")
    with contextlib.suppress(OSError):  # its network has ended
        temporary.write_text(json.dumps({"code": code}), encoding="utf-8")
        temporary.rename(path)


def say(text: str) -> None:
    """Write a line to stderr."""
    print(f"attend: {text}", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m controller attend`; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m controller attend",
        description="Run the controllers that emulations in other containers ask for.",
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="shared with the emulations")
    parser.add_argument(
        "--domain", default="", metavar="NAME", help="only this domain's (default: of all domains)"
    )
    asked = parser.parse_args(argv)
    root: Path = asked.directory
    if "/" in asked.domain:
        say(f"--domain: found '{asked.domain}'; valid: the name of a controller domain")
        return EXIT_USAGE
    if not root.is_dir() or not os.access(root, os.W_OK):
        say(f"found '{root}'; valid: a directory that this user may write to")
        return EXIT_USAGE

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    controllers = RemoteControllers(root, asked.domain)
    mark = root / attendant_name(asked.domain)
    mark.write_text(f"{os.getpid()}\n", encoding="utf-8")
    say(f"{root}: waiting for networks{f' with domain {asked.domain}' if asked.domain else ''}")
    try:
        while True:
            controllers.look(time.monotonic())
            time.sleep(LOOK_S)
    finally:
        controllers.close()
        mark.unlink(missing_ok=True)
