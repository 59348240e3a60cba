#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fcast-send and fcast-recv with wrong words, full disks, strange directories, greedy strangers.

Usage: hostile.py FCAST-SEND FCAST-RECV [CASE...]. Root: disks are small tmpfs in a mount namespace
of the test's own; packets stay on the loopback of a network namespace. Exit status 77: skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.tool_cases import Machine, expect, run_cases

GROUP = "239.78.0.1:20078"
DIGITS = "0123456789abcdef" * 4


class Site(Machine):
    """The two programs and how they are called."""

    def refuses(self, argv: list[str], *texts: str, code: int = 2) -> None:
        """Raises Failure unless the program ends at once with that code and says the texts."""
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=10)
        except subprocess.TimeoutExpired:
            expect(False, f"does not end: {' '.join(argv)}")
        said = f"{' '.join(argv)}: {done.returncode}: {done.stderr}"
        expect(done.returncode == code, said)
        for text in texts:
            expect(text in done.stderr, f"no {text!r} in {said}")

    def key(self, text: str, mode: int = 0o600) -> Path:
        path = self.work / "key"
        path.write_text(text)
        path.chmod(mode)
        return path


# ---------------------------------------------------------------- key files


def case_key_files(m: Site) -> None:
    """What is no key is refused, and what is in the file is never shown."""
    argv = [
        m.recv_path,
        "--interface",
        "127.0.0.1",
        "--group",
        GROUP,
        "--key-file",
        str(m.work / "key"),
    ]
    for text, mode, why in (
        (DIGITS + "\n" + DIGITS + "\n", 0o600, ":2: found another line"),
        (DIGITS + " and more\n", 0o600, ":1: found no hexadecimal digit in column 65"),
        (DIGITS + "XYZ", 0o600, ":1: found no hexadecimal digit in column 65"),
        (DIGITS + "00\n", 0o600, ":1: found 66 digits; valid: "),
        (DIGITS[:-1] + "\n", 0o600, ":1: found 63 digits; valid: "),
        ("", 0o600, ":1: found no key"),
        (DIGITS + "\n" * 5000, 0o600, ":1: found more than 4096 bytes"),
        (DIGITS + "\n", 0o640, ":1: found mode 0640; valid: 0400 or 0600"),
        (DIGITS + "\n", 0o604, ":1: found mode 0604; valid: 0400 or 0600"),
    ):
        m.key(text, mode)
        m.refuses([*argv, str(m.work)], str(m.work / "key") + why)
    (m.work / "key").unlink()
    m.refuses([*argv, str(m.work)], "key:1: No such file or directory")
    os.mkfifo(m.work / "key", 0o600)
    for program in (m.recv_path, m.send_path):
        m.refuses([program, *argv[1:], str(m.work)], "key:1: found no regular file")


if __name__ == "__main__":
    found = {name[5:]: case for name, case in list(globals().items()) if name.startswith("case_")}
    sys.exit(run_cases(found, Site))
