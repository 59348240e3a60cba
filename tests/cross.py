# SPDX-License-Identifier: Apache-2.0
"""Run the C unit tests for other architectures: `python -m tests.cross s390x|armhf`.

s390x is big-endian, armhf has 32-bit words; both run under qemu-user. Slow tests, scripts and what
qemu-user cannot run (NOT_UNDER_QEMU) are left out. apt fetches the architecture's libraries, with
its own lists, and this module unpacks them below build/cross/ARCH/root. The machine does not
change; dpkg does not learn the architecture.

Exit codes: 0 passed, 1 failed, 2 bad usage, 3 no compiler, qemu or packages here (the last line
says why; `ansible/setup --tags cross` installs compilers and qemu).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
WHERE: Final = ROOT / "build" / "cross"
EXIT_MISSING: Final = 3
MIRROR: Final = "http://deb.debian.org/debian"
LIBRARIES: Final = (
    *("libc6-dev", "libcmocka-dev", "libcurl4-openssl-dev", "libisal-dev", "libjansson-dev"),
    *("libexpat1-dev", "libpcre2-dev", "libseccomp-dev", "libssl-dev", "zlib1g-dev"),
)
# Test -> why it cannot run where qemu-user is between it and the kernel.
NOT_UNDER_QEMU: Final = {
    "fmtp-auth": "qemu-user lacks IP_MULTICAST_IF",
    "fmtp-loop": "qemu-user lacks IP_MULTICAST_IF",
    "fmtp-published_sockets": "qemu-user lacks IP_MULTICAST_IF",
    "fmtp-places": "runs itself again, by unshare",
    "fmtp-batches": "qemu-user lacks the ancillary data of UDP_GRO",
    "transport-batches": "qemu-user lacks the ancillary data of UDP_GRO",
    "ldm7-log": "qemu-user shows its own command line",
    "ldmd-congestion": "qemu-user lacks TCP_CONGESTION",
    "pqact-act": "qemu-user turns vfork into fork, so that a missing program shows late",
    "common-datadir": "qemu-user lacks openat2",
    "ldm7-tools": "starts programs",
    "ldm7-pqtools": "starts programs",
    "ldm7-pq_kill": "qemu-user has no robust mutexes",
    "ldm7-pq_step": "qemu-user does not trace",
    "ldm7-pq_processes": "qemu-user has no robust mutexes",
    "ldm7-pq_lookup": "qemu-user has no robust mutexes",
}


@dataclass(frozen=True)
class Architecture:
    """An architecture: Debian's `name`, the compilers' `triple`, Meson's `family`."""

    name: str
    triple: str
    family: str
    endian: str
    qemu: str


ARCHITECTURES: Final = {
    a.name: a
    for a in (
        Architecture("s390x", "s390x-linux-gnu", "s390x", "big", "qemu-s390x"),
        Architecture("armhf", "arm-linux-gnueabihf", "arm", "little", "qemu-arm"),
    )
}


class CannotHave(Exception):
    """This machine lacks something. The text says what."""


def library_dirs(arch: Architecture, root: Path) -> list[Path]:
    """Return where the architecture's libraries are below `root`."""
    return [root / "usr/lib" / arch.triple, root / "lib" / arch.triple]


