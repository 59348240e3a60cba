# SPDX-License-Identifier: Apache-2.0
"""The status page's bytes, as kernel/downpour.h lays them out."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from virtual import status_page
from virtual.status_page import StatusPage, StatusPageError, parse


def page(sequence: int = 6, magic: bytes = b"DPSTATUS", version: int = 1, size: int = 80) -> bytes:
    """Pack the C structure: char[8], 2 u32, 5 u64, s32, u32, char[16]: 8 + 8 + 40 + 8 + 16 = 80."""
    head = magic + version.to_bytes(4, "little") + size.to_bytes(4, "little")
    numbers = b"".join(n.to_bytes(8, "little") for n in (sequence, 11_000_000_005, 3, 1234, 98765))
    task = struct.pack("<iI", 42, 0) + b"ovs-vswitchd\0\0\0\0"
    return (head + numbers + task).ljust(4096, b"\0")


def test_every_field_has_its_place() -> None:
    assert parse(page()) == StatusPage(
        virtual_ns=11_000_000_005,
        jumps=3,
        switches=1234,
        syscalls=98765,
        pid=42,
        comm="ovs-vswitchd",
        sequence=6,
    )


def test_before_the_kernel_writes(tmp_path: Path) -> None:
    status_page.create(tmp_path / "status")
    assert (tmp_path / "status").stat().st_size == 4096
    assert status_page.read(tmp_path / "status") is None


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (page(magic=b"DPSTATUX"), r"found b'DPSTATUX', version 1, 80 bytes; valid: b'DPSTATUS'"),
        (page(version=2), "version 2, 80 bytes; valid: .* version 1"),
        (page(size=88), "version 1, 88 bytes"),
        (page()[:79], "found 79 bytes; valid: at least 80"),
    ],
)
def test_what_is_no_page_is_said(data: bytes, text: str) -> None:
    with pytest.raises(StatusPageError, match=text):
        parse(data)


def test_a_name_of_full_length_has_no_end() -> None:
    data = page().replace(b"ovs-vswitchd\0\0\0\0", b"0123456789abcdef")
    found = parse(data)
    assert found is not None and found.comm == "0123456789abcdef"


def test_read_waits_for_the_end_of_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has a page with an odd sequence, then one that changes while it is read, then a
    whole one."""
    path = tmp_path / "status"
    path.write_bytes(page())
    answers = iter(
        [page(7), page(8), page(10)[16:24], page(12).replace(b"ovs-", b"new-"), page(12)[16:24]]
    )
    monkeypatch.setattr("os.pread", lambda *_: next(answers))
    found = status_page.read(path)
    assert found is not None and (found.sequence, found.comm) == (12, "new-vswitchd")


def test_read_ends_in_any_case(tmp_path: Path) -> None:
    """A kernel that is killed in the middle of a change leaves an odd sequence forever."""
    (tmp_path / "status").write_bytes(page(7))
    found = status_page.read(tmp_path / "status")
    assert found is not None and found.pid == 42
