# SPDX-License-Identifier: Apache-2.0
"""The measuring side of the self-test: prints one row (JSON) per test, as it comes.

Runs as root of its own network, mount and process namespaces (`virtual.selftest.cli` makes them),
in a guest or natively; leaves nothing behind.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from common.places import program
from common.shell import NetworkError, check
from virtual.selftest import protocols, shapers, timers
from virtual.selftest.rows import Row, to_line

TIMERS: Final = program("selftest-timers")


def all_rows(directory: Path) -> Iterator[Row]:
    """Run all tests. Raises NetworkError, OSError, CalledProcessError, ValueError."""
    first_ping = protocols.ping_itself(3, 1.0)  # where the clock is youngest
    found = timers.probe(str(TIMERS))
    kernel = timers.timing(found)
    yield from timers.probe_rows(found, kernel)
    yield from timers.python_rows(kernel)
    yield from timers.program_rows(kernel)
    yield from protocols.ping_rows(kernel, first_ping)
    yield from protocols.tcp_rows(kernel)
    yield from shapers.cable_rows()
    yield from shapers.switch_rows(directory)


def main() -> int:
    """Run in the guest; return the exit code."""
    try:
        # Names of network namespaces are then known in this mount namespace alone.
        Path("/run/netns").mkdir(exist_ok=True)
        check(["mount", "-t", "tmpfs", "tmpfs", "/run/netns"])
        check(["ip", "link", "set", "lo", "up"])
        with tempfile.TemporaryDirectory(prefix="selftest-") as directory:
            for row in all_rows(Path(directory)):
                print(to_line(row), flush=True)
    except (NetworkError, OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"selftest: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
