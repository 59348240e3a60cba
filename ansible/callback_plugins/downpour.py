# SPDX-License-Identifier: Apache-2.0
"""Ansible output as a progress display: what runs, elapsed, about how much remains.

One plain line per task; a spinner-free, in-place line with the running time on a terminal.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from ansible.plugins.callback import CallbackBase

from ansible import context

DOCUMENTATION = """
    name: downpour
    type: stdout
    short_description: progress of the installation
    description: what runs, elapsed, about how much remains
"""

# Seconds each task took on a two-core machine that had nothing; only used to estimate.
TYPICAL_S = {
    "Gathering Facts": 3,
    "Refresh the package lists": 8,
    "Install the emulation, measurement and build packages": 90,
    "Install what compiles the kernel of virtual time's guests": 10,
    "Install the Python packages into the checkout's virtual environment": 60,
    "Install clang for the fuzz targets": 60,
}


class CallbackModule(CallbackBase):  # type: ignore[misc]
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "downpour"

    def __init__(self) -> None:
        super().__init__()
        self._start = time.monotonic()
        self._task = ""
        # `ansible/setup` without root runs the last role alone.
        alone = "python" in (context.CLIARGS.get("tags") or ())
        self._left = {t: s for t, s in TYPICAL_S.items() if not alone or "Python packages" in t}
        self._tty = sys.stdout.isatty()
        self._stop = threading.Event()
        self._ticker: threading.Thread | None = None

    def _clock(self, seconds: float) -> str:
        return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"

    def _line(self, text: str) -> None:
        if self._tty:
            sys.stdout.write("\r\x1b[K")
        print(text, flush=True)

    def _tick(self) -> None:
        while not self._stop.wait(1.0 if self._tty else 15.0):
            elapsed = self._clock(time.monotonic() - self._start)
            left = self._clock(sum(self._left.values()))
            text = f"  install: {self._task} ... elapsed {elapsed}, about {left} left"
            if self._tty:
                sys.stdout.write("\r\x1b[K" + text[:110])
                sys.stdout.flush()
            else:
                print(text, flush=True)

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        self._task = task.get_name().split(" : ")[-1].strip()
        if self._ticker is None:
            self._ticker = threading.Thread(target=self._tick, daemon=True)
            self._ticker.start()

    def _done(self, result: Any, word: str) -> None:
        self._left.pop(self._task, None)
        elapsed = self._clock(time.monotonic() - self._start)
        self._line(f"  install [{elapsed}] {word:8s} {self._task}")

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
