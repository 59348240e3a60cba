# SPDX-License-Identifier: Apache-2.0
"""The command of the guest's kernel: find it, build it, install it from a file, or write it to
one.

downpour virtual kernel [--source FILE] [--no-download] [--from FILE] [--export DIR]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from common.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from common.quantities import duration_text
from virtual.kernel_build import ensure_kernel
from virtual.kernel_cache import Kernel, find_kernel
from virtual.kernel_file import export_kernel, install_kernel
from virtual.kernel_progress import Printer
from virtual.kernel_source import KernelError, NoSourceError

EXIT_NO_SOURCE = 3  # this machine cannot have the kernel's source


def run(
    *,
    source: Path | None = None,
    download: bool = True,
    file: Path | None = None,
    export: Path | None = None,
) -> int:
    """Do what the options say. Exit codes: 0 there is a kernel, 1 there is none, 3 there is none
    because its source is not available here, 130 interrupted."""
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
