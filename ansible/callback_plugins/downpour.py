# SPDX-License-Identifier: Apache-2.0
"""Show Ansible's progress: the running task, the elapsed time, and about how much remains.

Each task gets one plain line; on a terminal, one line shows the running time, updated in place.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
    name: downpour
    type: stdout
    short_description: progress of the installation
    description: what runs, elapsed, about how much remains
"""

# Seconds that each task took on a two-core machine with nothing installed: the first estimate.
# Later estimates are what the tasks took on this machine.
TYPICAL_S = {
    "Gathering Facts": 3,
    "Refresh the package lists": 8,
    "Install the emulation, measurement and build packages": 90,
    "Install the tools that compile the kernel of virtual time's guests": 10,
    "Install the Python packages into the checkout's virtual environment": 60,
    "Install clang's fuzzer and sanitizers for the fuzz targets": 60,
}


CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "downpour"
LEARNT = CACHE / "setup-times/tasks.json"


def duration_text(seconds: float) -> str:
    """Return "45 s" or "3:20 min"."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60}:{whole % 60:02d} min"


def left_text(task: str, in_task_s: float, usual_s: dict[str, float]) -> str:
    """Return what is left, from the tasks' usual times. `usual_s`: of the tasks that are not
    done."""
    others_s = sum(seconds for name, seconds in usual_s.items() if name != task)
    this_s = usual_s.get(task, 0.0) - in_task_s
    if this_s > 0:
        return f"about {duration_text(this_s + others_s)} left"
    then = f", then about {duration_text(others_s)}" if others_s else ""
    return f"longer than usual{then}"


def learnt_s() -> dict[str, float]:
    """Return the times that tasks took here, if known, else the typical times."""
    found: dict[str, float] = dict(TYPICAL_S)
    with contextlib.suppress(OSError, ValueError, AttributeError):
        known = json.loads(LEARNT.read_text(encoding="utf-8"))
        found |= {name: float(s) for name, s in known.items() if name in TYPICAL_S}
    return found


class CallbackModule(CallbackBase):  # type: ignore[misc]
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "downpour"

    def __init__(self) -> None:
        super().__init__()
        self._start = self._began = time.monotonic()
        self._task = ""
        self._took: dict[str, float] = {}
        self._left = learnt_s()
        self._tty = sys.stdout.isatty()
        self._stop = threading.Event()
        self._ticker: threading.Thread | None = None

    def _elapsed(self) -> str:
        return duration_text(time.monotonic() - self._start)

    def _line(self, text: str) -> None:
        if self._tty:
            sys.stdout.write("\r\x1b[K")
        print(text, flush=True)

    def _tick(self) -> None:
        while not self._stop.wait(1.0 if self._tty else 15.0):
            left = left_text(self._task, time.monotonic() - self._began, self._left)
            text = f"  install: {self._task} ... {self._elapsed()}, {left}"
            if self._tty:
                sys.stdout.write("\r\x1b[K" + text[:110])
                sys.stdout.flush()
            else:
                print(text, flush=True)

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        self._task = task.get_name().split(" : ")[-1].strip()
        self._began = time.monotonic()
        if self._ticker is None:
            self._ticker = threading.Thread(target=self._tick, daemon=True)
            self._ticker.start()

    def _done(self, result: Any, word: str) -> None:
        if self._left.pop(self._task, None) is not None and word == "changed":
            self._took[self._task] = time.monotonic() - self._began
        self._line(f"  install [{self._elapsed()}] {word:8s} {self._task}")

    def v2_runner_on_ok(self, result: Any) -> None:
        self._done(result, "changed" if result._result.get("changed") else "ok")

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._left.pop(self._task, None)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._done(result, "failed" if not ignore_errors else "ignored")
        if not ignore_errors:
            r = result._result
            detail = r.get("msg") or r.get("stderr") or r.get("stdout") or str(r)
            self._line(f"  {detail}".rstrip())

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._done(result, "failed")
        self._line(f"  cannot reach {result._host}: {result._result.get('msg', '')}")

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self._stop.set()
        if self._took:
            with contextlib.suppress(OSError):
                LEARNT.parent.mkdir(parents=True, exist_ok=True)
                LEARNT.write_text(json.dumps(learnt_s() | self._took), encoding="utf-8")
