# SPDX-License-Identifier: Apache-2.0
"""The guest's kernel: built once as an ordinary user, then taken from the cache.

    python -m virtual kernel [--source FILE] [--no-download]

A cached kernel belongs to a digest of all that we put in: configuration, drop-ins, edits, compiler.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final

from common.quantities import minutes_text
from common.shell import die_with_parent
from virtual import kernel_fetch, kernel_source
from virtual.cores import cache_directory
from virtual.kernel_fetch import Progress, Source
from virtual.kernel_source import DROP_INS, EditError, KernelError, NoSourceError

__all__ = ["Kernel", "KernelError", "ensure_kernel", "find_kernel", "main"]

CONFIG: Final = DROP_INS / "downpour.config"
# Compiler calls and the like of a build, measured with 7.2 and 7.3; only used to estimate.
TYPICAL_FILES: Final = 1280
# The unpacked part of the source, the objects and the downloaded file, measured.
NEEDED_BYTES: Final = 1_500_000_000
TICK_S: Final = 5.0
# Program -> Debian's package of it.
TOOLS: Final = {
    "gcc": "gcc", "make": "make", "ld": "binutils", "flex": "flex", "bison": "bison", "bc": "bc",
    "tar": "tar", "xz": "xz-utils",
}  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """A built kernel. `version` as "7.2.11"; `digest` of what we put in; `seccomp`: it can run
    programs without ptrace (twice as fast)."""

    path: Path
    version: str
    digest: str
    seccomp: bool


@dataclass(frozen=True)
class Build:
    """`build.json` beside a kernel. Times in seconds of real time; `options_dropped`: asked for,
    not known to this version."""

    version: str
    package_version: str
    source: str
    source_sha256: str
    digest: str
    compiler: str
    seccomp: bool
    fetch_s: float
    unpack_s: float
    compile_s: float
    files: int
    options_dropped: list[str]


# --- what goes in -------------------------------------------------------------------------------


def asked_options(config: str) -> dict[str, str]:
    """Option -> value of a fragment's lines CONFIG_NAME=value."""
    return dict(re.findall(r"^(CONFIG_\w+)=(.*)$", config, re.MULTILINE))


def required_options(config: str) -> list[str]:
    """The options in its lines "#! NAME ...", with CONFIG_ before them."""
    lines: list[str] = re.findall(r"^#! (.*)$", config, re.MULTILINE)
    return [f"CONFIG_{name}" for line in lines for name in line.split()]


def dropped_options(asked: str, result: str) -> list[str]:
    """What the kernel's configuration `result` has not as it was `asked`."""
    found = asked_options(result)
    return [name for name, value in asked_options(asked).items() if found.get(name) != value]


def check_required(asked: str, dropped: Sequence[str], version: str) -> None:
    """Raises EditError (another version may do) if a required option is among the dropped."""
    missing = [name for name in required_options(asked) if name in dropped]
    if missing:
        raise EditError(
            f"kernel {version}: its configuration has not taken {', '.join(missing)}, "
            f"which a guest needs ({CONFIG.name})"
        )


def digest_of(inputs: Mapping[str, bytes]) -> str:
    """12 hexadecimal digits over names and contents."""
    total = hashlib.sha256()
    for name, data in sorted(inputs.items()):
        total.update(f"{name}\0{len(data)}\0".encode() + data)
    return total.hexdigest()[:12]


@functools.cache
def compiler() -> str:
    """The first line of gcc --version; "" if there is none."""
    with contextlib.suppress(OSError):
        result = subprocess.run(["gcc", "--version"], capture_output=True, text=True, check=False)
        return result.stdout.partition("\n")[0]
    return ""


def current_digest(built_by: str | None = None) -> str:
    """Of configuration, drop-ins and edits as they are now, and of the compiler: this machine's, or
    the one that is named."""
    inputs = {file.name: (DROP_INS / file.name).read_bytes() for file in kernel_source.FILES}
    inputs["config"] = CONFIG.read_bytes()
    inputs["places"] = repr((kernel_source.FILES, kernel_source.EDITS)).encode()
    inputs["compiler"] = (compiler() if built_by is None else built_by).encode()
    return digest_of(inputs)


def missing_tools(source: str = "") -> str:
    """What a build needs and the machine has not, in words; "" if nothing."""
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


# --- the cache ----------------------------------------------------------------------------------


def kernels_directory() -> Path:
    return cache_directory() / "kernels"


