# SPDX-License-Identifier: Apache-2.0
"""Is virtual time true? Timers, protocols and shapers in a guest against theory.

`cli` (host) boots a guest and judges; `inside` (guest, or natively) measures; `theory` and `parse`
are pure. C probes: `probe_timers.c`, `probe_udp.c`.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m virtual selftest`; exit code 0 all right, 1 something is off, 2 bad usage."""
    # The measuring side needs neither launcher nor kernel: it must start fast in the guest.
    from virtual.selftest.cli import main as run

    return run(argv)
