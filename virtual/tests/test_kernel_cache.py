# SPDX-License-Identifier: Apache-2.0
"""Where kernels are looked for, and kernels that come from a file; compilers are fakes."""

from __future__ import annotations

import json
import lzma
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from common import digests
from virtual import cli, kernel_cache, kernel_file, kernel_source
from virtual.kernel_build import Kernel, KernelError, ensure_kernel, find_kernel
from virtual.kernel_cache import parse_build
from virtual.kernel_file import export_kernel, install_kernel
from virtual.tests.played_machine import Machine


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


class Shared:
    """The machine's and the packages' caches below a test's directory; can act as another user."""

    def __init__(self, machine: Machine) -> None:
        self.patch = machine.monkeypatch
        self.machine_cache = machine.tmp / "var-cache"
        self.packaged = machine.tmp / "usr-lib"
        self.own = machine.tmp / "home" / "downpour"
        self.patch.delenv("DOWNPOUR_CACHE")
        self.patch.delenv("DOWNPOUR_KERNEL", raising=False)
        self.patch.setenv("XDG_CACHE_HOME", str(self.own.parent))
        self.patch.setattr(kernel_cache, "MACHINE_CACHE", self.machine_cache)
        self.patch.setattr(kernel_cache, "PACKAGED", (self.packaged,))
        # What the tests create counts as root's, even if another user runs them.
        me = os.geteuid()
        self.patch.setattr(kernel_cache, "_owner", lambda s: 0 if s.st_uid == me else s.st_uid)

    def be(self, uid: int) -> None:
        self.patch.setattr("os.geteuid", lambda: uid)


@pytest.fixture
def shared(machine: Machine) -> Shared:
    return Shared(machine)


def test_code_counts_and_comments_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drop_ins = tmp_path / "kernel"
    shutil.copytree(kernel_source.DROP_INS, drop_ins)
    monkeypatch.setattr(kernel_cache, "DROP_INS", drop_ins)
    before = kernel_cache.current_digest("gcc 12")
    file = drop_ins / "downpour.c"
    code = file.read_text()
    file.write_text(code + "/* Two\n * lines. */")
    assert kernel_cache.current_digest("gcc 12") == before
    file.write_text(code + "int one;")
    assert kernel_cache.current_digest("gcc 12") != before


# --- the order ------------------------------------------------------------------------------------


def test_root_builds_for_all_users(machine: Machine, shared: Shared) -> None:
    machine.source("7.2", seccomp=True)
    shared.be(0)
    old = os.umask(0o077)
    try:
        kernel = machine.ensure()
    finally:
        os.umask(old)
    assert kernel.path.is_relative_to(shared.machine_cache)
    assert [p.stat().st_mode & 0o777 for p in (kernel.path, kernel.path.parent)] == [0o755] * 2
    assert (kernel.path.parent / "build.json").stat().st_mode & 0o777 == 0o644
    for place in (shared.machine_cache, shared.machine_cache / "kernels"):
        assert place.stat().st_mode & 0o755 == 0o755, place
    shared.be(1000)
    assert find_kernel() == kernel == machine.ensure()
    assert machine.compiled() == 1 and not shared.own.exists()


def test_a_user_builds_in_the_users_own_cache(machine: Machine, shared: Shared) -> None:
    machine.source("7.2", seccomp=True)
    shared.be(1000)
    kernel = machine.ensure()
    assert kernel.path.is_relative_to(shared.own) and not shared.machine_cache.exists()
    shared.be(0)
    assert find_kernel() == kernel, "a cache that root filled in earlier versions still counts"


def test_the_users_own_kernel_comes_before_the_machines(machine: Machine, shared: Shared) -> None:
    machine.source("7.2", seccomp=True)
    shared.be(1000)
    own = machine.ensure()
    subprocess.run(["cp", "-a", shared.own, shared.machine_cache], check=True)
    assert find_kernel() == own
    subprocess.run(["rm", "-r", shared.own], check=True)
    found = find_kernel()
    assert found is not None and found.path.is_relative_to(shared.machine_cache)
    shared.machine_cache.rename(shared.packaged)
    found = find_kernel()
    assert found is not None and found.path.is_relative_to(shared.packaged)


