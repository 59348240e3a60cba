# SPDX-License-Identifier: Apache-2.0
"""`python -m virtual`: programs in virtual time."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from common.shell import termination_as_interrupt
from virtual import kernel_build, kernel_command
from virtual.guest import GuestError, GuestSpec, Share, run_guest

EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
VIRTUAL = "virtual time"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m virtual",
        description="Runs programs in a User-Mode Linux guest whose clock jumps between events",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="run a command in a guest: you are root in it, nothing of the host is changed",
        epilog="exit code: the command's; 1 the guest failed, 2 bad usage, 130 interrupted",
    )
    run.add_argument("--seed", type=int, default=1, metavar="N", help="of the guest's randomness")
    run.add_argument("--memory-mb", type=int, default=2000, metavar="N")
    run.add_argument("--limit-s", type=float, metavar="S", help="of real time")
    run.add_argument("--stall-s", type=float, default=120.0, metavar="S")
    run.add_argument(
        "--share", type=Path, action="append", default=[], metavar="DIR",
        help="a directory that the guest may write to, at the same place there",
    )  # fmt: skip
    run.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND ...")
    commands.add_parser("status", help="is there a kernel, and which")
    commands.add_parser("kernel", help="build the guest's kernel (once)")
    commands.add_parser("selftest", help="is virtual time true? timers and shapers against theory")
    commands.add_parser("bench", help="real time against receivers and rate")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    argv = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with termination_as_interrupt():
            return _dispatch(argv)
    except (GuestError, kernel_build.KernelError) as error:
        print(f"virtual: {error}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        print("\nvirtual: interrupted; the guest is gone", file=sys.stderr)
        return EXIT_INTERRUPTED


def _dispatch(argv: list[str]) -> int:
    if argv and argv[0] == "kernel":
        return kernel_command.main(argv[1:])
    if argv and argv[0] == "selftest":
        from virtual import selftest

        return selftest.main(argv[1:])
    if argv and argv[0] == "bench":
        from virtual import bench

        return bench.main(argv[1:])
    options = _parser().parse_args(argv)
    return _status() if options.command == "status" else _run(options)


def _status() -> int:
    """One line, in the form of `topologies doctor`."""
    kernel = kernel_build.find_kernel()
    if kernel is None:
        print(f"advice   {VIRTUAL:35} no kernel yet; get it: make virtual-kernel")
    else:
        mode = "seccomp" if kernel.seccomp else "ptrace, half as fast"
        print(f"ok       {VIRTUAL:35} kernel {kernel.version} ({mode})")
    return 0


def _run(options: argparse.Namespace) -> int:
    command = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
    if not command:
        print(
            "virtual: found no command; valid: virtual run -- COMMAND ...",
            file=sys.stderr,
        )
        return EXIT_USAGE
    for path in options.share:
        if not path.is_dir():
            print(f"virtual: found --share '{path}'; valid: a directory", file=sys.stderr)
            return EXIT_USAGE
    spec = GuestSpec(
        argv=tuple(command),
        shares=tuple(Share(p.resolve(), p.resolve(), writable=True) for p in options.share),
        memory_bytes=options.memory_mb * 2**20,
        seed=options.seed,
        limit_s=options.limit_s,
        stall_s=options.stall_s,
    )
    kernel = kernel_build.ensure_kernel()
    code, times = run_guest(kernel, spec, stdout=sys.stdout.buffer, stderr=sys.stderr.buffer)
    print(
        f"virtual: {times.virtual_s:.3f} s of virtual time in {times.real_s:.1f} s "
        f"({times.ratio:.2f} : 1)",
        file=sys.stderr,
    )
    return code


if __name__ == "__main__":
    sys.exit(main())
