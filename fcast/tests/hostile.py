#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fcast-send and fcast-recv with wrong words, full disks, strange directories, greedy strangers.

Usage: hostile.py FCAST-SEND FCAST-RECV [CASE...]. Root: disks are small tmpfs in the test's mount
namespace; packets stay on the loopback of a network namespace. Exit status 77: skipped.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.tool_cases import (
    Machine,
    Program,
    expect,
    names,
    resize,
    run_cases,
    small_disk,
    used_bytes,
    wait_for,
)

GROUP = "239.78.0.1:20078"
MB = 1_000_000
DIGITS = "0123456789abcdef" * 4


class Site(Machine):
    """The two programs and how they are called."""

    def send(self, files: list[Path], *more: str) -> Program:
        argv = [self.send_path, "--group", GROUP, "--interface", "127.0.0.1", "--rate", "60M"]
        argv += ["--tsi", "7", "--cache", str(self.work), *more]
        program = self.start("send", [*argv, *map(str, files)])
        wait_for("sender", lambda: "symbol_bytes=" in program.said())
        return program

    def receive(self, directory: Path, *more: str, name: str = "recv") -> Program:
        argv = [self.recv_path, "--group", GROUP, "--interface", "127.0.0.1", *more]
        return self.start(name, [*argv, str(directory)])

    def refuses(self, argv: list[str], *texts: str, code: int = 2) -> str:
        """Return what it says; raises Failure unless it ends at once, so, with the texts."""
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=10)
        except subprocess.TimeoutExpired:
            expect(False, f"does not end: {' '.join(argv)}")
        said = f"{' '.join(argv)}: {done.returncode}: {done.stderr}"
        expect(done.returncode == code, said)
        for text in texts:
            expect(text in done.stderr, f"no {text!r} in {said}")
        return done.stderr

    def key(self, text: str, mode: int = 0o600) -> Path:
        path = self.work / "key"
        path.write_text(text)
        path.chmod(mode)
        return path


# ---------------------------------------------------------------- key files


def case_key_files(m: Site) -> None:
    """An invalid key is refused, and the file's content is never shown."""
    argv = [
        m.recv_path,
        "--interface",
        "127.0.0.1",
        "--group",
        GROUP,
        "--key-file",
        str(m.work / "key"),
    ]
    for text, mode, why in (
        (DIGITS + "\n" + DIGITS + "\n", 0o600, ":2: found another line"),
        (DIGITS + " and more\n", 0o600, ":1: found no hexadecimal digit in column 65"),
        (DIGITS + "XYZ", 0o600, ":1: found no hexadecimal digit in column 65"),
        (DIGITS + "00\n", 0o600, ":1: found 66 digits; valid: "),
        (DIGITS[:-1] + "\n", 0o600, ":1: found 63 digits; valid: "),
        ("", 0o600, ":1: found no key"),
        (DIGITS + "\n" * 5000, 0o600, ":1: found more than 4096 bytes"),
        (DIGITS + "\n", 0o640, ":1: found mode 0640; valid: 0400 or 0600"),
        (DIGITS + "\n", 0o604, ":1: found mode 0604; valid: 0400 or 0600"),
    ):
        m.key(text, mode)
        m.refuses([*argv, str(m.work)], str(m.work / "key") + why)
    (m.work / "key").unlink()
    m.refuses([*argv, str(m.work)], "key:1: No such file or directory")
    os.mkfifo(m.work / "key", 0o600)
    for program in (m.recv_path, m.send_path):
        m.refuses([program, *argv[1:], str(m.work)], "key:1: found no regular file")


# ---------------------------------------------------------------- words


