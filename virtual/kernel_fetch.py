# SPDX-License-Identifier: Apache-2.0
"""Where the kernel's source comes from: a file, /usr/src, or Debian's archive. No root needed.

Only kernels from 6.16 on can run a guest's programs without ptrace ("seccomp mode"), which makes a
system call twice as fast; stable distributions have older ones. So a source that Debian has
packaged is fetched, by apt with its own directories: the machine's stay as they are. Digits of
results depend on the kernel, so the pinned source, named by its SHA-256, is used; the newest is an
option. apt verifies the signature with the keys of the machine's debian-archive-keyring.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.quantities import duration_text
from virtual.kernel_source import KernelError

Progress = Callable[[str], None]
Version = tuple[int, ...]

SECCOMP_SINCE: Final = (6, 16)
SUITE: Final = "trixie-backports"
KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
MIRROR: Final = "http://deb.debian.org/debian"
USR_SRC: Final = Path("/usr/src")
TICK_S: Final = 1.0
_NAME: Final = re.compile(r"linux-source-(\d+(?:\.\d+)+)(?:_(\S+)_all)?\.(deb|tar\.(?:xz|bz2|gz))")

# Large, and not needed for ARCH=um, which takes arch/um, arch/x86 and drivers/{base,char,net,tty}.
# Kconfig files are read everywhere.
EXCLUDED: Final = (
    "*/arch/[!ux]*/*.[chS]",
    "*/arch/*.dts",
    "*/arch/*.dtsi",
    "*/arch/x86/kvm/*.[chS]",
    "*/drivers/[!bcnt]*/*.[chS]",
    "*/drivers/clk/*.[ch]",
    "*/drivers/crypto/*.[ch]",
    "*/drivers/net/ethernet/*.[ch]",
    "*/drivers/net/wireless/*.[ch]",
    "*/Documentation/*/*",
    "*/rust/*.rs",
    "*/samples/*.[ch]",
    "*/sound/*.[ch]",
    "*/tools/perf",
    "*/tools/testing",
)


@dataclass(frozen=True)
class Source:
    """A packaged kernel source. `series`: (7, 3); `package_version`: "" if the file does not
    say."""

    path: Path
    series: Version
    package_version: str

    @property
    def seccomp(self) -> bool:
        """Return whether its guests run without ptrace."""
        return self.series >= SECCOMP_SINCE

    @property
    def title(self) -> str:
        """Return its version, as exactly as the file states it."""
        return self.package_version or ".".join(map(str, self.series))


@dataclass(frozen=True)
class Pin:
    """One package of a kernel source, byte for byte."""

    name: str
    version: str
    sha256: str


# The kernel that the documentation's figures were measured with. A new pin means measuring them
# again.
PINNED: Final = Pin(
    "linux-source-7.3",
    "7.3.4-1~bpo13+1",
    "703e369ddd4cce971452f5a593ee55df3a5c10c83caf0fa0df039633ed181ee3",
)


class PinError(KernelError):
    """The pinned source is not available; the text says why."""


def is_pinned(path: Path, pin: Pin = PINNED) -> bool:
    """Return whether a file is the pinned source, byte for byte."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == pin.sha256


def source_of(path: Path) -> Source:
    """Return a source by its file's name. Raises KernelError for a name without a version."""
    found = _NAME.fullmatch(path.name)
    if found is None:
        raise KernelError(
            f"found source '{path}'; valid: linux-source-VERSION.tar.xz (bz2, gz) "
            "or the .deb that holds it"
        )
    series, package, _ = found.groups()
    # apt writes the epoch's colon, and "~", either literally or as %XX.
    return Source(path, tuple(int(n) for n in series.split(".")), package or "")


def newest(paths: Iterable[Path]) -> Source | None:
    """Return the source of the highest version; names of other forms are ignored."""
    sources = [source_of(p) for p in paths if _NAME.fullmatch(p.name) is not None]
    return max(sources, key=lambda s: (s.series, _natural(s.package_version)), default=None)


def _natural(text: str) -> list[tuple[int, str]]:
    return [(int(n or 0), word) for word, n in re.findall(r"(\D*)(\d*)", text)]


def installed(directory: Path = USR_SRC) -> Source | None:
    """Return the newest source that a package of the distribution has installed (Debian: the file
    itself, Ubuntu: in a directory of its name)."""
    patterns = ("linux-source-*.tar.*", "linux-source-*/linux-source-*.tar.*")
    return newest(p for pattern in patterns for p in directory.glob(pattern) if p.is_file())


