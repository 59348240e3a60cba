# SPDX-License-Identifier: Apache-2.0
"""The environment sets how often observers look."""

from __future__ import annotations

import pytest

from common import looking
from common.shell import NetworkError
from topologies.emulate.openvswitch import seldom


def test_as_usual_unless_more_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(looking.VARIABLE, raising=False)
    assert looking.every_s(0.2) == 0.2
    monkeypatch.setenv(looking.VARIABLE, "60")
    assert looking.every_s(0.2) == 60
    monkeypatch.setenv(looking.VARIABLE, "0.1")
    assert looking.every_s(0.2) == 0.2


@pytest.mark.parametrize("text", ["", "often", "-1", "nan", "601"])
def test_what_is_no_time_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(looking.VARIABLE, text)
    with pytest.raises(NetworkError, match=f"found '{text}'; valid: 0 to 600"):
        looking.every_s(1.0)


def test_the_switch_looks_seldom_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(looking.VARIABLE, raising=False)
    assert seldom() == []
    monkeypatch.setenv(looking.VARIABLE, "600")
    assert "other_config:max-revalidator=60000" in seldom()