def case_wrong_words(m: Site) -> None:
    """Each wrong word: one line that says what would be valid, a hint, and exit status 2."""
    file, directory = m.file("file", 1000), m.directory("directory")
    fifo = m.work / "fifo"
    os.mkfifo(fifo)
    send = [m.send_path, "--group", GROUP, "--interface", "127.0.0.1"]
    recv = [m.recv_path, "--group", GROUP, "--interface", "127.0.0.1"]
    for argv, why in (
        ([*send, "--grup", "1"], "found option '--grup'; nearest: --group"),
        ([*recv, "--timeuot", "1"], "found option '--timeuot'; nearest: --timeout"),
        ([*recv, "-t", "5"], "found option '-t'; valid: --group, --interface, --session, "),
        ([*send, "--s", "5"], "found option '--s'; valid: --group, "),
        ([*send, "--order"], "found option '--order' without a value; valid: --order VALUE"),
        ([*send, "--jitter=5"], "found option '--jitter=5' with a value; valid: --jitter"),
        ([*send, "--order", "up"], "--order 'up'; valid: sequential, rotate, shuffle"),
        ([*send, "--ttl", "256"], "--ttl '256'; valid: whole numbers from 0 to 255"),
        ([*send, "--overhead", "50%"], "--overhead '50%'; valid: whole numbers from 0 to 700"),
        ([*recv, "--timeout", "-1"], "--timeout '-1'; valid: whole numbers from 1"),
        ([*recv, "--max-bytes", "1T"], "--max-bytes '1T'; valid: whole numbers from 1"),
        ([*recv, "--interface", "lo"], "--interface 'lo'; valid: an address such as 10.0.0.1"),
        ([*recv, "--group", "10.0.0.1:5"], "--group '10.0.0.1:5'; valid: a multicast group"),
        ([*recv, "--group", "[ff15::1]:55", str(directory)], "valid: both IPv4 or IPv6"),
        ([*send], "at least one FILE is needed"),
        ([*send, str(fifo)], f"'{fifo}': not a regular file"),
        ([*send, str(directory)], f"'{directory}': not a regular file"),
        ([*send, str(m.work / "none")], "none': No such file or directory"),
        ([*send, "--cache", str(file), str(file)], f"--cache '{file}': Not a directory"),
        ([*recv], "found 0 directories; valid: one DIR"),
        ([*recv, str(directory), str(directory)], "found 2 directories; valid: one DIR"),
        ([*recv, str(file)], f"directory '{file}': Not a directory"),
        ([*recv, str(fifo)], f"directory '{fifo}': Not a directory"),
        ([*recv, str(m.work / "none")], "none': No such file or directory"),
    ):
        name = Path(argv[0]).name
        said = m.refuses(argv, why)
        lines = said.splitlines()
        expect(len(lines) == 2 and lines[1] == f"Try '{name} --help'.", said)


def case_a_session_file_that_cannot_be(m: Site) -> None:
    """It says so, and leaves nothing half-written beside it."""
    file, directory = m.file("file", 1000), m.directory("directory")
    argv = [m.send_path, "--group", GROUP, "--interface", "127.0.0.1", "--cycles", "1", str(file)]
    m.refuses([*argv, "--sdp", str(directory)], f"--sdp '{directory}': Is a directory", code=1)
    expect(names(m.work) == ["directory", "file"], f"left: {names(m.work)}")


# ---------------------------------------------------------------- full disks


def same(one: Path, two: Path) -> None:
    expect(one.read_bytes() == two.read_bytes(), f"{one.name} differs")


def fills_up(m: Site, disk_bytes: int, files: list[Path]) -> None:
    """On a disk that is too small a receiver ends; with more room the next one continues."""
    m.send(files)
    with small_disk(m.directory("disk"), disk_bytes) as disk:
        receiver = m.receive(disk)
        receiver.ends(1)
        lines = [line for line in receiver.said().splitlines() if "No space left" in line]
        expect(len(lines) == 1 and f"stay in {disk}/.fcast" in lines[0], receiver.said())
        expect(receiver.counts()["result"] == "incomplete", receiver.told())
        expect([name for name in names(disk) if name != ".fcast"] == [], f"left: {names(disk)}")
        resize(disk, 40 * MB)
        again = m.receive(disk, name="again")
        again.ends(0)
        counts = again.counts()
        expect(int(counts["restored"]) > 0 and counts["result"] == "complete", again.told())
        for file in files:
            same(disk / file.name, file)
        expect(names(disk) == sorted([".fcast", *(file.name for file in files)]), str(names(disk)))
        expect(names(disk / ".fcast") == [], f"left: {names(disk / '.fcast')}")


