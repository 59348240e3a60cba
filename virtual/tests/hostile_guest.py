# SPDX-License-Identifier: Apache-2.0
"""Run by a guest's root: tries to reach the host. Prints a line for each attempt: "NAME held" or
"NAME FELL ...". Arguments: directories of the host (home, another student's, the guest's own), and
"all", or "mild" for attempts that harm nothing but the other student's directory."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

OWN = Path("/shared")
CHECKOUT = Path("/guest/checkout")


def attempt(name: str, got: object) -> None:
    print(name, f"FELL {got}" if got else "held", flush=True)


def tried(function: Callable[..., object], *arguments: object) -> bool:
    """Return whether the call succeeded."""
    try:
        function(*arguments)
    except OSError:
        return False
    return True


def read(*paths: Path) -> str:
    for path in paths:
        try:
            if path.is_file():
                return path.read_text(errors="replace")[:20]
        except OSError:
            pass
    return ""


def write(path: Path) -> bool:
    return tried(path.write_text, "from a guest")


def hostfs(name: str, path: str) -> Path | None:
    """Return a directory of the host, mounted; None if the mount is refused."""
    place = Path("/tmp/hosts") / name
    place.mkdir(parents=True)
    argv = ["mount", "-t", "hostfs", "-o", path, "none", str(place)]
    done = subprocess.run(argv, capture_output=True, check=False)
    return place if done.returncode == 0 else None


def checkout() -> None:
    subprocess.run(["mount", "-o", "remount,rw", str(CHECKOUT)], check=False, capture_output=True)
    attempt("remount", write(CHECKOUT / "GUEST_WROTE"))
    attempt("chmod-checkout", tried((CHECKOUT / "Makefile").chmod, 0o644))
    attempt("utime-checkout", tried(os.utime, CHECKOUT / "Makefile", (1, 1)))


def directories(places: dict[str, str]) -> None:
    for name, path in places.items():
        place = hostfs(name, path)
        if place is None:
            attempt(f"mount-{name}", False)
            continue
        attempt(f"write-{name}", write(place / "GUEST_WROTE"))
        attempt(f"unlink-{name}", tried(os.unlink, place / "victim"))
        attempt(f"mkdir-{name}", tried(os.mkdir, place / "GUEST_MADE"))
        attempt(f"read-{name}", read(*(place / n for n in ("secret", "id_ed25519", "shadow"))))


def through_root(root: Path, home: str, other: str) -> None:
    """Try to reach the same files through a hostfs of the whole host."""
    attempt("read-by-root", read(Path(f"{root}{home}/secret"), Path(f"{root}{other}/secret")))
    attempt("read-shadow", read(root / "etc/shadow", root / "etc/sudoers", root / "etc/gshadow"))
    attempt("overwrite-by-root", write(Path(f"{root}{other}/second")))
    attempt("truncate-by-root", tried(os.truncate, f"{root}{other}/second", 0))
    attempt("chmod-by-root", tried(os.chmod, f"{root}{other}/second", 0o777))
    attempt("utime-by-root", tried(os.utime, f"{root}{other}/second", (1, 1)))
    attempt("rename-by-root", tried(os.rename, f"{root}{other}/second", f"{root}{other}/third"))
    attempt("unix-socket", tried(_connect, f"{root}{other}/socket"))
    attempt("listen", tried(_listen, f"{root}{other}/listener"))
    attempt("hard-link", tried(os.link, f"{root}{other}/second", OWN / "hard"))


def _connect(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)


def _listen(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)


def processes(root: Path) -> None:
    for name in ("self/environ", "1/environ", "1/mem", "sysrq-trigger", "self/root/etc/shadow"):
        path = root / "proc" / name
        attempt(f"proc-{name}", read(path) or tried(path.open, "r+b"))
    place = hostfs("proc", "/proc")
    numbers: list[str] = []
    if place is not None:
        tried(lambda: numbers.extend(p.name for p in place.iterdir() if p.name.isdigit()))
    attempt("proc-mount", numbers)
    block = root / "dev/vda"
    attempt("disk", tried(block.open, "rb") or tried((root / "dev/mem").open, "rb"))


def traces(other: str) -> None:
    """Try to leave things that would mislead others in the directory that it may write."""
    shell = OWN / "sh"
    shell.write_bytes(Path("/bin/sh").read_bytes())
    attempt("setuid", tried(shell.chmod, 0o4755))
    attempt("setgid", tried(shell.chmod, 0o2755))
    tried(os.open, OWN / "su", os.O_CREAT | os.O_WRONLY, 0o4755)
    attempt("setuid-new", (OWN / "su").exists() and (OWN / "su").stat().st_mode & 0o6000)
    attempt("device", tried(os.mknod, OWN / "disk", 0o060660, os.makedev(254, 0)))
    attempt("null", tried(os.mknod, OWN / "null", 0o020660, os.makedev(1, 3)))
    attempt("fifo", tried(os.mkfifo, OWN / "fifo"))
    attempt("symlink", tried(os.symlink, f"{other}/victim", OWN / "link"))
    attempt("exchange-link", tried(os.symlink, "/etc/passwd", "/guest/exchange/exit.link"))
    attempt("chown", tried(os.chown, shell, 1, 1) and shell.stat().st_uid == 1)
    (OWN / "dir").mkdir()
    (OWN / "result").write_text("my own file")
    (OWN / "result").rename(OWN / "dir/result")
    (OWN / "dir/result").rename(OWN / "result")


def main(home: str, other: str, cell: str, kind: str) -> None:
    places = {"home": home, "other": other}
    if kind == "all":
        checkout()
        places |= {"root": "/", "tmp": "/tmp", "usr": "/usr", "etc": "/etc", "shm": "/dev/shm"}
        places |= {"dots": f"{cell}/../other", "var": "/var", "run": "/run", "roots": "/root"}
        places |= {"below": f"{cell}/..", "ssh": "/root/.ssh", "homes": "/home"}
    directories(places)
    root = Path("/tmp/hosts/root")
    if kind != "all":
        hostfs("root", "/")
    through_root(root, home, other)
    if kind == "all":
        processes(root)
    traces(other)
    print("end")


if __name__ == "__main__":
    main(*sys.argv[1:])
