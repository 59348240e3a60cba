# SPDX-License-Identifier: Apache-2.0
"""Who may know whom (docs/architecture.md), and rooms that compute the same thing twice agree."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from controller.books import Books
from controller.core import Endpoint, core_of
from controller.paths import Path as MultipointPath
from controller.trees import hops_to
from parsers.cell import lossy_link_directions
from topologies import wire_plan
from topologies.handoff_loss import with_handoff_loss
from topologies.load import find, load
from topologies.model import ControlledBy
from topologies.paths import path_to

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("topologies", "controller", "experiments", "parsers", "virtual", "bench", "labs")

# Room -> what it may import of the other rooms: a room, or single modules of it.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "topologies": (),
    "parsers": (),
    "controller": ("topologies.document", "topologies.model", "topologies.paths"),
    "experiments": ("topologies", "parsers", "controller.client", "virtual"),
    "bench": (
        "controller",
        "experiments.trace_model",
        "topologies.lifecycle",
        "topologies.model",
        "topologies.openvswitch",
        "topologies.shell",
        "topologies.units",
        "virtual",
    ),
    "labs": (
        "topologies",
        "controller.client",
        "controller.core",
        "experiments",
        "parsers",
        "virtual",
    ),
    "virtual": ("topologies.shell", "topologies.openvswitch", "topologies.units"),
}


def imported(source: str) -> set[str]:
    """Modules a source file imports, with a `from package import name` as package.name too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_imported_sees_all_forms() -> None:
    source = "import a.b\nfrom c import d\ndef f():\n    from e.f import g as h\n"
    assert imported(source) == {"a.b", "c.d", "e.f.g"}


@pytest.mark.parametrize("room", ROOMS)
def test_imports_point_downward(room: str) -> None:
    wrong = []
    files = [p for p in (ROOT / room).rglob("*.py") if "tests" not in p.parts]
    assert files
    for path in files:
        for module in imported(path.read_text()):
            package = module.split(".")[0]
            if package not in ROOMS or package == room:
                continue
            if not any(module == m or module.startswith(f"{m}.") for m in MAY_IMPORT[room]):
                wrong.append(f"{path.relative_to(ROOT)} imports {module}")
    assert not wrong


@pytest.mark.parametrize(
    ("name", "parameters"), [("geni5", {"receivers": 64}), ("drfsm8", {}), ("bottleneck", {})]
)
def test_controller_routes_as_the_topology_promises(name: str, parameters: dict[str, int]) -> None:
    """The RTT of a subscriber is computed along `topologies.paths`; the controller must choose the
    same switches, or the promise is broken."""
    network = load(find(name), parameters)
    (domain,) = (d.name for d in network.domains if d.controlled_by is ControlledBy.CONTROLLER)
    core = core_of(network, domain)
    of_domain = {s.name for s in network.switches if s.domain == domain}
    segment = network.segment_of(network.publisher.name)
    root = segment.endpoint_switch
    books = Books(core)
    endpoint = Endpoint(root, segment.endpoint_port, segment.vlan)
    books.replace(None, MultipointPath("p", 1, endpoint, 0))
    for host in network.subscribers:
        leaf = network.segment_of(host.name).endpoint_switch
        chosen = [root, *(hop.target for hop in hops_to(books, books.tree("p"), leaf))]
        promised = [hop.target for hop in path_to(network, host.name)]
        inside = [node for node in promised if node in of_domain]
        assert chosen == inside


def test_parsers_know_where_netem_loses_what_the_topology_asks_for() -> None:
    """The interfaces of impaired links are numbered by topologies.wire_plan."""
    network = with_handoff_loss(load(find("drfsm8")), 0.01)
    planned = {
        f"{wire_plan.WIRE}/{d.egress}"
        for d in wire_plan.plan(network, "netem").directions
        if d.asked.loss > 0
    }
    found = lossy_link_directions(network.to_json(), "network.json")
    assert found == planned | {"sw-frgp:star/forward"}
    assert len(planned) == 1


def test_make_help_names_every_documented_command() -> None:
    text = subprocess.run(
        ["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for command in ("experiment-%", "test", "doctor", "up", "shell", "status", "down", "report"):
        assert f"make {command} " in text


def test_make_shell_without_host_says_what_is_valid() -> None:
    done = subprocess.run(["make", "-s", "shell"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode != 0
    assert "found no HOST; valid: make shell HOST=name" in done.stderr