def case_a_disk_too_small_for_the_copy(m: Site) -> None:
    """The object is there whole, but not the file that is made of it."""
    fills_up(m, 6 * MB, [m.file("big", 4 * MB)])


def case_a_disk_too_small_for_the_object(m: Site) -> None:
    """Writes of symbols fail."""
    fills_up(m, 2 * MB, [m.file("big", 4 * MB)])


def case_standard_output_is_full(m: Site) -> None:
    """A report that cannot be written is a failure."""
    file, got = m.file("file", 1000), m.directory("got")
    m.send([file])
    argv = [m.recv_path, "--group", GROUP, "--interface", "127.0.0.1", str(got)]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    expect(done.returncode == 1, f"ended with {done.returncode}: {done.stderr}")
    expect("standard output: No space left on device" in done.stderr, done.stderr)
    same(got / "file", file)


# ---------------------------------------------------------------- destinations


def case_a_destination_that_is_no_file(m: Site) -> None:
    """A directory, a FIFO, a link in a file's place stay; the others come, and the end is 1."""
    files = [m.file(name, 2000) for name in ("directory", "fifo", "link", "good")]
    got, outside = m.directory("got"), m.work / "outside"
    (got / "directory").mkdir()
    os.mkfifo(got / "fifo")
    (got / "link").symlink_to(outside)
    sender = m.send(files)
    receiver = m.receive(got)
    receiver.ends(1)
    expect(receiver.said().count("refused: not a regular file") == 3, receiver.said())
    counts = receiver.counts()
    expect((counts["files"], counts["unstored"]) == ("1", "3"), receiver.told())
    expect(counts["result"] == "incomplete", receiver.told())
    same(got / "good", files[3])
    expect(not outside.exists(), "the link was followed")
    (got / "directory").rmdir()
    (got / "fifo").unlink()
    (got / "link").unlink()
    again = m.receive(got, name="again")
    again.ends(0)
    for file in files:
        same(got / file.name, file)
    sender.signal(signal.SIGTERM)
    sender.ends(0)


@contextmanager
def renamed(old: bytes, new: bytes) -> Iterator[str]:
    """Every datagram to GROUP, with other words in it, to the group that is yielded."""
    base, port = GROUP.split(":")[0], int(GROUP.split(":")[1])
    stop = threading.Event()
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        listener.bind((base, port))
        listener.settimeout(0.1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 * MB)
        member = socket.inet_aton(base) + socket.inet_aton("127.0.0.1")
        listener.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))

        def relay() -> None:
            while not stop.is_set():
                with suppress(TimeoutError):
                    sender.sendto(listener.recv(65536).replace(old, new), (base, port + 1))

        thread = threading.Thread(target=relay)
        thread.start()
        try:
            yield f"{base}:{port + 1}"
        finally:
            stop.set()
            thread.join()


def case_names_with_directories(m: Site) -> None:
    """A name's directories are made, behind the walls too; what must not be is refused; and no
    name ends the program."""
    good = m.file("good", 2000)
    m.work.chmod(0o755)
    for number, (name, why) in enumerate(
        (
            ("deep/er/name", ""),
            ("./deep//name", ""),
            (".fcast/ab", "refused: the program's own files"),
            ("./.fcast/a", "refused: the program's own files"),
            (".//.fcast//a", "refused: the program's own files"),
            ("shut/in/name", "Permission denied"),
            ("deep/../name", 'refused: ".."'),
        )
    ):
        got = m.directory(f"got{number}")
        (got / "shut").mkdir(mode=0o555)
        for path in (got, got / "shut"):
            os.chown(path, 65534, 65534)
        alias = "x" * len(name)
        sender = m.send([m.file(alias, 1000), good], "--protocol", "flute", "--fec", "none")
        with renamed(alias.encode(), name.encode()) as group:
            argv = [
                m.recv_path,
                "--group",
                group,
                "--interface",
                "127.0.0.1",
                "--protocol",
                "flute",
            ]
            nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
            receiver = m.start(f"recv{number}", [*nobody, "--inh-caps=-all", *argv, str(got)])
            receiver.ends(1 if why else 0)
        sender.signal(signal.SIGTERM)
        sender.ends(0)
        expect((got / name).is_file() == (not why), f"{name}: {receiver.said()}")
        expect(why in receiver.said(), f"{name}: {receiver.said()}")
        same(got / "good", good)
        (m.work / alias).unlink()


