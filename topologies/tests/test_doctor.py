# SPDX-License-Identifier: Apache-2.0
"""What the doctor says of machines that have more or less."""

from __future__ import annotations

import dataclasses

import pytest

from topologies.emulate import doctor
from topologies.emulate.doctor import (
    ADVICE,
    INSTEAD,
    MISSING,
    OK,
    Finding,
    kernel_findings,
    tool_findings,
)
from topologies.emulate.facts import KernelFacts, parse_probe
from topologies.tests.test_facts import NO_MODULES

ALL = NO_MODULES + "netem=1\nvlan_8021q=1\nkernel_openvswitch=1\n"


def facts(text: str) -> KernelFacts:
    return parse_probe(text, kernel="6.1.0", cores=2, memory_bytes=4 * 1024**3, ctcp_missing="")


def levels(findings: list[Finding]) -> dict[str, str]:
    return {f.subject: f.level for f in findings}


def test_everything_here() -> None:
    assert set(levels(kernel_findings(facts(ALL))).values()) == {OK}


def test_replacements_are_named() -> None:
    found = {f.subject: f for f in kernel_findings(facts(NO_MODULES))}
    for subject, word in (
        ("kernel Open vSwitch", "modprobe openvswitch"),
        ("netem", "wire-relay delays and loses"),
        ("802.1Q interfaces", "edge switches tag"),
    ):
        assert found[subject].level == INSTEAD
        assert word in found[subject].text
    assert found["real-time priority"].level == OK


def test_missing_is_said_with_a_remedy() -> None:
    found = {f.subject: f for f in kernel_findings(facts(NO_MODULES.replace("htb=1\n", "")))}
    assert found["htb"] == Finding(
        MISSING, "htb", "a kernel with CONFIG_NET_SCH_HTB (modprobe sch_htb)"
    )


def test_missing_ctcp_says_what_takes_its_place() -> None:
    without = dataclasses.replace(facts(ALL), ctcp_missing="ctcp-load is not built")
    found = {f.subject: f for f in kernel_findings(without)}["Circuit TCP (ctcp)"]
    assert found.level == INSTEAD
    assert found.text.startswith("bbr takes its place") and "not built" in found.text


def test_small_machine_is_advised() -> None:
    small = dataclasses.replace(facts(ALL), cores=1, memory_bytes=1024**3)
    found = levels(kernel_findings(small))
    assert (found["processor cores"], found["memory"]) == (ADVICE, ADVICE)


def test_one_core_is_enough_in_virtual_time() -> None:
    guest = dataclasses.replace(facts(ALL), cores=1, clock="virtual")
    found = {f.subject: f for f in kernel_findings(guest)}["processor cores"]
    assert found == Finding(OK, "processor cores", "1 (virtual time: no computation takes time)")


def test_tools() -> None:
    found = tool_findings({"ip": "6.1.0", "tcpdump": None, "ovs-vsctl": None})
    assert found == [
        Finding(OK, "ip", "6.1.0"),
        Finding(ADVICE, "tcpdump", "not found; get it: apt install tcpdump"),
        Finding(MISSING, "ovs-vsctl", "not found; get it: apt install openvswitch-switch"),
    ]


def test_exit_code_only_for_the_necessary(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("topologies.emulate.facts.probe", lambda: facts(NO_MODULES))
    versions: dict[str, str | None] = {"ip": "6.1.0", "tcpdump": None}
    monkeypatch.setattr(doctor, "tool_versions", lambda: versions)
    monkeypatch.setattr(doctor, "machine_findings", lambda: [])
    assert doctor.doctor() == 0
    versions["ip"] = None
    assert doctor.doctor() == 1
    assert "missing: ip\n" in capsys.readouterr().out


def test_without_root_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert doctor.doctor() == 1
    assert "MISSING  root" in capsys.readouterr().out