def mirror_in(indextargets: str) -> str:
    """Return the machine's mirror of Debian from the lines 'ORIGIN|LABEL|URI' of apt-get
    indextargets; the public one if it has none."""
    for line in indextargets.splitlines():
        origin, label, uri = line.split("|", 2)
        if (origin, label) == ("Debian", "Debian"):
            return uri.rstrip("/")
    return MIRROR


def offered(packages: str) -> list[tuple[str, str, int]]:
    """Return name, version and size in bytes of the kernel sources in the text of `apt-cache show`,
    the newest first, one per name, only those with seccomp mode."""
    best: dict[Version, tuple[str, str, int]] = {}
    for paragraph in packages.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|Size): (\S+)$", paragraph, re.MULTILINE))
        name = re.fullmatch(r"linux-source-(\d+(?:\.\d+)+)", fields.get("Package", ""))
        if name is None or "Version" not in fields:
            continue
        series = tuple(int(n) for n in name[1].split("."))
        entry = (name[0], fields["Version"], int(fields.get("Size", "0")))
        known = best.get(series)
        if series >= SECCOMP_SINCE and (known is None or _natural(entry[1]) > _natural(known[1])):
            best[series] = entry
    return [best[series] for series in sorted(best, reverse=True)]


class Apt:
    """apt with its own state, cache and source in `directory`."""

    def __init__(self, directory: Path, mirror: str, keyring: Path) -> None:
        self._directory = directory
        for part in ("state/lists/partial", "cache/archives/partial"):
            (directory / part).mkdir(parents=True, exist_ok=True)
        (directory / "status").touch()
        (directory / "sources.list").write_text(
            f"deb [signed-by={keyring}] {mirror} {SUITE} main\n", encoding="utf-8"
        )

    def options(self) -> list[str]:
        """Return the options that keep apt in the directory."""
        place = self._directory
        settings = {
            "Dir::State": f"{place}/state",
            "Dir::State::status": f"{place}/status",
            "Dir::Cache": f"{place}/cache",
            "Dir::Etc::sourcelist": f"{place}/sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "Acquire::Languages": "none",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
            "Acquire::Retries": "2",
            # This user owns its directories: apt's own user cannot write there.
            "APT::Sandbox::User": "root",
        }
        return [word for item in settings.items() for word in ("-o", "=".join(item))]

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of apt to its end."""
        return subprocess.run(
            [program, *self.options(), "-q", *arguments],
            cwd=self._directory,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def sources(self) -> list[tuple[str, str, int]]:
        """Return what `offered` finds. Raises KernelError with apt's words."""
        updated = self.run("apt-get", "update")
        names = self.run("apt-cache", "pkgnames", "linux-source-").stdout.split()
        # A failing hook of the machine makes apt-get fail, so only the result counts.
        found = offered(self.run("apt-cache", "show", *names).stdout) if names else []
        if not found:
            words = apts_words(updated.stderr) or "the suite has none"
            raise KernelError(f"apt-get update of {SUITE}: no kernel source: {words}")
        return found

    def download(self, name: str, version: str, size: int, progress: Progress) -> Path:
        """Download a package; return its file. Raises KernelError with apt's words."""
        process = subprocess.Popen(
            ["apt-get", *self.options(), "-q", "download", f"{name}={version}"],
            cwd=self._directory,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        began = time.monotonic()
        try:
            while True:
                try:
                    words, _ = process.communicate(timeout=TICK_S)
                    break
                except subprocess.TimeoutExpired:
                    here = sum(p.stat().st_size for p in self._directory.glob(f"{name}_*.deb*"))
                    here += sum(p.stat().st_size for p in self._directory.rglob("partial/*.deb*"))
                    progress(
                        f"fetched {here >> 20} of {size >> 20} MB of {name}, "
                        f"{duration_text(time.monotonic() - began)} elapsed"
                    )
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        found = newest(self._directory.glob(f"{name}_*.deb"))
        if process.returncode != 0 or found is None:
            raise KernelError(f"apt-get download {name}: {apts_words(words) or words[-300:]}")
        return found.path


def apts_words(text: str) -> str:
    """Return apt's errors and warnings, without messages of the machine's hooks."""
    lines = [line.strip() for line in text.splitlines()]
    return "; ".join(line for line in lines if line.startswith(("E:", "W:", "Err:")))


def machine_mirror() -> str:
    """Return the Debian mirror of the machine's own apt configuration."""
    result = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return mirror_in(result.stdout)


def fetch(store: Path, progress: Progress, skip: Sequence[Version] = ()) -> Source:
    """Return the newest source that Debian has packaged, of no series in `skip`, as a file in
    `store`; what was fetched before is used without asking the archive. Raises KernelError."""
    return _fetch(store, progress, skip, None)


def fetch_pinned(store: Path, progress: Progress, pin: Pin = PINNED) -> Source:
    """Return the pinned source in the same way, and no other bytes. Raises PinError if there is an
    archive but it lacks that source, else KernelError."""
    return _fetch(store, progress, (), pin)


def _fetch(store: Path, progress: Progress, skip: Sequence[Version], pin: Pin | None) -> Source:
    store.mkdir(parents=True, exist_ok=True)
    kept = newest(
        p
        for p in store.glob("*.deb")
        if (source_of(p).series not in skip if pin is None else is_pinned(p, pin))
    )
    if kept is not None:
        return kept
    if shutil.which("apt-get") is None:
        raise KernelError("found no apt-get: cannot fetch a kernel source; valid: --source FILE")
    if not KEYRING.exists():
        raise KernelError(
            f"found no {KEYRING}: cannot verify Debian's kernel source; "
            "get it: apt install debian-archive-keyring"
        )
    complaints = []
    # The machine's mirror may lack the suite.
    for mirror in dict.fromkeys((machine_mirror(), MIRROR)):
        with tempfile.TemporaryDirectory(prefix=".apt-", dir=store) as place:
            apt = Apt(Path(place), mirror, KEYRING)
            try:
                progress(f"asking {mirror} for {SUITE}")
                choice = [
                    entry for entry in apt.sources()
                    if source_of(Path(f"{entry[0]}.tar.xz")).series not in skip
                    and (pin is None or entry[:2] == (pin.name, pin.version))
                ]  # fmt: skip
                if not choice and pin is not None:
                    raise PinError(f"{SUITE} has no {pin.name} {pin.version} any more")
                if not choice:
                    raise KernelError(f"{SUITE} has no other kernel source")
                name, version, size = choice[0]
                progress(f"fetching {name} {version}, {size >> 20} MB")
                file = apt.download(name, version, size, progress)
                if pin is not None and not is_pinned(file, pin):
                    raise PinError(f"found other bytes than SHA-256 {pin.sha256} in {file.name}")
                target = store / file.name
                file.rename(target)
                return source_of(target)
            except KernelError as error:
                complaints.append(f"{mirror}: {error}")
    raise (KernelError if pin is None else PinError)("; ".join(complaints))


def unpack(source: Source, tree: Path) -> None:
    """Unpack what a build for ARCH=um needs of the source into the new directory `tree`. Raises
    KernelError."""
    tree.mkdir()
    name = source.path.name
    suffix = "tar.xz"
    commands: list[list[str]] = []
    if name.endswith(".deb"):
        commands.append(["dpkg-deb", "--fsys-tarfile", str(source.path)])
        commands.append(["tar", "-xO", "--wildcards", "./usr/src/linux-source-*.tar.xz"])
    else:
        suffix = name.partition(".tar")[1] + name.partition(".tar")[2]
        commands.append(["cat", str(source.path)])
    # The archive consists of independent blocks, so xz can use all cores.
    decompress = {"xz": "xz -T0", "bz2": "bzip2", "gz": "gzip"}[suffix.rpartition(".")[2]]
    excluded = [f"--exclude={pattern}" for pattern in EXCLUDED]
    commands.append(
        ["tar", "-x", "-f", "-", "-I", decompress, "-C", str(tree), "--strip-components=1",
         "--anchored", "--wildcards", "--wildcards-match-slash", *excluded]
    )  # fmt: skip
    with tempfile.TemporaryFile() as complaints:
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for command in commands:
                last = command is commands[-1]
                processes.append(
                    subprocess.Popen(
                        command,
                        stdin=processes[-1].stdout if processes else subprocess.DEVNULL,
                        stdout=None if last else subprocess.PIPE,
                        stderr=complaints,
                    )
                )
                if len(processes) > 1:
                    before = processes[-2].stdout
                    assert before is not None
                    before.close()
            codes = [process.wait() for process in processes]
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        complaints.seek(0)
        words = " ".join(complaints.read().decode(errors="replace").split())
    if codes[-1] != 0 or not (tree / "Makefile").is_file():
        raise KernelError(f"{source.path}: cannot unpack a kernel source: {words[-400:] or codes}")


def version_of(tree: Path) -> str:
    """Return VERSION.PATCHLEVEL.SUBLEVEL of an unpacked source. Raises KernelError."""
    try:
        text = (tree / "Makefile").read_text(encoding="utf-8")
    except OSError as error:
        raise KernelError(f"{tree}/Makefile: {error.strerror}") from None
    found = dict(re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL) *= *(\d+)", text, re.MULTILINE))
    if len(found) != 3:
        raise KernelError(f"{tree}/Makefile: found no VERSION, PATCHLEVEL, SUBLEVEL")
    return f"{found['VERSION']}.{found['PATCHLEVEL']}.{found['SUBLEVEL']}"
