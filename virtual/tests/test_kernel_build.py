# SPDX-License-Identifier: Apache-2.0
"""The guest's kernel: configuration, digest, cache, builds; compiler and archive are fakes."""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import stat
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from common import digests
from virtual import cli, kernel_build, kernel_cache, kernel_fetch, kernel_source
from virtual.kernel_build import (
    Kernel,
    KernelError,
    asked_options,
    check_required,
    dropped_options,
    ensure_kernel,
    find_kernel,
    is_step,
    last_words,
    required_options,
)
from virtual.kernel_cache import CONFIG, digest_of
from virtual.kernel_estimate import TYPICAL_FILES, Estimate, learn, rounded
from virtual.kernel_progress import Printer
from virtual.tests.played_machine import Machine

ROOT = Path(__file__).resolve().parents[2]
FRAGMENT = (
    '# a reason\n#! NET VETH\nCONFIG_NET=y\nCONFIG_VETH=y\nCONFIG_NEW=y\nCONFIG_CHAN="null"\n'
)


def test_options_of_a_fragment() -> None:
    assert asked_options(FRAGMENT) == {
        "CONFIG_NET": "y",
        "CONFIG_VETH": "y",
        "CONFIG_NEW": "y",
        "CONFIG_CHAN": '"null"',
    }
    assert required_options(FRAGMENT) == ["CONFIG_NET", "CONFIG_VETH"]


def test_what_a_version_does_not_know_is_reported_and_what_is_needed_is_an_error() -> None:
    result = 'CONFIG_NET=y\nCONFIG_VETH=y\n# CONFIG_NEW is not set\nCONFIG_CHAN="null"\n'
    dropped = dropped_options(FRAGMENT, result)
    assert dropped == ["CONFIG_NEW"]
    check_required(FRAGMENT, dropped, "6.1.1")
    dropped = dropped_options(FRAGMENT, result.replace("CONFIG_VETH=y", "CONFIG_VETH=m"))
    with pytest.raises(KernelError, match=r"kernel 6\.1\.1: .* lacks CONFIG_VETH, which"):
        check_required(FRAGMENT, dropped, "6.1.1")


def test_our_fragment_is_sound() -> None:
    """Each required option is set, none twice, and each group says why."""
    text = CONFIG.read_text(encoding="utf-8")
    asked = asked_options(text)
    assert set(required_options(text)) <= set(asked)
    assert len(asked) == text.count("\nCONFIG_")
    for group in text.split("\n\n"):
        assert group.startswith("# "), group


def test_digest_depends_on_every_name_and_byte() -> None:
    base = {"a": b"12", "b": b"3"}
    others = (
        {"a": b"1", "b": b"23"},
        {"a": b"12", "c": b"3"},
        {"a": b"12"},
        {"a": b"12", "b": b"4"},
    )
    digests = {digest_of(inputs) for inputs in (base, *others)}
    assert len(digests) == 5
    assert digest_of({"b": b"3", "a": b"12"}) == digest_of(base)


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("  CC      fs/open.o\n", True),
        ("  LINK linux\n", True),
        ("  CC [M]  fs/x.o\n", True),
        ("fs/open.c:1:2: error: x\n", False),
        ("make[2]: Entering directory\n", False),
        ("      |       ^~~~\n", False),
    ],
)
def test_steps_of_a_build(line: str, step: bool) -> None:
    assert is_step(line) is step


def test_progress_says_what_is_left_once_it_can() -> None:
    total = TYPICAL_FILES
    line = Estimate().line
    assert line(3, 2.0) == f"compiled 3 of about {total} files, 2 s elapsed"
    # Half of the files in 100 s: the other half takes 100 s more.
    assert line(total // 2, 100.0) == (
        f"compiled {total // 2} of about {total} files, 1:40 min elapsed, about 1:40 min left"
    )
    assert line(total + 9, 61.0) == (
        f"compiled {total + 9} of about {total + 9} files, 1:01 min elapsed, longer than usual"
    )


def test_an_earlier_build_says_what_to_expect_until_this_one_can() -> None:
    estimate = Estimate(total_files=1000, usual_s=400.0)
    assert estimate.left_s(0, 0.0) == 400
    # This machine is now twice as slow: the more it has compiled, the more that counts.
    left = [estimate.left_s(done, 0.8 * done) for done in (10, 100, 200, 300, 900)]
    assert left[0] is not None and 396 <= left[0] < 410
    assert left[1:] == [
        pytest.approx((1 / 3) * 720 + (2 / 3) * 360),
        pytest.approx((2 / 3) * 640 + (1 / 3) * 320),
        pytest.approx(560),
        pytest.approx(80),
    ]
    assert estimate.line(3, 401.0).endswith("6:41 min elapsed, longer than usual")


