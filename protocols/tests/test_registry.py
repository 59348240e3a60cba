# SPDX-License-Identifier: Apache-2.0
"""Protocols by name; one from outside the tree takes part like any other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.design.spec import SpecErrors, load
from protocols import registry

MODULE = """
from protocols.adapter import Adapter

def receiver(setup, number):
    return ["copy-recv", setup.group_port, str(setup.inbox(number))]

def sender(setup, files):
    return ["copy-send", setup.group_port, *map(str, files)]

COPY = Adapter(
    name="copy", title="Copy", feed="batch", needs=("copy-send", "copy-recv"),
    receiver=receiver, sender=sender, repairs="nothing", limits=("It loses what is lost.",),
)
"""
EXPERIMENT = """
name: own
description: a protocol of another package beside LDM7
topology: geni5
factors: {protocol: [ldm7, PROTOCOL], receivers: [2], rate_bps: [20Mbps], loss: [0]}
parameters:
  {f_snd: 5000, f_rcv: 20, b_mc: 1MB, b_uc: 1MB, b_rcv: 1MB, q_snd: 100MB, n_snd: 100}
base_seed: 1
duration_s: 5
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put a directory on the path, as an installed package has; forget earlier lookups."""
    registry._of_packages.cache_clear()
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    registry._of_packages.cache_clear()
    sys.modules.pop("copy_protocol", None)


def package(place: Path, entry: str = "copy = copy_protocol:COPY") -> None:
    (place / "copy_protocol.py").write_text(MODULE)
    about = place / "copy_protocol-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: copy-protocol\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[downpour.protocols]\n{entry}\n")


def experiment(place: Path, protocol: str) -> Path:
    path = place / "own.yaml"
    path.write_text(EXPERIMENT.replace("PROTOCOL", protocol))
    return path


def test_a_protocol_of_another_package_is_a_level_like_any_other(install: Path) -> None:
    package(install)
    assert registry.get("copy").title == "Copy"
    assert registry.names()[-1] == "copy"
    spec = load(experiment(install, "copy"))
    assert spec.factors[0].protocol == ("ldm7", "copy")  # type: ignore[index]


@pytest.mark.parametrize("name", ["udpcast", "flute-rs", "uftp", "aeron", "quic"])
def test_other_projects_protocols_are_levels(tmp_path: Path, name: str) -> None:
    spec = load(experiment(tmp_path, name))
    assert spec.factors[0].protocol == ("ldm7", name)  # type: ignore[index]


def test_a_protocol_that_is_not_there_is_told_with_the_nearest(install: Path) -> None:
    with pytest.raises(registry.ProtocolError, match=r"'nrom'; valid: ldm7.*mean 'norm'"):
        registry.get("nrom")
    with pytest.raises(SpecErrors, match=r"own.yaml:5: found .*'copy'.*valid: ldm7, ldm6, fcast"):
        load(experiment(install, "copy"))


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("copy = copy_protocol:NONE", "which does not load: .*NONE"),
        ("copy = copy_protocol:sender", "valid: an Adapter named 'copy'"),
        ("other = copy_protocol:COPY", "valid: an Adapter named 'other'"),
        ("ldm7 = copy_protocol:COPY", "found the name 'ldm7'"),
    ],
)
def test_a_wrong_entry_point_is_told(install: Path, entry: str, expected: str) -> None:
    package(install, entry)
    with pytest.raises(registry.ProtocolError, match=expected):
        registry.get("copy")