def test_a_package_may_come_from_another_compiler(machine: Machine, shared: Shared) -> None:
    machine.source("7.2", seccomp=True)
    shared.be(1000)
    machine.ensure()
    shared.patch.setattr(kernel_cache, "compiler", lambda: "another gcc")
    assert find_kernel() is None
    shared.own.rename(shared.packaged)
    assert find_kernel() is not None
    shared.patch.setattr(kernel_source, "EDITS", ())
    assert find_kernel() is None, "of other edits it is another kernel"


@pytest.mark.skipif(os.geteuid() != 0, reason="giving files to another user needs root")
def test_a_cache_that_others_may_write_to_is_not_used(machine: Machine, shared: Shared) -> None:
    machine.source("7.2", seccomp=True)
    shared.be(0)
    machine.ensure()
    shared.be(1000)
    assert find_kernel() is not None
    shared.machine_cache.chmod(0o777)
    assert find_kernel() is None
    shared.machine_cache.chmod(0o755)
    os.chown(shared.machine_cache, 1001, 1001)
    assert find_kernel() is None


def test_downpour_cache_is_the_only_cache(machine: Machine, shared: Shared) -> None:
    machine.source("7.2", seccomp=True)
    shared.be(0)
    machine.ensure()
    shared.patch.setenv("DOWNPOUR_CACHE", str(machine.tmp / "empty"))
    assert find_kernel() is None


def test_a_user_waits_for_roots_build_and_uses_it(machine: Machine, shared: Shared) -> None:
    """A fake build by root holds the lock, and puts the kernel there before releasing it."""
    machine.source("7.2", seccomp=True)
    shared.be(1000)
    made = machine.ensure()
    waits = threading.Event()
    results: list[Kernel] = []
    subprocess.run(["mv", shared.own, machine.tmp / "made"], check=True)
    (shared.machine_cache / "kernels").mkdir(parents=True)
    lock = shared.machine_cache / "kernels/lock"
    lock.touch()

    def say(text: str) -> None:
        if text == "another build is under way; waiting for its end":
            waits.set()

    builder = subprocess.Popen(["flock", "--no-fork", str(lock), "sleep", "600"])
    thread = threading.Thread(target=lambda: results.append(ensure_kernel(say)))
    try:
        deadline = time.monotonic() + 10
        while subprocess.run(["flock", "-n", str(lock), "true"]).returncode == 0:
            assert time.monotonic() < deadline
        thread.start()
        assert waits.wait(10)
        place = machine.tmp / "made/kernels" / made.path.parent.name
        place.rename(shared.machine_cache / "kernels" / place.name)
    finally:
        builder.kill()
        builder.wait()
    thread.join(20)
    assert [k.path.parent.name for k in results] == [made.path.parent.name]
    assert results[0].path.is_relative_to(shared.machine_cache)
    assert machine.compiled() == 1


@pytest.mark.slow
def test_a_builder_that_was_killed_leaves_no_kernel(machine: Machine) -> None:
    """After SIGKILL in the middle of a build there is no kernel, and the next build removes what is
    left."""
    machine.source("7.2", seccomp=True)
    with machine.command_that_compiles() as process:
        process.send_signal(signal.SIGKILL)
    assert find_kernel() is None and len(machine.leftovers()) == 1
    machine.mode.write_text("")
    assert machine.ensure().version == "7.2.4"
    assert machine.leftovers() == []


# --- DOWNPOUR_KERNEL ------------------------------------------------------------------------------


def test_a_named_kernel_comes_first(machine: Machine, shared: Shared) -> None:
    machine.source("7.2", seccomp=True)
    shared.be(1000)
    kernel = machine.ensure()
    place = machine.tmp / "given kernel"
    place.mkdir()
    for name in ("linux", "build.json"):
        (place / name).write_bytes((kernel.path.parent / name).read_bytes())
    (place / "linux").chmod(0o755)
    shared.patch.setenv("DOWNPOUR_KERNEL", str(place / "linux"))
    found = find_kernel()
    assert found is not None and found.path == place / "linux"
    (place / "build.json").rename(place / "linux.json")
    assert machine.ensure() == found


