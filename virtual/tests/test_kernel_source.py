# SPDX-License-Identifier: Apache-2.0
"""Edits of the kernel's source, and where it comes from."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
from pathlib import Path

import pytest

from virtual import kernel_fetch, kernel_source
from virtual.kernel_fetch import (
    Pin,
    PinError,
    Source,
    installed,
    mirror_in,
    newest,
    offered,
    source_of,
)
from virtual.kernel_source import EDITS, FILES, Edit, EditError, KernelError, edited

EDIT = Edit("net/Makefile", "obj-y += b.o\n", "obj-y += ours.o\n", "it is ours")


def test_insertion_after_and_before() -> None:
    text = "obj-y += a.o\nobj-y += b.o\nobj-y += c.o\n"
    assert edited(text, EDIT, "7.2.1") == (
        "obj-y += a.o\nobj-y += b.o\nobj-y += ours.o\nobj-y += c.o\n"
    )
    before = Edit(EDIT.file, EDIT.anchor, EDIT.insertion, EDIT.reason, before=True)
    assert edited(text, before, "7.2.1") == (
        "obj-y += a.o\nobj-y += ours.o\nobj-y += b.o\nobj-y += c.o\n"
    )


@pytest.mark.parametrize(("text", "times"), [("obj-y += a.o\n", 0), ("obj-y += b.o\n" * 2, 2)])
def test_an_anchor_must_be_there_once(text: str, times: int) -> None:
    with pytest.raises(EditError) as caught:
        edited(text, EDIT, "7.9.1")
    assert str(caught.value) == (
        f"kernel 7.9.1: net/Makefile: found {times} times 'obj-y += b.o'; "
        "valid: exactly once (needed for: it is ours)"
    )


def fake_tree(tree: Path) -> None:
    """Write files that have the anchors of all edits and nothing else."""
    for edit in EDITS:
        path = tree / edit.file
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as stream:
            stream.write(edit.anchor)
    for file in FILES:
        (tree / file.target).parent.mkdir(parents=True, exist_ok=True)


def test_apply_copies_and_edits(tmp_path: Path) -> None:
    fake_tree(tmp_path)
    kernel_source.apply(tmp_path, "7.2.1")
    for edit in EDITS:
        assert edit.insertion in (tmp_path / edit.file).read_text(encoding="utf-8")
    for file in FILES:
        ours = (kernel_source.DROP_INS / file.name).read_text(encoding="utf-8")
        assert (tmp_path / file.target).read_text(encoding="utf-8") == ours
        assert "SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only" in ours.splitlines()[0]


def test_apply_changes_nothing_if_one_edit_does_not_fit(tmp_path: Path) -> None:
    fake_tree(tmp_path)
    last = tmp_path / EDITS[-1].file
    last.write_text("int other;\n", encoding="utf-8")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(EditError, match=f"kernel 7.9.1: {EDITS[-1].file}: found 0 times"):
        kernel_source.apply(tmp_path, "7.9.1")
    last.unlink()
    with pytest.raises(EditError, match=f"{EDITS[-1].file}: No such file"):
        kernel_source.apply(tmp_path, "7.9.1")
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == {
        p: data for p, data in before.items() if p != last
    }


@pytest.mark.parametrize(
    ("name", "series", "package", "seccomp"),
    [
        ("linux-source-6.1.tar.xz", (6, 1), "", False),
        ("linux-source-6.8.0.tar.bz2", (6, 8, 0), "", False),
        ("linux-source-6.15.tar.gz", (6, 15), "", False),
        ("linux-source-6.16.tar.xz", (6, 16), "", True),
        ("linux-source-7.2_7.2.11-1~bpo13+1_all.deb", (7, 2), "7.2.11-1~bpo13+1", True),
    ],
)
def test_names_of_sources(name: str, series: tuple[int, ...], package: str, seccomp: bool) -> None:
    source = source_of(Path("/x") / name)
    assert source == Source(Path("/x") / name, series, package)
    assert source.seccomp is seccomp


@pytest.mark.parametrize("name", ["linux-7.2.tar.xz", "linux-source-7.2.zip", "linux-source.deb"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(KernelError, match=f"found source '{name}'; valid: linux-source-VERSION"):
        source_of(Path(name))


def test_newest_is_by_number_not_by_letter() -> None:
    names = ["linux-source-6.9.tar.xz", "linux-source-6.12.tar.xz", "linux-config-7.2.tar.xz"]
    found = newest(Path(n) for n in names)
    assert found is not None and found.series == (6, 12)
    packages = ["7.2.9-1~bpo13+1", "7.2.12-1~bpo13+1", "7.2.11-1~bpo13+1"]
    found = newest(Path(f"linux-source-7.2_{p}_all.deb") for p in packages)
    assert found is not None and found.package_version == "7.2.12-1~bpo13+1"
    assert newest([]) is None


def test_installed_sources_of_debian_and_ubuntu(tmp_path: Path) -> None:
    assert installed(tmp_path) is None
    (tmp_path / "linux-source-6.1.tar.xz").touch()
    (tmp_path / "linux-source-6.1").mkdir()
    found = installed(tmp_path)
    assert found is not None and found.path == tmp_path / "linux-source-6.1.tar.xz"
    directory = tmp_path / "linux-source-6.8.0"
    directory.mkdir()
    (directory / "linux-source-6.8.0.tar.bz2").touch()
    found = installed(tmp_path)
    assert found is not None and found.path == directory / "linux-source-6.8.0.tar.bz2"


def test_the_machines_mirror_is_debians_not_its_security_archive() -> None:
    text = (
        "Other|Other|http://packages.example/apt/\n"
        "Debian|Debian-Security|http://mirror.example/debian-security/\n"
        "Debian|Debian|http://mirror.example/debian/\n"
    )
    assert mirror_in(text) == "http://mirror.example/debian"
    assert mirror_in("Ubuntu|Ubuntu|http://archive.ubuntu.com/ubuntu/\n") == kernel_fetch.MIRROR
    assert mirror_in("") == kernel_fetch.MIRROR


def test_what_the_archive_offers() -> None:
    def entry(name: str, version: str, size: int) -> str:
        return f"Package: {name}\nSource: linux\nVersion: {version}\nSize: {size}\nTag: x"

    text = "\n\n".join(
        [
            entry("linux-source-7.2", "7.2.9-1", 1),
            entry("linux-source-7.2", "7.2.12-1", 2),
            entry("linux-source-7.3", "7.3.4-1", 3),
            entry("linux-source-6.12", "6.12.9-1", 4),
            entry("linux-source", "7.3.4-1", 5),
        ]
    )
    assert offered(text) == [
        ("linux-source-7.3", "7.3.4-1", 3),
        ("linux-source-7.2", "7.2.12-1", 2),
    ]
    assert offered("") == []


def make_source(folder: Path, name: str = "linux-source-7.2.tar.xz") -> Path:
    """Make a source with one file of each kind that is kept or left out."""
    top = folder / "linux-source-7.2"
    for path in (
        "Makefile", "Documentation/Kconfig", "Documentation/a/b.rst", "arch/um/kernel/time.c",
        "arch/x86/um/x.c", "arch/arm/a.c", "arch/arm/crypto/Kconfig", "drivers/gpu/Kconfig",
        "drivers/gpu/drm/a.c", "drivers/gpu/drm/a.h", "drivers/char/random.c", "drivers/net/veth.c",
        "drivers/net/ethernet/intel/e.c", "drivers/net/ethernet/Kconfig", "drivers/base/core.c",
        "drivers/tty/tty_io.c", "fs/open.c", "sound/core/a.c", "sound/Kconfig",
    ):  # fmt: skip
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).touch()
    (top / "Makefile").write_text("VERSION = 7\nPATCHLEVEL = 2\nSUBLEVEL = 11\nNAME = x\n")
    subprocess.run(["tar", "-caf", folder / name, "-C", folder, "linux-source-7.2"], check=True)
    return folder / name


@pytest.mark.parametrize("suffix", ["xz", "gz"])
def test_unpack_leaves_out_what_no_build_reads(tmp_path: Path, suffix: str) -> None:
    path = make_source(tmp_path, f"linux-source-7.2.tar.{suffix}")
    tree = tmp_path / "tree"
    kernel_fetch.unpack(source_of(path), tree)
    found = {str(p.relative_to(tree)) for p in tree.rglob("*") if p.is_file()}
    assert found == {
        "Makefile", "Documentation/Kconfig", "arch/um/kernel/time.c", "arch/x86/um/x.c",
        "arch/arm/crypto/Kconfig", "drivers/gpu/Kconfig", "drivers/char/random.c",
        "drivers/net/veth.c", "drivers/net/ethernet/Kconfig", "drivers/base/core.c",
        "drivers/tty/tty_io.c", "fs/open.c", "sound/Kconfig",
    }  # fmt: skip
    assert kernel_fetch.version_of(tree) == "7.2.11"


def test_a_file_that_is_no_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "linux-source-7.2.tar.xz"
    path.write_text("not xz\n")
    with pytest.raises(KernelError, match=f"{path}: cannot unpack a kernel source: .*format"):
        kernel_fetch.unpack(source_of(path), tmp_path / "tree")


def test_a_tree_without_version_is_named(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="Makefile: No such file"):
        kernel_fetch.version_of(tmp_path)
    (tmp_path / "Makefile").write_text("VERSION = 7\n")
    with pytest.raises(KernelError, match="found no VERSION, PATCHLEVEL, SUBLEVEL"):
        kernel_fetch.version_of(tmp_path)


APT_GET = """#!/bin/sh
case "$*" in
*indextargets*) echo 'Debian|Debian|http://mirror.example/debian/'; exit ;;
esac
for word; do case "$word" in Dir::Etc::sourcelist=*) list=$(cat "${word#*=}") ;; esac; done
echo "$list" >> "$PLAYED/asked"
case "$*" in
*update*)
  case "$list" in *mirror.example*) echo "hook failed" >&2; echo "$UPDATE" >&2; exit 100 ;; esac ;;
