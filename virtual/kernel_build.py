# SPDX-License-Identifier: Apache-2.0
"""Builds the guest's kernel from a kernel source, as an ordinary user; `kernel_cache` keeps it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from common.counting import counted
from common.digests import digest_of
from common.shell import die_with_parent
from virtual import kernel_cache, kernel_fetch, kernel_file, kernel_source
from virtual.kernel_cache import CACHE, CONFIG, Build, Kernel, find_kernel
from virtual.kernel_estimate import learnt
from virtual.kernel_fetch import PinError, Progress, Source
from virtual.kernel_progress import Printer
from virtual.kernel_source import EditError, KernelError, NoSourceError

__all__ = ["Kernel", "KernelError", "ensure_kernel", "find_kernel"]

# The unpacked part of the source, the objects and the downloaded file, as measured.
NEEDED_BYTES: Final = 1_500_000_000
TICK_S: Final = 5.0
# Program -> Debian's package that has it.
TOOLS: Final = {
    "gcc": "gcc", "make": "make", "ld": "binutils", "flex": "flex", "bison": "bison", "bc": "bc",
    "tar": "tar", "xz": "xz-utils",
}  # fmt: skip


# --- what goes in -------------------------------------------------------------------------------


def asked_options(config: str) -> dict[str, str]:
    """Return option -> value of a fragment's lines CONFIG_NAME=value."""
    return dict(re.findall(r"^(CONFIG_\w+)=(.*)$", config, re.MULTILINE))


def required_options(config: str) -> list[str]:
    """Return the options in its lines "#! NAME ...", with CONFIG_ before them."""
    lines: list[str] = re.findall(r"^#! (.*)$", config, re.MULTILINE)
    return [f"CONFIG_{name}" for line in lines for name in line.split()]


def dropped_options(asked: str, result: str) -> list[str]:
    """Return the `asked` options that the kernel's configuration `result` lacks or changes."""
    found = asked_options(result)
    return [name for name, value in asked_options(asked).items() if found.get(name) != value]


def check_required(asked: str, dropped: Sequence[str], version: str) -> None:
    """Raise EditError (another version may have it) if a required option is among the dropped."""
    missing = [name for name in required_options(asked) if name in dropped]
    if missing:
        raise EditError(
            f"kernel {version}: its configuration lacks {', '.join(missing)}, "
            f"which a guest needs ({CONFIG.name})"
        )


def missing_tools(source: str = "") -> str:
    """Return what the machine lacks for a build, in words; "": nothing."""
    tools = dict(TOOLS)
    if source.endswith(".bz2"):
        tools["bzip2"] = "bzip2"
    if source.endswith(".deb"):
        tools["dpkg-deb"] = "dpkg"
    missing = {tool: package for tool, package in tools.items() if shutil.which(tool) is None}
    if not missing:
        return ""
    packages = " ".join(dict.fromkeys(missing.values()))
    return f"found no {', '.join(missing)}; get it: apt install {packages}"


# --- building -----------------------------------------------------------------------------------


def ensure_kernel(
    progress: Progress | None = None, *, source: Path | None = None, download: bool = True
) -> Kernel:
    """Return the cached kernel; else the one in the release's file that DOWNPOUR_KERNEL names; else
    build one, from `source` if given, else from the pinned source of Debian's archive (with
    `download`), the newest there, or that of /usr/src. Raises KernelError."""
    say = progress if progress is not None else Printer(sys.stderr)

    def waits() -> None:
        say("another build is under way; waiting for its end")

    def usable() -> Kernel | None:
        kernel = find_kernel()
        if kernel is None or kernel.seccomp or not download or kernel_cache.kernel_file_given():
            return kernel
        return None  # a newer source would make a faster one

    digest = kernel_cache.current_digest()
    if source is None and (found := usable()) is not None:
        return found
    if source is None and (given := kernel_cache.kernel_file_given()):
        return kernel_file.install_kernel(given)
    if source is None and kernel_cache.waited_for_machine_build(waits):
        found = usable()
        if found is not None:
            return found
    if missing := missing_tools(source.name if source is not None else ""):
        raise KernelError(missing)
    with kernel_cache.only_builder(waits):
        if source is not None:
            return _from_source(kernel_fetch.source_of(source), digest, 0.0, say)
        if (found := usable()) is not None:  # the other builder has built it
            return found
        return _from_best_source(digest, download, say)