def test_a_named_kernel_that_does_not_fit_is_an_error(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.source("7.2", seccomp=True)
    kernel = machine.ensure()
    patch = machine.monkeypatch
    patch.setenv("DOWNPOUR_KERNEL", "/none/linux")
    with pytest.raises(KernelError, match="DOWNPOUR_KERNEL: found '/none/linux'; valid: a file"):
        find_kernel()
    assert cli.main(["kernel"]) == 1
    assert capsys.readouterr().err.startswith("kernel: DOWNPOUR_KERNEL: found '/none/linux'; ")
    patch.setenv("DOWNPOUR_KERNEL", str(kernel.path))
    assert find_kernel() == kernel
    kernel.path.write_text("#!/bin/sh\nother\n")
    with pytest.raises(KernelError, match=r"linux: found sha256 [0-9a-f]{64}; valid: [0-9a-f]{64}"):
        find_kernel()
    patch.setattr(kernel_source, "EDITS", ())
    with pytest.raises(KernelError, match="found configuration digest .*; valid: "):
        find_kernel()
    (kernel.path.parent / "build.json").write_text("{}")
    with pytest.raises(KernelError, match=r"build\.json: found version null; valid: as"):
        find_kernel()
    (kernel.path.parent / "build.json").unlink()
    with pytest.raises(KernelError, match=r"found no linux\.json and no build\.json beside it"):
        find_kernel()


# --- files of releases ----------------------------------------------------------------------------


def test_exported_then_installed_elsewhere(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.source("7.2", seccomp=True)
    kernel = machine.ensure()
    release = machine.tmp / "release"
    assert cli.main(["kernel", "--export", str(release)]) == 0
    (file,) = release.glob("*.xz")
    assert file.name.startswith(f"downpour-kernel-7.2.4-{kernel.digest}-")
    assert lzma.decompress(file.read_bytes()) == kernel.path.read_bytes()
    assert sorted(p.name for p in release.iterdir()) == [file.name, f"{file.name}.json"]
    # Another machine, with another compiler and an empty cache.
    machine.monkeypatch.setenv("DOWNPOUR_CACHE", str(machine.tmp / "elsewhere"))
    machine.monkeypatch.setattr(kernel_cache, "compiler", lambda: "another gcc")
    assert find_kernel() is None
    assert cli.main(["kernel", "--from", str(file)]) == 0
    found = find_kernel()
    assert found is not None and found.path.is_relative_to(machine.tmp / "elsewhere")
    assert found.path.read_bytes() == kernel.path.read_bytes() and os.access(found.path, os.X_OK)
    assert machine.compiled() == 1
    assert "kernel: Linux 7.2.4 (seccomp mode) is ready after " in capsys.readouterr().out


@pytest.mark.slow
def test_a_named_file_of_a_release_is_installed_once(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    file = released(machine)
    machine.monkeypatch.setenv("DOWNPOUR_KERNEL", str(file))
    assert find_kernel() is None and machine.leftovers() == [], "looking installs nothing"
    assert cli.main(["kernel"]) == 0
    found = find_kernel()
    assert found is not None and found.path.is_relative_to(machine.tmp / "elsewhere")
    assert "is ready after " in capsys.readouterr().out
    assert cli.main(["kernel"]) == 0
    assert f"is there: {found.path}" in capsys.readouterr().out
    assert machine.compiled() == 1
    good = file.read_bytes()
    file.write_bytes(good[:-20])
    machine.monkeypatch.setenv("DOWNPOUR_CACHE", str(machine.tmp / "third"))
    assert cli.main(["kernel"]) == 1
    assert f"kernel: {file}: cannot decompress it" in capsys.readouterr().err
    assert find_kernel() is None


def released(machine: Machine) -> Path:
    machine.source("7.2", seccomp=True)
    machine.ensure()
    file = export_kernel(machine.tmp / "release")
    machine.monkeypatch.setenv("DOWNPOUR_CACHE", str(machine.tmp / "elsewhere"))
    return file


def refused(machine: Machine, file: Path, text: str) -> None:
    with pytest.raises(KernelError, match=text):
        install_kernel(file)
    kernels = machine.tmp / "elsewhere/kernels"
    assert [p.name for p in kernels.glob("*") if p.name != "lock"] == []


def test_a_file_that_is_not_what_its_digest_says_is_refused(machine: Machine) -> None:
    file = released(machine)
    good = file.read_bytes()
    file.write_bytes(lzma.compress(b"#!/bin/sh\necho changed\n"))
    refused(machine, file, "found sha256 .*; valid: ")
    file.write_bytes(good[:-20])
    refused(machine, file, "cannot decompress it")
    file.write_bytes(b"no archive")
    refused(machine, file, "cannot decompress it")
    machine.monkeypatch.setattr(kernel_file, "MAX_KERNEL_BYTES", 3)
    file.write_bytes(good)
    refused(machine, file, "found more than 0 MB; valid: a kernel")


def test_a_file_without_a_good_digest_file_is_refused(machine: Machine) -> None:
    file = released(machine)
    sidecar = file.with_name(f"{file.name}.json")
    words = json.loads(sidecar.read_text())
    sidecar.write_text(json.dumps({**words, "sha256": ""}))
    refused(machine, file, "its digest file has no sha256")
    sidecar.write_text(json.dumps({**words, "digest": "0123456789ab"}))
    refused(machine, file, "found configuration digest 0123456789ab; valid: ")
    sidecar.write_text("[")
    refused(machine, file, r"\.json: .*; valid: as `virtual kernel --export` writes")
    sidecar.unlink()
    refused(machine, file, r"found no .*\.xz\.json and no build\.json beside it")
    refused(machine, machine.tmp / "none", "found '.*none'; valid: a file that")


def test_a_kernel_that_does_not_run_here_is_refused(machine: Machine) -> None:
    file = released(machine)
    program = b"#!/bin/sh\necho no such library >&2; exit 1\n"
    file.write_bytes(lzma.compress(program))
    sidecar = file.with_name(f"{file.name}.json")
    words = json.loads(sidecar.read_text())
    raw = machine.tmp / "raw"
    raw.write_bytes(program)
    sidecar.write_text(json.dumps({**words, "sha256": digests.digest_of(raw).sha256}))
    refused(machine, file, "does not run on this machine: no such library")


def test_nothing_to_export(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["kernel", "--export", str(machine.tmp / "release")]) == 1
    assert "found no kernel to export; valid: build one" in capsys.readouterr().err
    assert not (machine.tmp / "release").exists()


# --- build.json -----------------------------------------------------------------------------------

OLD = """{"version": "7.3.4", "package_version": "7.3.4-1~bpo13+1", "source": "a.deb",
"source_sha256": "70", "digest": "3ef6a2d83be3", "compiler": "gcc 12", "seccomp": true,
"fetch_s": 1.9, "unpack_s": 10, "compile_s": 363.9, "files": 1284, "options_dropped": []}"""


def test_a_description_of_an_earlier_version_is_read() -> None:
    build = parse_build(OLD)
    assert (build.version, build.files, build.origin, build.sha256) == ("7.3.4", 1284, "built", "")
    assert parse_build(OLD[:-1] + ', "of_later_versions": 1}') == build


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "found no object"),
        (OLD.replace('"7.3.4"', "7"), "found version 7"),
        (OLD.replace("true", '"yes"'), 'found seccomp "yes"'),
        (OLD.replace("1284", '"many"'), 'found files "many"'),
        (OLD.replace('"source_sha256": "70", ', ""), "found source_sha256 null"),
        (OLD.replace("{", "", 1), "Extra data"),
    ],
)
def test_a_bad_description_is_said(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_build(text)