*download*) shift $(($# - 1)); echo data > "${1%%=*}_${1#*=}_all.deb"; [ ! -e "$PLAYED/refuse" ] ;;
esac
"""
APT_CACHE = """#!/bin/sh
for word; do case "$word" in Dir::Etc::sourcelist=*) list=$(cat "${word#*=}") ;; esac; done
case "$list" in *mirror.example*) exit ;; esac
case "$*" in
*pkgnames*) echo linux-source-7.3; echo linux-source-7.2 ;;
*) printf 'Package: linux-source-7.3\\nVersion: 7.3.4-1\\nSize: 9\\n\\n'
   printf 'Package: linux-source-7.2\\nVersion: 7.2.9-1\\nSize: 9\\n' ;;
esac
"""


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fake apt's programs: the machine's mirror lacks the suite, the public one has 7.3 and 7.2."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, text in (("apt-get", APT_GET), ("apt-cache", APT_CACHE)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    monkeypatch.setenv("PLAYED", str(tmp_path))
    monkeypatch.setenv("UPDATE", "E: The repository is not signed.")
    monkeypatch.setattr(kernel_fetch, "KEYRING", tmp_path / "keyring.gpg")
    (tmp_path / "keyring.gpg").touch()
    return tmp_path


def test_fetch_asks_the_mirror_then_the_public_archive_and_keeps_the_file(archive: Path) -> None:
    said: list[str] = []
    store = archive / "store"
    source = kernel_fetch.fetch(store, said.append)
    assert source == Source(store / "linux-source-7.3_7.3.4-1_all.deb", (7, 3), "7.3.4-1")
    assert [p.name for p in store.iterdir()] == [source.path.name], "nothing of apt's is left"
    asked = (archive / "asked").read_text().splitlines()
    assert asked == [
        f"deb [signed-by={archive}/keyring.gpg] {mirror} trixie-backports main"
        for mirror in ("http://mirror.example/debian", *[kernel_fetch.MIRROR] * 2)
    ], "update, update, download; always with the key, never trusted"
    assert kernel_fetch.fetch(store, said.append) == source
    assert len((archive / "asked").read_text().splitlines()) == 3, "it was there"
    older = kernel_fetch.fetch(store, said.append, [(7, 3)])
    assert (older.series, older.package_version) == ((7, 2), "7.2.9-1")


def test_the_pinned_source_is_fetched_and_no_other_bytes(archive: Path) -> None:
    """The fake archive has 7.3.4-1: four letters and a line end."""
    sha256 = hashlib.sha256(b"data\n").hexdigest()
    pin = Pin("linux-source-7.2", "7.2.9-1", sha256)
    said: list[str] = []
    source = kernel_fetch.fetch_pinned(archive / "store", said.append, pin)
    assert source.path.name == "linux-source-7.2_7.2.9-1_all.deb", "not the newest"
    asked = (archive / "asked").read_text()
    assert kernel_fetch.fetch_pinned(archive / "store", said.append, pin) == source
    assert (archive / "asked").read_text() == asked, "it was there"
    other = dataclasses.replace(pin, sha256="0" * 64)
    with pytest.raises(PinError, match="found other bytes than SHA-256 0000"):
        kernel_fetch.fetch_pinned(archive / "empty", said.append, other)
    assert list((archive / "empty").iterdir()) == []
    gone = dataclasses.replace(pin, version="7.2.8-1")
    with pytest.raises(PinError, match="has no linux-source-7.2 7.2.8-1 any more"):
        kernel_fetch.fetch_pinned(archive / "empty", said.append, gone)


def test_fetch_that_fails_quotes_apt(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (archive / "refuse").touch()
    with pytest.raises(KernelError) as caught:
        kernel_fetch.fetch(archive / "store", lambda _text: None)
    assert "http://mirror.example/debian: apt-get update of trixie-backports: " in str(caught.value)
    assert "E: The repository is not signed." in str(caught.value)
    assert "hook failed" not in str(caught.value)
    assert f"{kernel_fetch.MIRROR}: apt-get download linux-source-7.3" in str(caught.value)
    assert list((archive / "store").iterdir()) == []
    with pytest.raises(KernelError, match="has no other kernel source"):
        kernel_fetch.fetch(archive / "store", lambda _text: None, [(7, 3), (7, 2)])
    monkeypatch.setattr(kernel_fetch, "KEYRING", archive / "none")
    with pytest.raises(KernelError, match="get it: apt install debian-archive-keyring"):
        kernel_fetch.fetch(archive / "store", lambda _text: None)