def _from_best_source(digest: str, download: bool, say: Progress) -> Kernel:
    """Build from the archive's source, else from the machine's. The caller holds the lock. Raises
    KernelError."""
    found = find_kernel()
    local = kernel_fetch.installed()
    complaint = ""
    kind: type[KernelError] = NoSourceError
    if download and (local is None or not local.seccomp):
        try:
            return _from_archive(digest, say)
        except KernelError as error:
            complaint, kind = str(error), type(error)
            if found is not None:
                say(f"cannot fetch a newer source ({complaint}): ptrace mode")
                return found
    if local is None:
        raise kind(
            f"{complaint + '; ' if complaint else ''}found no kernel source in "
            f"{kernel_fetch.USR_SRC}; get it: apt install linux-source, or --source FILE"
        )
    if not local.seccomp:
        say(f"{local.path.name}: its guests run in ptrace mode, about two times slower")
    return _from_source(local, digest, 0.0, say)


def _from_archive(digest: str, say: Progress) -> Kernel:
    """Build from the archive's pinned source; where it is no longer available, or the newest is
    requested, from the newest that the edits and options fit. Raises KernelError."""
    if not kernel_cache.wants_newest() and (kernel := _from_pinned(digest, say)) is not None:
        return kernel
    skipped: list[tuple[int, ...]] = []
    first: KernelError | None = None
    while True:
        began = time.monotonic()
        try:
            source = kernel_fetch.fetch(kernel_cache.sources_directory(), say, skipped)
        except KernelError as error:
            raise first or NoSourceError(str(error)) from None
        try:
            return _from_source(source, digest, time.monotonic() - began, say)
        except EditError as error:
            say(f"{error}; trying the source before it")
            first = first or error
            skipped.append(source.series)


def _from_pinned(digest: str, say: Progress) -> Kernel | None:
    """Build from the pinned source; return None where it is not available, or does not fit."""
    began = time.monotonic()
    try:
        source = kernel_fetch.fetch_pinned(kernel_cache.sources_directory(), say)
    except PinError as error:
        say(f"{error}: taking the newest source; digits of results may differ")
        return None
    except KernelError:  # the attempt with the newest source says why
        return None
    try:
        return _from_source(source, digest, time.monotonic() - began, say)
    except EditError as error:
        say(f"{error}: taking the newest source; digits of results may differ")
        return None


def _from_source(source: Source, digest: str, fetch_s: float, say: Progress) -> Kernel:
    """Build from one source. The caller holds the lock. Intermediate files are in a directory that
    is removed in any case."""
    try:
        sha256 = digest_of(source.path).sha256
    except OSError as error:
        raise KernelError(f"{source.path}: {error.strerror}") from None
    for kernel, build in kernel_cache.cached(kernel_cache.kernels_directory(), digest):
        if build.source_sha256 == sha256:
            return kernel
    if missing := missing_tools(source.path.name):
        raise KernelError(missing)
    directory = kernel_cache.kernels_directory()
    free = shutil.disk_usage(directory).free
    if free < NEEDED_BYTES:
        raise KernelError(
            f"{directory}: found {free >> 20} MB free; valid: {NEEDED_BYTES >> 20} MB, "
            f"or {CACHE}=a directory elsewhere"
        )
    work = directory / f".build-{os.getpid()}"
    try:
        work.mkdir()
        began = time.monotonic()
        say(f"unpacking {source.path.name}")
        tree = work / "tree"
        kernel_fetch.unpack(source, tree)
        unpack_s = time.monotonic() - began
        version = kernel_fetch.version_of(tree)
        kernel_source.apply(tree, version)
        dropped = _configure(tree, version)
        if dropped:
            say(f"kernel {version} does not know {', '.join(dropped)}")
        began = time.monotonic()
        files = _compile(tree, version, say)
        build = Build(
            version=version,
            package_version=source.package_version,
            source=source.path.name,
            source_sha256=sha256,
            digest=digest,
            compiler=kernel_cache.compiler(),
            seccomp=has_seccomp(tree),
            fetch_s=round(fetch_s, 1),
            unpack_s=round(unpack_s, 1),
            compile_s=round(time.monotonic() - began, 1),
            files=files,
            options_dropped=dropped,
            sha256=digest_of(tree / "linux").sha256,
        )
        return kernel_cache.store(work, tree / "linux", tree / ".config", build)
    except OSError as error:
        raise KernelError(f"{error.filename or work}: {error.strerror}") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def has_seccomp(tree: Path) -> bool:
    """Return whether this source's User-Mode Linux knows the parameter seccomp=."""
    text = (tree / "arch/um/os-Linux/start_up.c").read_text(encoding="utf-8")
    return '__uml_setup("seccomp=' in text


