# SPDX-License-Identifier: Apache-2.0
"""What the installation says about the remaining time."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

PLUGIN = Path(__file__).resolve().parents[1] / "callback_plugins/downpour.py"


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the plug-in, loaded without Ansible."""
    for name in ("ansible", "ansible.plugins"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    base = SimpleNamespace(CallbackBase=object)
    monkeypatch.setitem(sys.modules, "ansible.plugins.callback", base)  # type: ignore[arg-type]
    spec = importlib.util.spec_from_file_location("progress_of_setup", PLUGIN)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_durations(plugin: ModuleType) -> None:
    assert [plugin.duration_text(s) for s in (0, 45, 59.4, 60, 200)] == [
        "0 s", "45 s", "59 s", "1:00 min", "3:20 min",
    ]  # fmt: skip


def test_what_is_left_is_never_nothing(plugin: ModuleType) -> None:
    usual = {"a": 60.0, "b": 30.0}
    assert plugin.left_text("a", 10.0, usual) == "about 1:20 min left"
    assert plugin.left_text("a", 61.0, usual) == "longer than usual, then about 30 s"
    assert plugin.left_text("b", 31.0, {"b": 30.0}) == "longer than usual"


def test_what_tasks_took_is_learnt(
    plugin: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learnt = tmp_path / "tasks.json"
    monkeypatch.setattr(plugin, "LEARNT", learnt)
    assert plugin.learnt_s() == plugin.TYPICAL_S
    name = next(iter(plugin.TYPICAL_S))
    learnt.write_text(json.dumps({name: 7.5, "unknown": 1}))
    assert plugin.learnt_s() == {**plugin.TYPICAL_S, name: 7.5}
    learnt.write_text("[broken")
    assert plugin.learnt_s() == plugin.TYPICAL_S