def test_no_line_ever_says_that_nothing_is_left() -> None:
    for estimate in (Estimate(), Estimate(1000, 1.0), Estimate(1000, 4000.0)):
        for done in range(0, 1400, 7):
            line = estimate.line(done, 5.0 + done / 3)
            assert not re.search(r"\b0 s left|0:00", line), line


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "5 s"), (44, "45 s"), (59, "1:00 min"), (196, "3:20 min"), (3601, "60:00 min")],
)
def test_a_time_that_is_left_is_rounded(seconds: float, text: str) -> None:
    assert rounded(seconds) == text


def test_only_builds_of_this_machine_are_learnt_from(machine: Machine) -> None:
    machine.source("7.2", seccomp=True)
    machine.ensure()
    (_, build) = kernel_cache.cached(machine.cache / "kernels")[0]
    own = replace(build, files=1300, compile_s=200.0)
    given = replace(own, origin="installed", compile_s=9000.0)
    assert learn([given]) == Estimate() == learn([])
    assert learn([own, given, replace(own, compile_s=300.0)]) == Estimate(1300, 300.0)


def test_the_errors_of_a_log_are_quoted() -> None:
    log = "  CC a.o\na.c:3:1: error: 'x' undeclared\nmake[1]: *** [a.o] Error 1\n  CC b.o\n"
    assert last_words(log) == "a.c:3:1: error: 'x' undeclared"
    log = 'lib/Kconfig:52: can\'t open file "x"\nmake: *** [allnoconfig] Error 1\n'
    assert last_words(log) == 'lib/Kconfig:52: can\'t open file "x"'
    assert last_words("  CC a.o\nKilled\n") == "CC a.o; Killed"


# --- with a fake source, make and archive ---------------------------------------------------------


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_built_once_then_found(machine: Machine) -> None:
    assert find_kernel() is None
    machine.source("7.2", seccomp=True)
    kernel = machine.ensure()
    assert (kernel.version, kernel.seccomp) == ("7.2.4", True)
    place = machine.cache / "kernels" / f"7.2.4-{kernel.digest}"
    assert kernel.path == place / "linux" and os.access(kernel.path, os.X_OK)
    build = json.loads((place / "build.json").read_text())
    assert (build["version"], build["files"], build["options_dropped"]) == ("7.2.4", 1, [])
    assert (place / ".config").exists()
    assert find_kernel() == kernel == machine.ensure()
    assert machine.compiled() == 1
    assert machine.leftovers() == []


@pytest.mark.slow
def test_what_we_put_in_changes_the_kernel(machine: Machine) -> None:
    machine.source("7.2", seccomp=True)
    first = machine.ensure()
    machine.monkeypatch.setattr(kernel_cache, "compiler", lambda: "another gcc")
    assert find_kernel() is None, "another compiler makes another kernel"
    second = machine.ensure()
    assert first.digest != second.digest and machine.compiled() == 2


def test_without_a_compiler_another_machines_kernel_will_do(machine: Machine) -> None:
    machine.source("7.2", seccomp=True)
    kernel = machine.ensure()
    machine.monkeypatch.setattr(kernel_cache, "compiler", lambda: "")
    assert find_kernel() == kernel == machine.ensure()
    machine.monkeypatch.setattr(kernel_source, "EDITS", ())
    assert find_kernel() is None, "of other edits it is another kernel"


def test_an_old_source_is_used_if_there_is_no_newer_and_said(machine: Machine) -> None:
    machine.source("6.1", seccomp=False)
    kernel = machine.ensure(download=False)
    assert (kernel.version, kernel.seccomp) == ("6.1.4", False)
    assert any("ptrace mode" in text for text in machine.said)
    assert machine.ensure(download=False) == kernel and machine.compiled() == 1
    # A source that cannot be fetched leaves the existing kernel in use.
    assert machine.ensure() == kernel
    assert "cannot fetch a newer source" in machine.said[-1]
    assert "apt install debian-archive-keyring" in machine.said[-1]


@pytest.mark.slow
def test_fetched_newer_source_is_preferred(machine: Machine) -> None:
    machine.source("6.1", seccomp=False)
    old = machine.ensure(download=False)
    fetched = machine.source("7.3", seccomp=True, folder=machine.tmp)
    machine.monkeypatch.setattr(
        kernel_fetch, "fetch", lambda *_args: kernel_fetch.source_of(fetched)
    )
    new = machine.ensure()
    assert (new.version, new.seccomp) == ("7.3.4", True)
    assert find_kernel() == new != old