def case_a_directory_that_cannot_be_written(m: Site) -> None:
    """DIR/.fcast is a link, a FIFO, a file: the program says so at once."""
    argv = [m.recv_path, "--group", GROUP, "--interface", "127.0.0.1"]
    for number in range(3):
        got = m.directory(f"got{number}")
        if number == 0:
            (got / ".fcast").symlink_to(m.work)
        elif number == 1:
            os.mkfifo(got / ".fcast")
        else:
            (got / ".fcast").write_text("")
        m.refuses([*argv, str(got)], f"'{got}/.fcast': Not a directory", code=1)
    locked = m.directory("locked")
    locked.chmod(0o555)
    m.work.chmod(0o755)
    nobody = ["setpriv", "--reuid", "65534", "--clear-groups", "--inh-caps=-all"]
    m.refuses([*nobody, *argv, str(locked)], f"'{locked}/.fcast': Permission denied", code=1)


def case_two_receivers_in_one_directory(m: Site) -> None:
    """Their parts would mix: the second one is refused, the first one continues."""
    big, got = m.file("big", 3 * MB), m.directory("got")
    first = m.receive(got, name="first")
    wait_for("first receiver", lambda: "sandbox" in first.said())
    argv = [m.recv_path, "--group", GROUP, "--interface", "127.0.0.1", str(got)]
    m.refuses(argv, f"'{got}': another receiver uses it; valid: a directory for each", code=1)
    m.send([big])
    first.ends(0)
    same(got / "big", big)


def case_old_parts_are_bounded(m: Site) -> None:
    """Parts that nobody continues with take no more than --max-bytes, the newest stay."""
    got = m.directory("got")
    (got / ".fcast").mkdir(mode=0o700)
    for number in range(5):
        for part in ("data", "repair", "notes"):
            path = got / ".fcast" / f"{number:016x}.{part}"
            path.write_bytes(os.urandom(400_000 if part == "data" else 8))
            os.utime(path, (1000 + number, 1000 + number))
    receiver = m.receive(got, "--timeout", "1", "--max-bytes", "1M")
    receiver.ends(1)
    left = sorted({name.split(".")[0] for name in names(got / ".fcast")})
    expect(left == [f"{number:016x}" for number in (3, 4)], f"left: {left}")


# ---------------------------------------------------------------- silence and ends


def noise(stop: threading.Event) -> None:
    """Datagrams of no session."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        address, port = GROUP.split(":")
        while not stop.wait(0.05):
            s.sendto(b"noise", (address, int(port)))


def case_a_silent_sender(m: Site) -> None:
    """--timeout ends the wait, whatever strangers send meanwhile, and says why."""
    stop = threading.Event()
    thread = threading.Thread(target=noise, args=(stop,))
    thread.start()
    try:
        receiver = m.receive(m.directory("got"), "--timeout", "1")
        receiver.ends(1)
    finally:
        stop.set()
        thread.join()
    expect("the session was silent for 1 s (--timeout)" in receiver.said(), receiver.said())
    expect(int(receiver.counts()["malformed"]) > 2, receiver.told())


def case_a_sender_that_ends_too_soon(m: Site) -> None:
    """The receiver says that the session was over before all was here."""
    big, got = m.file("big", 8 * MB), m.directory("got")
    sender = m.send([big], "--rate", "10M")
    receiver = m.receive(got)
    wait_for("notes", lambda: any(used_bytes(path) for path in (got / ".fcast").glob("*.notes")))
    sender.signal(signal.SIGINT)
    receiver.ends(1)
    expect("the sender ended the session before all files were complete" in receiver.said(), "")


def case_an_interrupted_receiver(m: Site) -> None:
    """Ctrl-C: a report, nothing but parts is left, and the next receiver continues with them."""
    big, got = m.file("big", 4 * MB), m.directory("got")
    m.send([big], "--rate", "20M")
    receiver = m.receive(got)
    wait_for("notes", lambda: any(used_bytes(path) for path in (got / ".fcast").glob("*.notes")))
    receiver.signal(signal.SIGINT)
    receiver.ends(1)
    expect(receiver.counts()["result"] == "incomplete", receiver.told())
    expect(names(got) == [".fcast"], f"left: {names(got)}")
    again = m.receive(got, name="again")
    again.ends(0)
    expect(int(again.counts()["restored"]) >= 512, again.told())
    same(got / "big", big)


# ---------------------------------------------------------------- replays


@contextmanager
def recorder() -> Iterator[list[bytes]]:
    """All datagrams of the group, as anybody on the network can hear them."""
    address, port = GROUP.split(":")
    heard: list[bytes] = []
    ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    ear.bind((address, int(port)))
    member = socket.inet_aton(address) + socket.inet_aton("127.0.0.1")
    ear.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)

    ear.settimeout(0.2)
    over = threading.Event()

    def listen() -> None:
        while not over.is_set():
            with suppress(TimeoutError):
                heard.append(ear.recv(65536))

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        yield heard
    finally:
        over.set()
        thread.join()
        ear.close()


def listens() -> bool:
    """Does a program wait for the group's datagrams?"""
    return f":{int(GROUP.split(':')[1]):04X} " in Path("/proc/net/udp").read_text()


