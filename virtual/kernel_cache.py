# SPDX-License-Identifier: Apache-2.0
"""Finds built kernels of guests, and the one that fits this version's inputs.

A kernel belongs to a digest of all its inputs: configuration, drop-ins, edits, compiler. Places are
searched in this order: the file that DOWNPOUR_KERNEL names; the user's cache; the machine's cache,
which root fills and everybody reads; what packages have installed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Literal

from common import digests
from common.places import OWN, PREFIXES
from virtual import kernel_source
from virtual.cores import cache_directory
from virtual.kernel_fetch import PINNED
from virtual.kernel_source import DROP_INS, KernelError

CONFIG: Final = DROP_INS / "downpour.config"
KERNEL_FILE: Final = "DOWNPOUR_KERNEL"  # environment: a built kernel to use, or NEWEST
NEWEST: Final = "newest"
COMPRESSED: Final = ".xz"  # how the name of a release's file ends
CACHE: Final = "DOWNPOUR_CACHE"  # environment: the only cache to use
# Root's builds go here; users only read it.
MACHINE_CACHE: Final = Path("/var/cache/downpour")
PACKAGED: Final = tuple(prefix / OWN for prefix in PREFIXES)


@dataclass(frozen=True)
class Kernel:
    """A built kernel. `version`: as "7.2.11"; `digest`: of its inputs; `seccomp`: it can run
    programs without ptrace (twice as fast); `source_sha256`: of its source, `sha256`: its own, as
    far as they are known."""

    path: Path
    version: str
    digest: str
    seccomp: bool
    source_sha256: str = ""
    sha256: str = ""

    @classmethod
    def of(cls, path: Path, build: Build) -> Kernel:
        """Return the kernel at a place, as its digest file describes it."""
        known = (build.version, build.digest, build.seccomp, build.source_sha256, build.sha256)
        return cls(path, *known)


@dataclass(frozen=True)
class Build:
    """`build.json` beside a kernel. Times in seconds of real time; `options_dropped`: asked for,
    but not known to this version; `origin`: whether this machine built it or a file was installed;
    `sha256`: of the kernel, "" for a kernel built before this was recorded."""

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
    origin: Literal["built", "installed"] = "built"
    sha256: str = ""


def parse_build(text: str) -> Build:
    """Read the text of build.json; keys that this version does not know are left out. Raises
    ValueError, which says what is missing or of the wrong type."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("found no object; valid: a JSON object")
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Build):
        value = found.get(field.name)
        if value is None and field.default is not dataclasses.MISSING:
            continue
        number = field.name in ("fetch_s", "unpack_s", "compile_s", "files")
        kind = (
            (int, float) if number
            else bool if field.name == "seccomp"
            else list if field.name == "options_dropped"
            else str
        )  # fmt: skip
        if not isinstance(value, kind):
            raise ValueError(f"found {field.name} {json.dumps(value)}")
        values[field.name] = value
    return Build(**values)


# --- what goes in -------------------------------------------------------------------------------


def _without_comments(source: bytes) -> bytes:
    """Return C code without its comments, which do not change a kernel."""
    return re.sub(rb"/\*.*?\*/", b"", source, flags=re.DOTALL)


def digest_of(inputs: Mapping[str, bytes]) -> str:
    """Return 12 hexadecimal digits of a hash over names and contents."""
    total = hashlib.sha256()
    for name, data in sorted(inputs.items()):
        total.update(f"{name}\0{len(data)}\0".encode() + data)
    return total.hexdigest()[:12]


@functools.cache
def compiler() -> str:
    """Return the first line of gcc --version; "" if there is no gcc."""
    with contextlib.suppress(OSError):
        result = subprocess.run(["gcc", "--version"], capture_output=True, text=True, check=False)
        return result.stdout.partition("\n")[0]
    return ""


def current_digest(built_by: str | None = None) -> str:
    """Return the digest of the present configuration, drop-ins and edits, and of the compiler: this
    machine's, or the named one."""
    inputs = {
        file.name: _without_comments((DROP_INS / file.name).read_bytes())
        for file in kernel_source.FILES
    }
    inputs["config"] = CONFIG.read_bytes()
    inputs["places"] = repr((kernel_source.FILES, kernel_source.EDITS)).encode()
    inputs["compiler"] = (compiler() if built_by is None else built_by).encode()
    return digest_of(inputs)


