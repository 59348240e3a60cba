# SPDX-License-Identifier: Apache-2.0
"""Host names in a shell: the same as at the prompt, and for that shell alone."""

from __future__ import annotations

from pathlib import Path

from topologies.emulate.host_names import hosts_text, with_names
from topologies.model.load import find, load


def test_hosts_text() -> None:
    text = hosts_text(load(find("geni5"), {"receivers": 4}))
    assert text.startswith("127.0.0.1\tlocalhost\n10.20.0.2\tumass\n10.10.1.1\tumass.path\n")
    assert len(text.splitlines()) == 1 + 2 * 5


def test_a_command_gets_names_by_a_mount_of_its_own(tmp_path: Path) -> None:
    argv = with_names(["ping", "umass"], load(find("geni5"), {"receivers": 4}), tmp_path)
    assert argv[:2] == ["unshare", "--mount"] and argv[-2:] == ["ping", "umass"]
    assert "umass.path" in (tmp_path / "hosts").read_text()
