# SPDX-License-Identifier: Apache-2.0
"""`python -m parsers report RUN_DIR`: re-creates metrics.json and report/ of a run directory."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from parsers.jsonfiles import BadFile
from parsers.metrics import GROUP_BYTES
from parsers.publish import write_report


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 1 system error, 2 bad usage or input."""
    parser = argparse.ArgumentParser(prog="python -m parsers", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    report = commands.add_parser("report", help="metrics.json and report/ of a run directory")
    report.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    report.add_argument("--quiet", action="store_true", help="do not print report.txt")
    report.add_argument(
        "--group-bytes",
        type=int,
        default=GROUP_BYTES,
        metavar="G",
        help="file-set size G of the throughput, in bytes (default %(default)s)",
    )
    options = parser.parse_args(arguments)
    if options.group_bytes <= 0:
        report.error(f"--group-bytes {options.group_bytes}: must be 1 or more")
    try:
        written = write_report(options.run_dir, options.group_bytes)
    except BadFile as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{error.filename or options.run_dir}: {error.strerror}", file=sys.stderr)
        return 1
    if not options.quiet:
        print(written.text, end="")
    print(f"Report: {written.report_dir / 'index.html'}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
