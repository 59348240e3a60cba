# SPDX-License-Identifier: Apache-2.0
"""A guest's root against the host: what it cannot write, read, make or reach, with each kind of
wall, as root and as an ordinary user of the host."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.findings import ADVICE, MISSING, OK
from common.places import ROOT
from virtual import doctor, syscalls, walls
from virtual.call_filter import filter_program
from virtual.kernel_build import Kernel
from virtual.view import accounts, view_of, without_nested
from virtual.warden import LANDLOCK, NAMESPACES

USER = 12345  # no account has it


# -- without a kernel -------------------------------------------------------------------------


def under_filter(code: str, *, metadata: bool = True, connects: bool = False) -> dict[str, int]:
    """Run `code` under the filter; return what it puts into `found`. `refusal(call, ...)`: the
    number of the error, 0 for none."""
    program = f"""
import ctypes, errno, json, os, socket, stat, sys
sys.path.insert(0, {str(ROOT)!r})
from virtual import syscalls
from virtual.call_filter import filter_program
def refusal(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return error.errno
    return 0
found = {{}}
syscalls.no_new_privileges()
syscalls.install_filter(filter_program(metadata={metadata}, connects={connects}))
{code}
print(json.dumps(found))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_the_filter_refuses_traces_among_the_hosts_files(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    found = under_filter(f"""
os.chdir({str(tmp_path)!r})
found["link"] = refusal(os.symlink, "/etc/passwd", "link")
found["setuid"] = refusal(os.chmod, "f", 0o4755)
found["setgid"] = refusal(os.chmod, "f", 0o2755)
found["open"] = refusal(os.open, "new", os.O_CREAT | os.O_WRONLY, 0o4755)
found["mkdir"] = refusal(os.mkdir, "d", 0o2755)
found["fifo"] = refusal(os.mkfifo, "fifo")
found["device"] = refusal(os.mknod, "null", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
found["chown"] = refusal(os.chown, "f", 1, 1)
found["xattr"] = refusal(os.setxattr, "f", "user.x", b"x")
""")
    assert found == dict.fromkeys(found, errno.EPERM)
    assert len(found) == 9
    assert [p.name for p in tmp_path.iterdir()] == ["f"]
    assert not (tmp_path / "f").stat().st_mode & (stat.S_ISUID | stat.S_ISGID)


def test_the_filter_lets_ordinary_work_pass(tmp_path: Path) -> None:
    found = under_filter(f"""
os.chdir({str(tmp_path)!r})
found["file"] = refusal(os.open, "f", os.O_CREAT | os.O_RDWR, 0o640)
found["chmod"] = refusal(os.chmod, "f", 0o755)
found["times"] = refusal(os.utime, "f", (1, 1))
found["mkdir"] = refusal(os.mkdir, "d")
found["rename"] = refusal(os.rename, "f", "d/f")
found["socket"] = refusal(lambda: socket.socket(socket.AF_UNIX).bind("s"))
found["fork"] = refusal(lambda: os.fork() or os._exit(0))
""")
    assert found == dict.fromkeys(found, 0)
    assert len(found) == 7


def test_the_filter_refuses_datagrams_to_the_hosts_sockets(tmp_path: Path) -> None:
    """Datagrams (for example to the system's log) need no connection, and Landlock does not see
    them."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.bind(str(tmp_path / "log"))
        log.setblocking(False)
        found = under_filter(f"""
def send(make):
    made = make()
    one = made[0] if isinstance(made, tuple) else made
    one.sendto(b"from a guest", {str(tmp_path / "log")!r})
unix = socket.AF_UNIX
for name, kind in {{"datagram": 2, "raw": 3, "flags": 2 | socket.SOCK_CLOEXEC}}.items():
    found[name] = refusal(send, lambda: socket.socket(unix, kind))
    found[name + " pair"] = refusal(send, lambda: socket.socketpair(unix, kind))
found["stream pair"] = refusal(lambda: socket.socketpair(unix, socket.SOCK_STREAM))
""")
        with pytest.raises(BlockingIOError):
            log.recv(100)
    assert found.pop("stream pair") == 0
    assert found == dict.fromkeys(found, errno.EPERM)
    assert len(found) == 6


def test_the_filter_refuses_networks_namespaces_and_mounts() -> None:
    found = under_filter("""
found["internet"] = refusal(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
found["packets"] = refusal(socket.socket, 17, socket.SOCK_RAW)
found["connect"] = refusal(socket.socket(socket.AF_UNIX).connect, "/run/x")
found["unshare"] = refusal(syscalls.unshare, syscalls.CLONE_NEWUSER)
found["mount"] = refusal(syscalls.mount, "none", "/tmp", "tmpfs", 0)
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "")
found["clone"] = refusal(call, 56, syscalls.CLONE_NEWUSER | 17, 0, 0, 0, 0)
found["io_uring"] = refusal(call, 425, 8, 0)
found["x32"] = refusal(call, 0x40000000 | 39)
""")
    assert found.pop("internet") == found.pop("packets") == errno.EAFNOSUPPORT
    assert found.pop("io_uring") == found.pop("x32") == errno.ENOSYS
    assert found == dict.fromkeys(("connect", "unshare", "mount", "clone"), errno.EPERM)


def test_a_guest_in_parts_connects_to_its_calendar(tmp_path: Path) -> None:
    """It connects by a stream; datagrams and networks stay refused."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "calendar"))
        listener.listen(1)
        found = under_filter(
            f"""
calendar = socket.socket(socket.AF_UNIX)
found["connect"] = refusal(calendar.connect, {str(tmp_path / "calendar")!r})
found["datagrams"] = refusal(socket.socket, socket.AF_UNIX, socket.SOCK_DGRAM)
found["internet"] = refusal(socket.socket, socket.AF_INET, socket.SOCK_STREAM)
""",
            connects=True,
        )
    assert found == {"connect": 0, "datagrams": errno.EPERM, "internet": errno.EAFNOSUPPORT}


def test_without_read_only_mounts_modes_and_times_stay(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    found = under_filter(
        f"""
os.chdir({str(tmp_path)!r})
found["chmod"] = refusal(os.chmod, "f", 0o666)
found["times"] = refusal(os.utime, "f", (1, 1))
found["truncate"] = refusal(os.truncate, "f", 0)
""",
        metadata=False,
    )
    assert found == dict.fromkeys(("chmod", "times", "truncate"), errno.EPERM)


def test_the_filter_is_within_the_kernels_limit() -> None:
    assert len(filter_program(metadata=False)) // 8 < 4096


def test_only_accounts_of_programs_are_shown() -> None:
    text = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000:Ann:/home/ann:/bin/sh\nbad\n+::::::\n"
    assert accounts(text) == "root:x:0:0:root:/root:/bin/sh\n"


def test_a_view_has_programs_and_shares_but_no_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    mine = tmp_path / "mine"
    mine.mkdir()
    view = view_of([tmp_path], [mine])
    assert view.write == (str(mine),)
    assert "/usr" in view.read
    assert str(tmp_path) not in view.read
    assert not {"/etc", "/etc/shadow", "/etc/ssl", "/home", "/root", "/"} & set(view.read)


def test_links_are_shown_as_named_and_where_they_lead(tmp_path: Path) -> None:
    inner = tmp_path / "a/b"
    inner.mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "a")
    found = without_nested([link, inner, tmp_path / "none", Path("/")])
    assert set(found) == {link, tmp_path / "a"}


@pytest.mark.parametrize(
    ("found", "choice", "level", "text"),
    [
        (walls.Walls(True, 7), "", OK, "namespaces, Landlock 7, seccomp filter"),
        (walls.Walls(True, 0), "", OK, "no Landlock in this kernel"),
        (walls.Walls(False, 2), "", ADVICE, "allow user namespaces"),
        (walls.Walls(False, 0), "", MISSING, "valid: a kernel with Landlock or user namespaces"),
        (walls.Walls(True, 7), "none", ADVICE, "a guest may write your files"),
        (walls.Walls(True, 7), "nune", MISSING, "found DOWNPOUR_WALLS=nune; valid: all,"),
    ],
)
def test_the_doctor_says_which_walls_there_are(
    found: walls.Walls, choice: str, level: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walls, "machine_walls", lambda: found)
    monkeypatch.setenv(walls.VARIABLE, choice)
    finding = doctor.wall_finding()
    assert finding.level == level
    assert text in finding.text


# -- with a kernel ----------------------------------------------------------------------------

HOSTILE = "/guest/checkout/virtual/tests/hostile_guest.py"


@pytest.fixture(params=["root", "user"])
def host_user(request: pytest.FixtureRequest) -> list[str]:
    """Return the words before a command that run it as this user of the host."""
    if request.param == "root":
        if os.geteuid() != 0:
            pytest.skip("SKIPPED: not root; an ordinary user's guest is tested")
        return []
    if os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]


@pytest.fixture
def place(host_user: list[str]) -> Iterator[Path]:
    """Make directories as on a lab's server: the user's home with a key, the guest's directory, and
    another (careless) student's, which the user may write to.

    They are not below pytest's directories: each start of pytest closes those to other users.
    """
    tmp_path = Path(tempfile.mkdtemp(prefix="downpour-walls-"))
    tmp_path.chmod(0o755)
    for name in ("home", "cell", "other"):
        (tmp_path / name).mkdir()
        for victim in ("victim", "second"):
            (tmp_path / name / victim).write_text("as it was")
    (tmp_path / "home/secret").write_text("the key")
    (tmp_path / "home/id_ed25519").write_text("the key")
    (tmp_path / "other/secret").write_text("a solution")
    if host_user:
        subprocess.run(["chown", "-R", f"{USER}:{USER}", str(tmp_path)], check=True)
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


def guest(
    place: Path, kernel: Kernel, prefix: list[str], choice: str, *command: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a guest of the host's user that `prefix` selects."""
    shutil.copy2(kernel.path, place / "linux")
    code = (
        "import io, sys\nfrom pathlib import Path\n"
        "from virtual.guest import GuestSpec, Share, run_guest\n"
        "from virtual.kernel_build import Kernel\n"
        f"path, version = Path({str(place / 'linux')!r}), {kernel.version!r}\n"
        f"kernel = Kernel(path, version, 'x', {kernel.seccomp})\n"
        f"share = Share(Path({str(place / 'cell')!r}), Path('/shared'), writable=True)\n"
        "spec = GuestSpec(tuple(sys.argv[1:]), shares=(share,))\n"
        "code, _ = run_guest(kernel, spec, stdout=sys.stdout.buffer, stderr=sys.stderr.buffer)\n"
        "sys.exit(code)\n"
    )
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(place / "home"), "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1", walls.VARIABLE: choice, "DOWNPOUR_CACHE": str(place),
    }  # fmt: skip
    return subprocess.run(
        [*prefix, sys.executable, "-c", code, *command],
        cwd=place, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def hostile(
    place: Path, kernel: Kernel, prefix: list[str], choice: str, kind: str
) -> tuple[list[str], set[str]]:
    """Run the hostile program; return its lines, and the names of the attempts that fell."""
    argv = ("python3", HOSTILE, *(str(place / name) for name in ("home", "other", "cell")), kind)
    done = guest(place, kernel, prefix, choice, *argv)
    lines = done.stdout.splitlines()
    assert lines and lines[-1] == "end", done.stdout + done.stderr
    return lines, {line.split()[0] for line in lines if "FELL" in line}


def snapshot(place: Path) -> dict[str, tuple[int, float, str]]:
    """Return each file outside the guest's directory -> its mode, time and content."""
    return {
        str(path): (path.lstat().st_mode, path.lstat().st_mtime, path.read_text(errors="replace"))
        for name in ("home", "other")
        for path in sorted((place / name).rglob("*"))
        if path.is_file()
    }


@pytest.mark.emulated
@pytest.mark.parametrize("choice", [walls.ALL, NAMESPACES, LANDLOCK])
def test_a_guests_root_stays_within_its_walls(
    place: Path, kernel: Kernel, host_user: list[str], choice: str
) -> None:
    if choice == LANDLOCK and not syscalls.landlock_version():
        pytest.skip("SKIPPED: this kernel has no Landlock")
    before, makefile = snapshot(place), (ROOT / "Makefile").stat()
    assert len(before) == 7
    lines, fell = hostile(place, kernel, host_user, choice, "all")
    assert fell == set()
    assert len(lines) > 50
    assert snapshot(place) == before
    assert (ROOT / "Makefile").stat().st_mtime == makefile.st_mtime
    assert (place / "cell/result").read_text() == "my own file"
    for path in (place / "cell").rglob("*"):
        mode = path.lstat().st_mode
        assert stat.S_ISREG(mode) or stat.S_ISDIR(mode), path
        assert not mode & (stat.S_ISUID | stat.S_ISGID), path
    for folder in (ROOT, *map(Path, ("/", "/tmp", "/usr", "/etc", "/dev/shm", "/var", "/root"))):
        assert list(folder.glob("GUEST_*")) == []


@pytest.mark.emulated
def test_without_walls_the_same_attempts_fall(
    place: Path, kernel: Kernel, host_user: list[str]
) -> None:
    """Without this, the test above would prove nothing."""
    _, fell = hostile(place, kernel, host_user, walls.NONE, "mild")
    wanted = {"write-other", "unlink-other", "mkdir-home", "read-home", "read-by-root"}
    assert wanted | {"chmod-by-root", "utime-by-root", "symlink", "setuid", "fifo"} <= fell
    assert (place / "other/GUEST_WROTE").read_text() == "from a guest"