@pytest.mark.slow
def test_the_pinned_source_comes_before_newer_ones(machine: Machine) -> None:
    newer = machine.source("7.3", seccomp=True, folder=machine.tmp)
    pinned = machine.source("7.2", seccomp=True, folder=machine.tmp)
    machine.monkeypatch.setattr(kernel_fetch, "fetch", lambda *_args: kernel_fetch.source_of(newer))
    machine.monkeypatch.setattr(
        kernel_fetch, "fetch_pinned", lambda *_args: kernel_fetch.source_of(pinned)
    )
    pin = kernel_fetch.Pin("", "", digests.digest_of(pinned).sha256)
    machine.monkeypatch.setattr(kernel_cache, "PINNED", pin)
    kernel = machine.ensure()
    assert (kernel.version, kernel.source_sha256) == ("7.2.4", pin.sha256)
    machine.monkeypatch.setenv("DOWNPOUR_KERNEL", "newest")
    machine.ensure(source=newer)
    found = find_kernel()
    assert found is not None and found.version == "7.3.4"
    machine.monkeypatch.delenv("DOWNPOUR_KERNEL")
    assert find_kernel() == kernel, "the newer one is there, and not asked for"


def test_a_pinned_source_that_is_gone_gives_way_to_the_newest(machine: Machine) -> None:
    newer = machine.source("7.3", seccomp=True, folder=machine.tmp)

    def gone(*_args: object) -> kernel_fetch.Source:
        raise kernel_fetch.PinError("the suite has no such source any more")

    machine.monkeypatch.setattr(kernel_fetch, "fetch", lambda *_args: kernel_fetch.source_of(newer))
    machine.monkeypatch.setattr(kernel_fetch, "fetch_pinned", gone)
    assert machine.ensure().version == "7.3.4"
    said = "no such source any more: taking the newest source; digits of results may differ"
    assert any(said in text for text in machine.said)


def test_source_that_the_edits_do_not_fit_gives_way_to_the_one_before(machine: Machine) -> None:
    new = machine.source("7.9", seccomp=True, folder=machine.tmp)
    top = machine.tmp / "linux-source-7.9"
    (top / "drivers/char/random.c").write_text("int other;\n")
    subprocess.run(["tar", "-caf", new, "-C", machine.tmp, top.name], check=True)
    old = machine.source("7.2", seccomp=True, folder=machine.tmp)
    asked: list[list[tuple[int, ...]]] = []

    def fetch(_store: Path, _say: object, skip: list[tuple[int, ...]]) -> kernel_fetch.Source:
        asked.append(list(skip))
        return kernel_fetch.source_of(old if (7, 9) in skip else new)

    machine.monkeypatch.setattr(kernel_fetch, "fetch", fetch)
    assert machine.ensure().version == "7.2.4"
    assert asked == [[], [(7, 9)]]
    assert any("kernel 7.9.4: drivers/char/random.c: found 0 times" in t for t in machine.said)


def test_no_source_to_be_had_is_told_apart_from_one_that_does_not_build(machine: Machine) -> None:
    def unreachable(*_: object) -> kernel_fetch.Source:
        raise KernelError("cannot resolve")

    machine.monkeypatch.setattr(kernel_fetch, "fetch", unreachable)
    assert cli.main(["kernel"]) == 3
    assert cli.main(["kernel", "--no-download"]) == 3
    assert cli.main(["kernel", "--source", "/none/linux-source-7.2.tar.xz"]) == 1


def test_nothing_to_build_from(machine: Machine) -> None:
    with pytest.raises(KernelError, match="found no kernel source in .*; get it: apt install"):
        machine.ensure(download=False)
    with pytest.raises(KernelError, match=r"/none/linux-source-7\.2\.tar\.xz: No such file"):
        machine.ensure(source=Path("/none/linux-source-7.2.tar.xz"))
    with pytest.raises(KernelError, match="found source '/none/x'; valid"):
        machine.ensure(source=Path("/none/x"))


@pytest.mark.slow
def test_failed_build_quotes_the_compiler_and_leaves_nothing(machine: Machine) -> None:
    machine.source("7.2", seccomp=True)
    machine.mode.write_text("fail")
    with pytest.raises(KernelError, match=r"kernel 7\.2\.4: make: a\.c:1:1: error: no such thing"):
        machine.ensure()
    assert find_kernel() is None and machine.leftovers() == []
    machine.mode.write_text("")
    assert machine.ensure().version == "7.2.4"


def test_required_option_that_is_refused(machine: Machine) -> None:
    machine.source("7.2", seccomp=True)
    machine.monkeypatch.setenv("PATH", f"{machine.path}:drop=CONFIG_HOSTFS=:")
    with pytest.raises(KernelError, match=r"kernel 7\.2\.4: .* lacks CONFIG_HOSTFS, which"):
        machine.ensure()
    machine.monkeypatch.setenv("PATH", f"{machine.path}:drop=CONFIG_DUMMY=:")
    machine.ensure()
    assert "kernel 7.2.4 does not know CONFIG_DUMMY" in machine.said