def _environment() -> dict[str, str]:
    # The same binary for every builder, place and time.
    return {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "LC_ALL": "C",
        "KBUILD_BUILD_USER": "downpour",
        "KBUILD_BUILD_HOST": "downpour",
        "KBUILD_BUILD_TIMESTAMP": "Thu Jan  1 00:00:00 UTC 2026",
        "KBUILD_BUILD_VERSION": "1",
    }


def _configure(tree: Path, version: str) -> list[str]:
    """Write .config; return what was dropped. Raises KernelError, EditError."""
    result = subprocess.run(
        ["make", "ARCH=um", "allnoconfig"],
        cwd=tree,
        env={**_environment(), "KCONFIG_ALLCONFIG": str(CONFIG)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise KernelError(f"kernel {version}: configuration: {last_words(result.stderr)}")
    asked = CONFIG.read_text(encoding="utf-8")
    dropped = dropped_options(asked, (tree / ".config").read_text(encoding="utf-8"))
    check_required(asked, dropped, version)
    return dropped


def last_words(log: str) -> str:
    """Return the complaints in a build's log: its first errors, else what make itself says at the
    end."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    ours = [line for line in lines if not line.startswith("make")]
    errors = [line for line in ours if re.search(r"\berror\b|can't|cannot|No space", line, re.I)]
    return "; ".join(errors[:3] or lines[-3:])


def is_step(line: str) -> bool:
    """Return whether make's line reports a file: two blanks, a word in capitals, a name."""
    return re.match(r"  [A-Z]+ (?:\[M\])? *\S", line) is not None


def _compile(tree: Path, version: str, say: Progress) -> int:
    """Compile; return the number of files made. Raises KernelError with the compiler's words."""
    cores = len(os.sched_getaffinity(0))
    say(f"compiling Linux {version} on {counted(cores, 'core')}, once")
    process = subprocess.Popen(
        ["make", "ARCH=um", f"-j{cores}", "linux"],
        cwd=tree,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=die_with_parent(signal.SIGTERM),
    )
    estimate = learnt()
    log: list[str] = []
    began = time.monotonic()
    finished = threading.Event()

    def tick() -> None:
        while not finished.wait(TICK_S):
            say(estimate.line(sum(map(is_step, log)), time.monotonic() - began))

    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    try:
        assert process.stdout is not None
        with process.stdout as lines:
            log.extend(lines)
        code = process.wait()
    except BaseException:
        # Its own process group, so that this also ends the compilers that make has started.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    finally:
        finished.set()
        ticker.join()
    if code != 0 or not (tree / "linux").is_file():
        kept = kernel_cache.kernels_directory() / "failed-build.log"
        kept.write_text("".join(log), encoding="utf-8")
        raise KernelError(f"kernel {version}: make: {last_words(''.join(log))} (log: {kept})")
    return sum(map(is_step, log))
