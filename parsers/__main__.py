# SPDX-License-Identifier: Apache-2.0
"""Reports of runs, and single logs of any age. `python -m parsers COMMAND --help` says more."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from common.terminal import columns, is_ascii_only, never_fail
from parsers import reading
from parsers.base.jsonfiles import BadFile
from parsers.measure.metrics import GROUP_BYTES
from parsers.read.formats import FORMATS
from parsers.report.brief import shown_brief

if TYPE_CHECKING:
    from parsers.report.publish import Written


def _bytes(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}; valid: a whole number from 1 on")
    return int(text)


def _format(text: str) -> str:
    names = ["auto", *(known.name for known in FORMATS)]
    if text not in names:
        raise argparse.ArgumentTypeError(f"found {text!r}; valid: {', '.join(names)}")
    return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m parsers", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    report = commands.add_parser("report", help="metrics.json and report/ of a run directory")
    report.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    report.add_argument("--quiet", action="store_true", help="print nothing of the report")
    report.add_argument(
        "--full", action="store_true", help="print the whole report (default: its result)"
    )
    report.add_argument(
        "--include-invalid",
        action="store_true",
        help="take cells with an invalid verdict into means, figures and claims",
    )

    formats = "".join(f"\n  {known.name:12} {known.what}" for known in FORMATS)
    read = commands.add_parser(
        "read",
        help="a file's records as JSON lines",
        description="The records of a log or of a tool's output, one JSON object per line. Lines "
        "that are not understood go to stderr as file:line (exit code 1).",
        epilog=f"formats:{formats}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    read.add_argument("format", type=_format, metavar="FORMAT", help="auto: told by the file")
    read.add_argument("file", type=Path, metavar="FILE")

    sets = commands.add_parser(
        "ldm-log",
        help="the papers' metrics of receivers' logs, by file-sets, as CSV",
        description="Throughput and FFDR by file-sets of G bytes in sending order, from the logs "
        "of receivers: ours, the originals', or those of 2015/16. One table for each log, and of "
        "several logs their mean; -1: not defined.",
    )
    sets.add_argument("logs", nargs="+", type=Path, metavar="LOG")
    sets.add_argument(
        "--metadata", type=Path, metavar="FILE", help="the trace that was sent (default: the logs)"
    )
    for command in (report, sets):
        command.add_argument(
            "--group-bytes",
            type=_bytes,
            default=GROUP_BYTES,
            metavar="G",
            help="bytes of a file-set (default %(default)s; the papers' scripts: 209715200)",
        )

    bench = commands.add_parser("bench", help="how fast each format is read, and with what memory")
    bench.add_argument("--receivers", type=_bytes, default=24, metavar="M")
    bench.add_argument("--json", type=Path, metavar="FILE", help="the figures, too")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 1 system error or a malformed line, 2 bad usage or input."""
    options = _parser().parse_args(arguments)
    never_fail(sys.stdout)
    try:
        if options.command == "read":
            return reading.run_read(options.file, options.format)
        if options.command == "ldm-log":
            return reading.run_file_sets(options.logs, options.metadata, options.group_bytes)
        if options.command == "bench":
            from parsers import bench

            return bench.run(options.receivers, options.json)
        from parsers.report.publish import write_report  # brings the drawing library along

        written = write_report(
            options.run_dir, options.group_bytes, include_invalid=options.include_invalid
        )
    except BadFile as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:  # head has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"{error.filename or ''}: {error.strerror}".lstrip(": "), file=sys.stderr)
        return 1
    if not options.quiet:
        print(_shown(written, options.full), end="")
    return 0


def _shown(written: Written, full: bool) -> str:
    """The report, or its result, for the terminal's width and characters."""
    page = str(written.report_dir / "index.html")
    if not full:
        return shown_brief(written.brief, page)
    from parsers.report.document import render_text

    text = render_text(written.report, columns(), ascii_only=is_ascii_only(sys.stdout))
    return f"{text}\nReport: {page}\n"


if __name__ == "__main__":
    sys.exit(main())
