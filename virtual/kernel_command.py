# SPDX-License-Identifier: Apache-2.0
"""The command of the guest's kernel: find it, build it, install it from a file, write it to one.

python -m virtual kernel [--source FILE] [--no-download] [--from FILE] [--export DIR]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from common.quantities import duration_text
from virtual.kernel_build import ensure_kernel
from virtual.kernel_cache import Kernel, find_kernel
from virtual.kernel_file import export_kernel, install_kernel
from virtual.kernel_progress import Printer
from virtual.kernel_source import KernelError, NoSourceError

EXIT_OK, EXIT_FAILED, EXIT_NO_SOURCE, EXIT_INTERRUPTED = 0, 1, 3, 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m virtual kernel",
        description="Builds the guest's kernel; returns at once if it is built.",
        epilog="DOWNPOUR_KERNEL=FILE names a built kernel; DOWNPOUR_CACHE=DIR, the only cache. "
        "Root builds for all users, in /var/cache/downpour.",
    )
    parser.add_argument("--source", type=Path, metavar="FILE", help="linux-source-*.tar.xz or .deb")
    parser.add_argument(
        "--no-download", action="store_true", help="only what lies in /usr/src, even if it is old"
    )
    files = parser.add_mutually_exclusive_group()
    files.add_argument(
        "--from", dest="file", type=Path, metavar="FILE",
        help="install the kernel in FILE, which --export wrote, after checking its digest file",
    )  # fmt: skip
    files.add_argument(
        "--export", type=Path, metavar="DIR", help="write the kernel and its digest file to DIR"
    )
    return parser


def run(
    *, source: Path | None, download: bool, file: Path | None = None, export: Path | None = None
) -> int:
    """Do what the options say. Exit codes: see `main`."""
    printer = Printer(sys.stderr)
    began = time.monotonic()
    try:
        known = find_kernel()
        if export is not None:
            print(f"kernel: written to {export_kernel(export)}, with .json beside it")
            return EXIT_OK
        if file is not None:
            kernel = install_kernel(file)
        else:
            kernel = ensure_kernel(printer, source=source, download=download)
    except KernelError as error:
        printer.close()
        print(f"kernel: {error}", file=sys.stderr)
        return EXIT_NO_SOURCE if isinstance(error, NoSourceError) else EXIT_FAILED
    except KeyboardInterrupt:
        printer.close()
        print("kernel: interrupted; what was fetched is kept", file=sys.stderr)
        return EXIT_INTERRUPTED
    printer.close()
    _say_result(kernel, known, time.monotonic() - began)
    return EXIT_OK


def _say_result(kernel: Kernel, known: Kernel | None, took_s: float) -> None:
    mode = "seccomp" if kernel.seccomp else "ptrace"
    what = "is there" if kernel == known else f"is ready after {duration_text(took_s)}"
    print(f"kernel: Linux {kernel.version} ({mode} mode) {what}: {kernel.path}")


def main(argv: Sequence[str]) -> int:
    """The command line. Exit codes: 0 there is a kernel, 1 there is none, 2 bad usage, 3 there is
    none because its source cannot be got here, 130 interrupted."""
    options = _parser().parse_args(argv)
    return run(
        source=options.source,
        download=not options.no_download,
        file=options.file,
        export=options.export,
    )