def case_replayed(m: Site) -> None:
    """Who records a session without its key cannot put its files instead of newer ones."""
    key = ["--key-file", str(m.key(DIGITS + "\n"))]
    first, second = m.directory("first"), m.directory("second")
    for directory, text in ((first, b"old" * 5000), (second, b"new" * 5000)):
        (directory / "file").write_bytes(text)
    got = m.directory("got")
    with recorder() as heard:
        sender = m.send([first / "file"], *key, "--rate", "5M")
        m.receive(got, *key).ends(0)
        sender.signal(signal.SIGINT)
        sender.ends(0)
    same(got / "file", first / "file")
    sender = m.send([second / "file"], *key, "--rate", "5M")
    m.receive(got, *key, name="later").ends(0)
    sender.signal(signal.SIGINT)
    sender.ends(0)
    same(got / "file", second / "file")
    time.sleep(3)
    for age, refused in (("2", True), ("0", False)):  # the second: the attack works without it
        victim = m.receive(
            got, *key, "--max-age", age, "--mode", "satellite", "--timeout", "1", name=f"age{age}"
        )
        wait_for("receiver", listens)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as thief:
            thief.setsockopt(
                socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1")
            )
            for datagram in heard:
                thief.sendto(datagram, (GROUP.split(":")[0], int(GROUP.split(":")[1])))
        victim.ends(0, 1)
        counts = victim.counts()
        expect((int(counts["stale"]) > 0) == refused, victim.told())
        expect(("refused datagrams stamped" in victim.said()) == refused, victim.told())
        same(got / "file", (second if refused else first) / "file")


def is_copying(directory: Path) -> bool:
    return any(path.suffix == ".tmp" for path in directory.iterdir())


def copies(directory: Path) -> Callable[[], bool]:
    return lambda: is_copying(directory) or (directory / "big").exists()


def case_killed_while_it_copies(m: Site) -> None:
    """SIGKILL between the object and its file: the next receiver leaves no trace of it."""
    big = m.work / "big"
    big.write_bytes(b"a line that packs\n" * 3_000_000)  # only what is unpacked is copied
    m.send([big], "--fec", "none", "--encoding", "gzip", "--rate", "50M")
    for attempt in range(5):
        got = m.directory(f"got{attempt}")
        receiver = m.receive(got, name=f"killed{attempt}")
        wait_for("copy", copies(got), 0)
        receiver.signal(signal.SIGKILL)
        receiver.process.wait()
        if is_copying(got):
            break
    expect(is_copying(got), f"the copy was done before each kill: {names(got)}")
    again = m.receive(got, name="again")
    again.ends(0)
    same(got / "big", big)
    expect(names(got) == [".fcast", "big"], f"left: {names(got)}")
    expect(names(got / ".fcast") == [], f"left: {names(got / '.fcast')}")


if __name__ == "__main__":
    found = {name[5:]: case for name, case in list(globals().items()) if name.startswith("case_")}
    sys.exit(run_cases(found, Site))