def run(argv: Sequence[str], env: dict[str, str] | None = None) -> None:
    """Run a program. Raises CannotHave with the last line that it printed."""
    done = subprocess.run(argv, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise CannotHave(f"{argv[0]}: {said[-1] if said else done.returncode}")


def codename() -> str:
    """Return the name of this Debian's release. Raises CannotHave elsewhere."""
    lines = Path("/etc/os-release").read_text().splitlines()
    facts = dict(line.split("=", 1) for line in lines if "=" in line)
    if facts.get("ID") != "debian":
        raise CannotHave("cross tests need Debian's cross compilers and libraries")
    return facts["VERSION_CODENAME"]


def fetch(arch: Architecture, root: Path) -> None:
    """Unpack the architecture's libraries below `root`. Raises CannotHave."""
    home = root.parent
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    (home / "state/status").write_text("")
    (home / "sources.list").write_text(f"deb {MIRROR} {codename()} main\n")
    (home / "apt.conf").write_text(
        f'Dir::State "{home}/state";\nDir::State::status "{home}/state/status";\n'
        f'Dir::Cache "{home}/cache";\nDir::Etc::sourcelist "{home}/sources.list";\n'
        'Dir::Etc::sourceparts "-";\nAPT::Sandbox::User "";\nDebug::NoLocking "1";\n'
        f'APT::Architecture "{arch.name}";\nAPT::Architectures {{ "{arch.name}"; }};\n'
    )
    env = {**os.environ, "APT_CONFIG": str(home / "apt.conf"), "DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "update"], env)
    install = ["apt-get", "-y", "--no-install-recommends", "--download-only", "install"]
    run([*install, *LIBRARIES], env)
    new = root.with_name("root.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    for package in sorted((home / "cache/archives").glob("*.deb")):
        run(["dpkg-deb", "-x", str(package), str(new)])
    shutil.rmtree(home / "cache")
    new.rename(root)


def cross_file(arch: Architecture, root: Path) -> str:
    """Return Meson's description of the architecture."""
    dirs = library_dirs(arch, root)
    link = [f"--sysroot={root}", *(f"-L{d}" for d in dirs)]
    link += [f"-Wl,-rpath-link,{d}" for d in dirs]
    lines = ["[binaries]", f"c = ['{arch.triple}-gcc']", f"ar = '{arch.triple}-ar'"]
    lines += [f"strip = '{arch.triple}-strip'", "pkgconfig = 'pkg-config'"]
    lines += [f"exe_wrapper = ['{arch.qemu}', '-L', '{root}']"]
    pkgconfig = f"{dirs[0]}/pkgconfig:{root}/usr/share/pkgconfig"
    lines += ["[properties]", f"pkg_config_libdir = '{pkgconfig}'", f"sys_root = '{root}'"]
    lines += ["needs_exe_wrapper = true"]
    lines += ["[built-in options]", f"c_link_args = {link}"]
    lines += [f"c_args = ['--sysroot={root}', '-isystem', '{root}/usr/include']"]
    lines += ["[host_machine]", "system = 'linux'", f"cpu_family = '{arch.family}'"]
    lines += [f"cpu = '{arch.family}'", f"endian = '{arch.endian}'"]
    return "\n".join(lines) + "\n"


def unit_tests(build: Path, arch: Architecture) -> list[str]:
    """Return the tests that are plain C programs; print which tests are left out, and why."""
    text = subprocess.run(
        ["meson", "introspect", str(build), "--tests"], capture_output=True, text=True, check=True
    ).stdout
    chosen = []
    for test in json.loads(text):
        slow = any(suite.endswith(":slow") for suite in test["suite"])
        if slow or any(word.endswith((".py", ".sh")) for word in test["cmd"]):
            continue
        if test["name"] in NOT_UNDER_QEMU:
            print(f"SKIPPED {test['name']} on {arch.name}: {NOT_UNDER_QEMU[test['name']]}")
        else:
            chosen.append(test["name"])
    return chosen


def check(arch: Architecture) -> int:
    """Build and run the C tests; return Meson's exit code. Raises CannotHave."""
    for program in (f"{arch.triple}-gcc", arch.qemu):
        if not shutil.which(program):
            raise CannotHave(f"{program} is missing; `ansible/setup --tags cross` installs it")
    root, build = WHERE / arch.name / "root", WHERE / arch.name / "build"
    if not root.exists():
        fetch(arch, root)
    if not (build / "build.ninja").exists():
        shutil.rmtree(build, ignore_errors=True)
        described = WHERE / arch.name / "cross.ini"
        described.write_text(cross_file(arch, root))
        setup = ["meson", "setup", str(build), str(ROOT), "--cross-file", str(described)]
        code = subprocess.run([*setup, "-Dbuildtype=debugoptimized"]).returncode
        if code != 0:
            return code
    code = subprocess.run(["ninja", "-C", str(build)]).returncode
    if code != 0:
        return code
    tests = ["meson", "test", "-C", str(build), "--no-rebuild", "--print-errorlogs"]
    return subprocess.run(
        [*tests, "--timeout-multiplier", "20", *unit_tests(build, arch)]
    ).returncode


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that this module describes; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.cross", description=__doc__)
    parser.add_argument("architecture", choices=sorted(ARCHITECTURES))
    try:
        return 1 if check(ARCHITECTURES[parser.parse_args(argv).architecture]) else 0
    except CannotHave as missing:
        print(f"SKIPPED: {missing}")
        return EXIT_MISSING


if __name__ == "__main__":
    sys.exit(main())