def _built(directory: Path) -> tuple[Kernel, Build] | None:
    """The kernel in a directory of the cache, None if there is none."""
    try:
        build = Build(**json.loads((directory / "build.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    path = directory / "linux"
    if not os.access(path, os.X_OK):
        return None
    return Kernel(path, build.version, build.digest, build.seccomp), build


def _cached(digest: str) -> list[tuple[Kernel, Build]]:
    """All kernels of this digest, the newest first. "": of what we put in now, by any compiler."""
    found = [_built(path) for path in kernels_directory().glob(f"*-{digest or '*'}")]
    return sorted(
        (
            entry
            for entry in found
            if entry is not None
            and entry[0].digest == (digest or current_digest(entry[1].compiler))
        ),
        key=lambda entry: [int(n) for n in entry[0].version.split(".")],
        reverse=True,
    )


def find_kernel() -> Kernel | None:
    """The newest cached kernel of what we put in now, None if there is none. Builds nothing. A
    machine without a compiler (a container, a student's seat) takes what another's has built."""
    found = _cached(current_digest() if compiler() else "")
    return found[0][0] if found else None


@contextmanager
def _only_builder(progress: Progress) -> Iterator[None]:
    directory = kernels_directory()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        stream = (directory / "lock").open("ab")
    except OSError as error:
        raise KernelError(
            f"cannot write to {directory}: {error.strerror}; "
            "valid: DOWNPOUR_CACHE=a directory of yours"
        ) from None
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            progress("another build is under way; waiting for its end")
            fcntl.flock(stream, fcntl.LOCK_EX)
        # Of a builder that was killed: nobody else has the lock now.
        for rest in directory.glob(".build-*"):
            shutil.rmtree(rest, ignore_errors=True)
        yield


# --- building -----------------------------------------------------------------------------------


def ensure_kernel(
    progress: Progress | None = None, *, source: Path | None = None, download: bool = True
) -> Kernel:
    """The cached kernel, or one that is built now: from `source` if given, else from the newest
    source that /usr/src or (with `download`) Debian's archive has. Raises KernelError."""
    say = progress if progress is not None else Printer(sys.stderr)
    digest = current_digest()
    found = None if source is not None else find_kernel()
    if found is not None and (found.seccomp or not download):
        return found
    if missing := missing_tools(source.name if source is not None else ""):
        raise KernelError(missing)
    with _only_builder(say):
        if source is not None:
            return _from_source(kernel_fetch.source_of(source), digest, 0.0, say)
        found = find_kernel()  # the builder we waited for may have made it
        if found is not None and (found.seccomp or not download):
            return found
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
            say(f"{local.path.name} it is: its guests run in ptrace mode, some two times slower")
        return _from_source(local, digest, 0.0, say)


def _from_archive(digest: str, say: Progress) -> Kernel:
    """The newest source of the archive that our edits and options fit. Raises KernelError."""
    skipped: list[tuple[int, ...]] = []
    first: KernelError | None = None
    while True:
        began = time.monotonic()
        try:
            source = kernel_fetch.fetch(cache_directory() / "sources", say, skipped)
        except KernelError as error:
            raise first or NoSourceError(str(error)) from None
        try:
            return _from_source(source, digest, time.monotonic() - began, say)
        except EditError as error:
            say(f"{error}; trying the source before it")
            first = first or error
            skipped.append(source.series)


def _from_source(source: Source, digest: str, fetch_s: float, say: Progress) -> Kernel:
    """Under the lock. What is half done is in a directory that goes in any case."""
    try:
        sha256 = kernel_fetch.sha256_of(source.path)
    except OSError as error:
        raise KernelError(f"{source.path}: {error.strerror}") from None
    for kernel, build in _cached(digest):
        if build.source_sha256 == sha256:
            return kernel
    if missing := missing_tools(source.path.name):
        raise KernelError(missing)
    directory = kernels_directory()
    free = shutil.disk_usage(directory).free
    if free < NEEDED_BYTES:
        raise KernelError(
            f"{directory}: found {free >> 20} MB free; valid: {NEEDED_BYTES >> 20} MB, "
            "or DOWNPOUR_CACHE=a directory elsewhere"
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
            compiler=compiler(),
            seccomp=has_seccomp(tree),
            fetch_s=round(fetch_s, 1),
            unpack_s=round(unpack_s, 1),
            compile_s=round(time.monotonic() - began, 1),
            files=files,
            options_dropped=dropped,
        )
        return _store(work, tree, build)
    except OSError as error:
        raise KernelError(f"{error.filename or work}: {error.strerror}") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _store(work: Path, tree: Path, build: Build) -> Kernel:
    """Moves the result to its place in one rename."""
    result = work / "result"
    result.mkdir()
    (tree / "linux").rename(result / "linux")
    (tree / ".config").rename(result / ".config")
    (result / "build.json").write_text(json.dumps(asdict(build), indent=1) + "\n", encoding="utf-8")
    place = kernels_directory() / f"{build.version}-{build.digest}"
    if place.exists():
        place.rename(work / "replaced")
    result.rename(place)
    return Kernel(place / "linux", build.version, build.digest, build.seccomp)


def has_seccomp(tree: Path) -> bool:
    """Whether this source's User-Mode Linux knows the parameter seccomp=."""
    text = (tree / "arch/um/os-Linux/start_up.c").read_text(encoding="utf-8")
    return '__uml_setup("seccomp=' in text


def _environment() -> dict[str, str]:
    # The same binary whoever builds it, wherever and whenever.
    return {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "LC_ALL": "C",
        "KBUILD_BUILD_USER": "downpour",
        "KBUILD_BUILD_HOST": "downpour",
        "KBUILD_BUILD_TIMESTAMP": "Thu Jan  1 00:00:00 UTC 2026",
        "KBUILD_BUILD_VERSION": "1",
    }


def _configure(tree: Path, version: str) -> list[str]:
    """Writes .config; returns what was dropped. Raises KernelError, EditError."""
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
    """The complaints in a build's log: its first errors, else what make itself says at its end."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    ours = [line for line in lines if not line.startswith("make")]
    errors = [line for line in ours if re.search(r"\berror\b|can't|cannot|No space", line, re.I)]
    return "; ".join(errors[:3] or lines[-3:])


def is_step(line: str) -> bool:
    """A line of make's that says a file was made: two blanks, a word in capitals, its name."""
    return re.match(r"  [A-Z]+ (?:\[M\])? *\S", line) is not None


def progress_line(done: int, elapsed_s: float) -> str:
    """How far it is. The first files say little about the time that is left."""
    total = max(TYPICAL_FILES, done)
    text = f"compiled {done} of about {total} files, {minutes_text(elapsed_s)} elapsed"
    if done * 20 < total:
        return text
    return f"{text}, about {minutes_text(elapsed_s / done * (total - done))} left"


def _compile(tree: Path, version: str, say: Progress) -> int:
    """Returns the number of files made. Raises KernelError with the compiler's words."""
    cores = len(os.sched_getaffinity(0))
    say(f"compiling Linux {version} on {cores} core{'s' if cores > 1 else ''}, once")
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
    log: list[str] = []
    began = time.monotonic()
    finished = threading.Event()

    def tick() -> None:
        while not finished.wait(TICK_S):
            say(progress_line(sum(map(is_step, log)), time.monotonic() - began))

    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    try:
        assert process.stdout is not None
        with process.stdout as lines:
            log.extend(lines)
        code = process.wait()
    except BaseException:
        # Its own process group: also the compilers that make has started.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    finally:
        finished.set()
        ticker.join()
    if code != 0 or not (tree / "linux").is_file():
        kept = kernels_directory() / "failed-build.log"
        kept.write_text("".join(log), encoding="utf-8")
        raise KernelError(f"kernel {version}: make: {last_words(''.join(log))} (log: {kept})")
    return sum(map(is_step, log))


# --- the command --------------------------------------------------------------------------------


class Printer:
    """Progress as lines "kernel: ..."; on a terminal those that count overwrite each other."""

    def __init__(self, stream: IO[str], plain_every_s: float = 15.0) -> None:
        self._stream = stream
        self._tty = stream.isatty()
        self._every_s = plain_every_s
        self._next_s = 0.0

    def __call__(self, text: str) -> None:
        counting = text.startswith(("compiled", "fetched"))
        if self._tty:
            end = "" if counting else "\n"
            self._stream.write(f"\r\x1b[Kkernel: {text[:100] if counting else text}{end}")
        elif not counting or time.monotonic() >= self._next_s:
            self._stream.write(f"kernel: {text}\n")
            if counting:
                self._next_s = time.monotonic() + self._every_s
        self._stream.flush()

    def close(self) -> None:
        if self._tty:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def main(argv: Sequence[str]) -> int:
    """The command line. Exit codes: 0 there is a kernel, 1 there is none, 2 bad usage, 3 there is
    none because its source cannot be got here, 130 interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m virtual kernel",
        description="Builds the guest's kernel; returns at once if it is built.",
    )
    parser.add_argument("--source", type=Path, metavar="FILE", help="linux-source-*.tar.xz or .deb")
    parser.add_argument(
        "--no-download", action="store_true", help="only what lies in /usr/src, even if it is old"
    )
    options = parser.parse_args(argv)
    printer = Printer(sys.stderr)
    began = time.monotonic()
    known = find_kernel()
    try:
        kernel = ensure_kernel(printer, source=options.source, download=not options.no_download)
    except KernelError as error:
        printer.close()
        print(f"kernel: {error}", file=sys.stderr)
        return 3 if isinstance(error, NoSourceError) else 1
    except KeyboardInterrupt:
        printer.close()
        print("kernel: interrupted; what was fetched is kept", file=sys.stderr)
        return 130
    printer.close()
    mode = "seccomp" if kernel.seccomp else "ptrace"
    what = "is there"
    if kernel != known:
        what = f"is ready after {minutes_text(time.monotonic() - began)}"
    print(f"kernel: Linux {kernel.version} ({mode} mode) {what}: {kernel.path}")
    return 0