def test_missing_tools_are_named_with_their_packages(machine: Machine) -> None:
    machine.source("7.2", seccomp=True)
    only = machine.tmp / "few"
    only.mkdir()
    for tool in ("gcc", "ld", "tar"):
        (only / tool).symlink_to("/bin/true")
    machine.monkeypatch.setenv("PATH", str(only))
    with pytest.raises(KernelError) as caught:
        machine.ensure()
    assert str(caught.value) == (
        "found no make, flex, bison, bc, xz; get it: apt install make flex bison bc xz-utils"
    )
    assert kernel_build.missing_tools("a.tar.bz2").endswith("xz-utils bzip2")


def test_full_disk_is_said_before_anything_is_done(machine: Machine) -> None:
    machine.source("7.2", seccomp=True)
    machine.monkeypatch.setattr(kernel_build, "NEEDED_BYTES", 1 << 60)
    with pytest.raises(KernelError, match="MB free; valid: .* or DOWNPOUR_CACHE=a directory"):
        machine.ensure()


def test_cache_that_cannot_be_written(machine: Machine) -> None:
    machine.cache.write_text("a file\n")
    machine.source("7.2", seccomp=True)
    with pytest.raises(KernelError, match=r"cannot write to .*; valid: DOWNPOUR_CACHE="):
        machine.ensure()


def test_builders_wait_for_each_other(machine: Machine) -> None:
    machine.source("7.2", seccomp=True)
    directory = machine.cache / "kernels"
    directory.mkdir(parents=True)
    (directory / ".build-1").mkdir()  # left by a builder that was killed
    waited = threading.Event()

    def say(text: str) -> None:
        if "another build is under way" in text:
            waited.set()

    with (directory / "lock").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        results: list[Kernel] = []
        threads = [
            threading.Thread(target=lambda: results.append(ensure_kernel(say))) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        assert waited.wait(5)
        assert machine.compiled() == 0
    for thread in threads:
        thread.join(20)
    assert len(results) == 2 and results[0] == results[1]
    assert machine.compiled() == 1
    assert machine.leftovers() == []


@pytest.mark.slow
def test_interrupt_leaves_nothing_half(machine: Machine) -> None:
    """On Ctrl-C while make runs, the command prints a message, exits with 130 and leaves no process
    or directory."""
    machine.source("7.2", seccomp=True)
    process = machine.command_that_compiles()
    process.send_signal(2)
    _, words = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "kernel: interrupted; what was fetched is kept" in words
    assert "Traceback" not in words
    assert machine.leftovers() == [] and find_kernel() is None


def test_command(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    source = machine.source("7.2", seccomp=True, folder=machine.tmp)
    assert cli.main(["kernel", "--source", str(source)]) == 0
    assert "kernel: Linux 7.2.4 (seccomp mode) is ready after " in capsys.readouterr().out
    assert cli.main(["kernel"]) == 0
    assert "kernel: Linux 7.2.4 (seccomp mode) is there: " in capsys.readouterr().out
    assert cli.main(["kernel", "--source", str(machine.tmp / "linux-source-9.9.tar.xz")]) == 1
    said = capsys.readouterr()
    assert "linux-source-9.9.tar.xz: No such file or directory" in said.err and said.out == ""
    assert cli.main(["kernel", "--sauce"]) == 2


def test_printer_is_plain_without_a_terminal() -> None:
    stream = io.StringIO()
    printer = Printer(stream, plain_every_s=3600)
    for text in ("compiling", "compiled 1 of 9", "compiled 2 of 9", "done"):
        printer(text)
    printer.close()
    assert stream.getvalue() == "kernel: compiling\nkernel: compiled 1 of 9\nkernel: done\n"


def test_printer_overwrites_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    printer = Printer(stream)
    for text in ("compiling", "compiled 1 of 9", "compiled 2 of 9"):
        printer(text)
    printer.close()
    assert stream.getvalue() == (
        "\r\x1b[Kkernel: compiling\n\r\x1b[Kkernel: compiled 1 of 9"
        "\r\x1b[Kkernel: compiled 2 of 9\r\x1b[K"
    )


@pytest.mark.slow
def test_cached_kernel_that_cannot_run_is_none(machine: Machine) -> None:
    machine.source("7.2", seccomp=True)
    kernel = machine.ensure()
    kernel.path.chmod(stat.S_IRUSR)
    if os.getuid() == 0:
        kernel.path.unlink()
    assert find_kernel() is None
    assert machine.ensure().path.exists() and machine.compiled() == 2
