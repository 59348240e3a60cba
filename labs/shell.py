# SPDX-License-Identifier: Apache-2.0
"""The prompt of a lab. Lines go to the lab's shell, and the lab's time passes only while a line
runs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from labs.session import Connection, NotRunning, SessionError
from labs.spec import Lab
from virtual.cores import cache_directory

HELP: Final = """\
A line runs in the lab's shell (bash, as root), where the switches are.
  @HOST COMMAND      runs a program in a host, as in: @pub ping -c 3 10.10.1.2
  COMMAND &          goes on in later lines; wait and kill %1 work as usual
  sleep 10           lets 10 seconds of the lab's time pass (it stands still while you think)
  ports              where each switch's ports lead
  numbered           sends and receives numbered datagrams; numbered send --help
  fault              breaks and mends links, switches, the controller
  Ctrl-C             interrupts a line; Ctrl-D or exit leaves (the network stays)
A loop that never waits (while :; do :; done) stops the lab's time; after a minute its network is
ended. Put a sleep into it.
"""


def prompt(number: int, now_s: float, clock: str) -> str:
    """Return the prompt, with the network's time."""
    return f"lab {number} [{now_s:.3f} s{'' if clock == 'virtual' else ', native'}] > "


def is_complete(text: str) -> bool:
    """Return whether bash would run the text; otherwise a quote, `do` or <<end is still open."""
    if (len(text) - len(text.rstrip("\\"))) % 2:
        return False
    done = subprocess.run(
        ["bash", "-n"],
        input=text.encode(),
        capture_output=True,
        env={**os.environ, "LC_ALL": "C"},
        check=False,
    )
    said = (b"unexpected end of file", b"unexpected EOF", b"here-document")
    return not any(words in done.stderr for words in said)


def whole_command(line: str, more: Callable[[], str]) -> str:
    """Return the line together with those that complete it. `more` may raise EOFError: no more
    lines."""
    text = line
    with contextlib.suppress(EOFError):
        while not is_complete(text):
            text += "\n" + more()
    return text


def shell(lab: Lab, connection: Connection) -> int:
    """Serve lines until end of file or `exit`. Return 0, or the last line's exit code if the lines
    do not come from a terminal. Raises SessionError."""
    connection.hello()
    history = cache_directory() / "lab-history"
    if not sys.stdin.isatty():
        return _script(connection)
    import readline

    with contextlib.suppress(OSError):
        history.parent.mkdir(parents=True, exist_ok=True)
        readline.read_history_file(history)
    print(f"lab {lab.number}: {lab.spec.title}. `help` lists the commands.")
    try:
        while True:
            try:
                line = input(prompt(lab.number, connection.now_s, connection.clock))
                line = whole_command(line, lambda: input("> "))
            except EOFError:
                print()
                return 0
            except KeyboardInterrupt:
                print()
                continue
            match line.strip():
                case "":
                    continue
                case "exit" | "quit" | "logout":
                    return 0
                case "help":
                    print(HELP, end="")
                    continue
            _run(connection, line)
    finally:
        _save(history)


def _run(connection: Connection, line: str) -> int:
    try:
        return connection.run(line, sys.stdout.buffer, sys.stderr.buffer)
    except NotRunning:
        raise
    except SessionError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1


def _script(connection: Connection) -> int:
    def more() -> str:
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")

    code = 0
    with contextlib.suppress(EOFError):
        while True:
            line = more()
            if line.strip():
                code = _run(connection, whole_command(line, more))
    return code


def _save(history: Path) -> None:
    import readline

    with contextlib.suppress(OSError):
        readline.set_history_length(1000)
        readline.write_history_file(history)