# --- where kernels are ---------------------------------------------------------------------------


def kernels_directory() -> Path:
    """Return where this user's builds go: DOWNPOUR_CACHE, else the machine's cache for root, else
    the user's own."""
    if os.geteuid() == 0 and CACHE not in os.environ:
        return MACHINE_CACHE / "kernels"
    return cache_directory() / "kernels"


def sources_directory() -> Path:
    """Return the directory of fetched kernel sources."""
    return kernels_directory().parent / "sources"


def read_directories() -> list[Path]:
    """Return the directories of kernels, in the order of search. DOWNPOUR_CACHE replaces all of
    them."""
    places = [cache_directory()]
    if CACHE not in os.environ:
        places += [MACHINE_CACHE, *PACKAGED]
    return [place / "kernels" for place in dict.fromkeys(places) if _is_trusted(place)]


def _is_trusted(place: Path) -> bool:
    """Return whether only root and this user can put programs there; true for an absent
    directory."""
    try:
        found = place.stat()
    except OSError:
        return True
    return _owner(found) in (0, os.geteuid()) and not found.st_mode & stat.S_IWOTH


def _owner(found: os.stat_result) -> int:
    return found.st_uid


def built_in(directory: Path) -> tuple[Kernel, Build] | None:
    """Return the kernel in its own directory, None if there is none."""
    try:
        build = parse_build((directory / "build.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    path = directory / "linux"
    if not os.access(path, os.X_OK):
        return None
    return Kernel.of(path, build), build


def _preference(entry: tuple[Kernel, Build]) -> tuple[bool, list[int]]:
    """Return a key by which the pinned source's kernel wins, unless the newest is asked for."""
    pinned = entry[1].source_sha256 == PINNED.sha256 and not wants_newest()
    return pinned, [int(n) for n in entry[0].version.split(".")]


def wants_newest() -> bool:
    """Return whether DOWNPOUR_KERNEL asks for the newest source instead of the pinned one."""
    return os.environ.get(KERNEL_FILE) == NEWEST


def kernel_file_given() -> Path | None:
    """Return the file that DOWNPOUR_KERNEL names, if any."""
    given = os.environ.get(KERNEL_FILE)
    return Path(given) if given and given != NEWEST else None


def fits(build: Build, digest: str = "") -> bool:
    """Return whether a kernel was built from the present inputs: `digest` is of those with this
    machine's compiler; "": any compiler will do. A kernel installed from a file may come from any
    compiler."""
    if digest and build.origin == "built":
        return build.digest == digest
    return build.digest == current_digest(build.compiler)


def cached(directory: Path, digest: str = "") -> list[tuple[Kernel, Build]]:
    """Return the kernels of a directory that `fits` (with `digest`) accepts: the one of the pinned
    source first, then the newest."""
    found = [built_in(path) for path in directory.glob("*-*") if not path.name.startswith(".")]
    return sorted(
        (entry for entry in found if entry is not None and fits(entry[1], digest)),
        key=_preference,
        reverse=True,
    )


def find_kernel() -> Kernel | None:
    """Return the first kernel that fits, in the order above; of several in one place that of the
    pinned source, else the newest; None if there is none. Builds nothing. A machine without a
    compiler (a container, a student's seat) takes a kernel that another machine has built. Raises
    KernelError if the file that DOWNPOUR_KERNEL names does not fit."""
    if given := kernel_file_given():
        return named_kernel(given)
    own = current_digest() if compiler() else ""
    for directory in read_directories():
        packaged = directory.parent in PACKAGED
        if found := cached(directory, "" if packaged else own):
            return found[0][0]
    return None


# --- a kernel in a file -------------------------------------------------------------------------


def description_of(file: Path) -> Build:
    """Read the digest file of a kernel: FILE.json, or build.json in its directory. Raises
    KernelError if there is none, or if it describes a kernel of other inputs than this
    version's."""
    candidates = (file.with_name(f"{file.name}.json"), file.with_name("build.json"))
    for candidate in candidates:
        try:
            build = parse_build(candidate.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise KernelError(
                f"{candidate}: {error}; valid: as `virtual kernel --export` writes"
            ) from None
        if not fits(build):
            raise KernelError(
                f"{candidate}: found configuration digest {build.digest}; valid: "
                f"{current_digest(build.compiler)}, which this version of Downpour puts in"
            )
        return build
    raise KernelError(
        f"{file}: found no {' and no '.join(c.name for c in candidates)} beside it; "
        "valid: a kernel with its digest file, as `virtual kernel --export` writes"
    )


def check_content(file: Path, build: Build) -> None:
    """Raise KernelError unless the bytes of the kernel `file` are those that `build` describes."""
    try:
        found = digests.digest_of(file).sha256
    except OSError as error:
        raise KernelError(f"{file}: {error.strerror}") from None
    if build.sha256 and found != build.sha256:
        raise KernelError(f"{file}: found sha256 {found}; valid: {build.sha256}")


def named_kernel(file: Path) -> Kernel | None:
    """Return the kernel in `file`, after checking its digest file; for a release's compressed file
    the installed kernel that it holds, or None until `ensure_kernel` has installed it. Raises
    KernelError."""
    try:
        if not file.is_file():
            raise KernelError(f"{KERNEL_FILE}: found '{file}'; valid: a file with a built kernel")
        build = description_of(file)
        if file.suffix == COMPRESSED:
            return _installed(build)
        check_content(file, build)
    except OSError as error:
        raise KernelError(f"{KERNEL_FILE}: {file}: {error.strerror}") from None
    if not os.access(file, os.X_OK):
        raise KernelError(
            f"{KERNEL_FILE}: found '{file}', which cannot be executed; valid: a built kernel, or a "
            f"release's file (its name ends in {COMPRESSED})"
        )
    return Kernel.of(file.resolve(), build)


def _installed(build: Build) -> Kernel | None:
    """Return the kernel of the caches that is byte for byte the one that `build` describes."""
    for directory in read_directories():
        for kernel, found in cached(directory):
            if build.sha256 and found.sha256 == build.sha256:
                return kernel
    return None


# --- one builder at a time ----------------------------------------------------------------------


def _flock(stream: IO[bytes], waits: Callable[[], None]) -> bool:
    """Lock `stream`; if another process holds it, call `waits`, wait for it, and return True."""
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        waits()
        fcntl.flock(stream, fcntl.LOCK_EX)
        return True
    return False


def waited_for_machine_build(waits: Callable[[], None]) -> bool:
    """Return whether root was building a kernel for all users; if so, call `waits` first, and
    return when that build has ended."""
    if CACHE in os.environ or kernels_directory().parent == MACHINE_CACHE:
        return False
    with contextlib.suppress(OSError), (MACHINE_CACHE / "kernels/lock").open("rb") as stream:
        return _flock(stream, waits)
    return False


@contextmanager
def only_builder(waits: Callable[[], None]) -> Iterator[None]:
    """Hold the right to write to this user's kernels. Removes leftovers of a builder that was
    killed."""
    directory = kernels_directory()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        stream = (directory / "lock").open("ab")
        if directory.parent == MACHINE_CACHE:
            # Other users can read it, whatever root's umask.
            for place, mode in ((MACHINE_CACHE, 0o755), (directory, 0o755), ("lock", 0o644)):
                (directory / place).chmod(mode)
    except OSError as error:
        raise KernelError(
            f"cannot write to {directory}: {error.strerror}; "
            f"valid: {CACHE}=a directory that you may write to"
        ) from None
    with stream:
        _flock(stream, waits)
        for rest in directory.glob(".build-*"):
            shutil.rmtree(rest, ignore_errors=True)
        yield


def store(work: Path, kernel: Path, config: Path | None, build: Build) -> Kernel:
    """Rename a built kernel into place. `work`: a directory beside it. Raises OSError."""
    result = work / "result"
    result.mkdir()
    kernel.rename(result / "linux")
    if config is not None:
        config.rename(result / ".config")
    text = json.dumps(dataclasses.asdict(build), indent=1) + "\n"
    (result / "build.json").write_text(text, encoding="utf-8")
    result.chmod(0o755)
    (result / "linux").chmod(0o755)
    (result / "build.json").chmod(0o644)
    place = kernels_directory() / f"{build.version}-{build.digest}"
    if place.exists():
        place.rename(work / "replaced")
    result.rename(place)
    return Kernel.of(place / "linux", build)
