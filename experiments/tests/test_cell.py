# SPDX-License-Identifier: Apache-2.0
"""What a cell's process decides without a network."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest

from common.contracts import ARRIVED_COMMENT
from experiments.cells.cell_base import CellError
from experiments.cells.fidelity import Fidelity
from experiments.cells.replay_cell import CellRun
from experiments.design import loss_model, shaping
from experiments.design.expansion import CellSpec
from topologies.emulate.emulation import Emulation


class FakeLab:
    """A host whose kernel has the bpf match or lacks it; it shows the rules that it took."""

    def __init__(self, bpf: bool, statistic: bool = True) -> None:
        self._refused = {"bpf": not bpf, "statistic": not statistic}
        self.rules: list[list[str]] = []

    def nic1_of(self, host: str) -> str:
        return f"{host}-eth0"

    def run(self, host: str, argv: list[str], *, check: bool = True) -> Any:
        del host
        if argv == shaping.IPTABLES_SHOW:
            return subprocess.CompletedProcess(argv, 0, "".join(map(self._shown, self.rules)), "")
        match = argv[argv.index("-m") + 1]
        if self._refused.get(match, False):
            assert not check
            return subprocess.CompletedProcess(argv, 4, "", f"no {match}\nat all\n")
        self.rules.append(argv[2:])
        return subprocess.CompletedProcess(argv, 0, "", "")

    @staticmethod
    def _shown(rule: list[str]) -> str:
        words = [f'"{word}"' if " " in word else word for word in rule]
        at = words.index("-j") if "-j" in words else len(words)
        return " ".join([*words[:at], "-c 5 500", *words[at:]]) + "\n"


def injected(cell: CellSpec, emulation: FakeLab) -> CellRun:
    """Return a cell's run that has only what injecting loss needs."""
    run = CellRun.__new__(CellRun)
    run.cell, run.emulation = cell, cast(Emulation, emulation)
    run.settings, run.loss_models = [], {}
    run.loss_of = {"uva": cell.loss}
    run.fidelity = Fidelity(run.emulation, Path("/nowhere"), Path("/nowhere"))
    return run


def test_loss_by_hash(cells: dict[str, CellSpec]) -> None:
    for protocol, cell in cells.items():
        run = injected(cell, FakeLab(bpf=True))
        arrived, lost = run._inject_loss("uva")
        assert ARRIVED_COMMENT in arrived
        assert loss_model.program(0.01, loss_model.loss_seed(cell.seed, "uva")) in lost
        assert ("-p udp" in lost) == (protocol == "ldm7")
        assert run.loss_models == {"uva": "hash"}
        assert run.settings
        assert shaping.mismatches(run.settings) == []


def test_loss_without_bpf_is_drawn_and_says_so(cells: dict[str, CellSpec]) -> None:
    run = injected(cells["ldm7"], FakeLab(bpf=False))
    _, lost = run._inject_loss("uva")
    assert "--mode random --probability 0.0100000000" in lost
    why = "random (not replayable: the kernel has no bpf match (no bpf at all))"
    assert run.loss_models == {"uva": why}
    assert shaping.mismatches(run.settings) == []


def test_loss_that_cannot_be_had_ends_the_cell(cells: dict[str, CellSpec]) -> None:
    asked = dataclasses.replace(cells["ldm7"], loss_model="random")
    run = injected(asked, FakeLab(bpf=True, statistic=False))
    with pytest.raises(CellError, match="uva: iptables .*statistic.*no statistic"):
        run._inject_loss("uva")


def test_no_loss_no_rule_that_drops(cells: dict[str, CellSpec]) -> None:
    emulation = FakeLab(bpf=True)
    run = injected(dataclasses.replace(cells["ldm6"], loss=0.0), emulation)
    (arrived,) = run._inject_loss("uva")
    assert ARRIVED_COMMENT in arrived
    assert not any("-j" in rule for rule in emulation.rules)
    assert run.loss_models == {}
    assert shaping.mismatches(run.settings) == []
