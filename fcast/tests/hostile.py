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

from tests.tool_cases import Machine, expect, names, run_cases

GROUP = "239.78.0.1:20078"
DIGITS = "0123456789abcdef" * 4


class Site(Machine):
    """The two programs and how they are called."""

    def refuses(self, argv: list[str], *texts: str, code: int = 2) -> str:
        """Return what it says; raises Failure unless it ends at once, so, with the texts."""
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=10)
        except subprocess.TimeoutExpired:
            expect(False, f"does not end: {' '.join(argv)}")
        said = f"{' '.join(argv)}: {done.returncode}: {done.stderr}"
        expect(done.returncode == code, said)
        for text in texts:
            expect(text in done.stderr, f"no {text!r} in {said}")
        return done.stderr

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


# ---------------------------------------------------------------- words


def case_wrong_words(m: Site) -> None:
    """Each wrong word: one line that says what would be valid, a hint, and exit status 2."""
    file, directory = m.file("file", 1000), m.directory("directory")
    fifo = m.work / "fifo"
    os.mkfifo(fifo)
    send = [m.send_path, "--group", GROUP, "--interface", "127.0.0.1"]
    recv = [m.recv_path, "--group", GROUP, "--interface", "127.0.0.1"]
    for argv, why in (
        ([*send, "--grup", "1"], "found option '--grup'; nearest: --group"),
        ([*recv, "--timeuot", "1"], "found option '--timeuot'; nearest: --timeout"),
        ([*recv, "-t", "5"], "found option '-t'; valid: --group, --interface, --session, "),
        ([*send, "--s", "5"], "found option '--s'; valid: --group, "),
        ([*send, "--order"], "found option '--order' without a value; valid: --order VALUE"),
        ([*send, "--jitter=5"], "found option '--jitter=5' with a value; valid: --jitter"),
        ([*send, "--order", "up"], "--order 'up': valid are sequential, rotate, shuffle"),
        ([*send, "--ttl", "256"], "--ttl '256': valid are whole numbers from 0 to 255"),
        ([*send, "--overhead", "50%"], "--overhead '50%': valid are whole numbers from 0 to 700"),
        ([*recv, "--timeout", "-1"], "--timeout '-1': valid are whole numbers from 1"),
        ([*recv, "--max-bytes", "1T"], "--max-bytes '1T': valid are whole numbers from 1"),
        ([*recv, "--interface", "lo"], "--interface 'lo': valid is an address such as 10.0.0.1"),
        ([*recv, "--group", "10.0.0.1:5"], "--group '10.0.0.1:5': valid is a multicast group"),
        ([*recv, "--group", "[ff15::1]:55", str(directory)], "valid: both IPv4 or IPv6"),
        ([*send], "at least one FILE is needed"),
        ([*send, str(fifo)], f"'{fifo}': not a regular file"),
        ([*send, str(directory)], f"'{directory}': not a regular file"),
        ([*send, str(m.work / "none")], "none': No such file or directory"),
        ([*send, "--cache", str(file), str(file)], f"--cache '{file}': Not a directory"),
        ([*recv], "found 0 directories; valid: one DIR"),
        ([*recv, str(directory), str(directory)], "found 2 directories; valid: one DIR"),
        ([*recv, str(file)], f"directory '{file}': Not a directory"),
        ([*recv, str(fifo)], f"directory '{fifo}': Not a directory"),
        ([*recv, str(m.work / "none")], "none': No such file or directory"),
    ):
        name = Path(argv[0]).name
        said = m.refuses(argv, why)
        lines = said.splitlines()
        expect(len(lines) == 2 and lines[1] == f"Try '{name} --help'.", said)


def case_a_session_file_that_cannot_be(m: Site) -> None:
    """It says so, and leaves nothing half-written beside it."""
    file, directory = m.file("file", 1000), m.directory("directory")
    argv = [m.send_path, "--group", GROUP, "--interface", "127.0.0.1", "--cycles", "1", str(file)]
    m.refuses([*argv, "--sdp", str(directory)], f"--sdp '{directory}': Is a directory", code=1)
    expect(names(m.work) == ["directory", "file"], f"left: {names(m.work)}")


if __name__ == "__main__":
    found = {name[5:]: case for name, case in list(globals().items()) if name.startswith("case_")}
    sys.exit(run_cases(found, Site))
