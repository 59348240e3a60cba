# SPDX-License-Identifier: Apache-2.0
"""The command-line client against a path service on a Unix socket, with switches in Python."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from common import graphviz
from common.http.server import Server
from controller.api import (
    ctl,
    ctl_text,
    picture,
    rest,
)
from controller.api.answers import PathAnswer
from controller.api.counters import router_of
from controller.api.listening import listen_unix
from controller.api.path_client import PathClient, PathEvent
from controller.paths.core import Endpoint
from controller.paths.multipoint_path import Channels
from controller.tests.fake_switch import Frame
from controller.tests.rig import Rig
from controller.tests.sample import MAC_1, MAC_3A, MAC_3B

MULTICAST = "01:00:5e:01:01:01"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(rig: Rig, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    address = tmp_path / "rest.sock"
    app = rest.make_app(rig.service, None, [router_of(rig.service, rig.monitor)])
    server = Server(app, [listen_unix(address)])
    server.start()

    def run(*argv: str) -> tuple[int, str, str]:
        code = ctl.main(["--at", str(address), *argv])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    yield run
    server.stop(timeout_s=5)


def with_path(run: Run) -> None:
    assert run("create", "NGRID", "--root", "s1:1:101", "--rate", "20M")[0] == 0
    assert run("add", "NGRID", "s3:9:103", "s4:9:104")[0] == 0


@pytest.mark.slow
def test_life_of_a_path(run: Run, rig: Rig) -> None:
    code, out, _ = run("create", "NGRID", "--root", "s1:1:101", "--rate", "20M", "--steiner")
    assert (code, out) == (0, "path NGRID: up, 0 leaves\n")
    code, out, _ = run("add", "NGRID", "s3:9:103", f"s4:9:204@{MAC_3A.replace('3a', '77')}")
    assert (code, out) == (0, "path NGRID: up, 2 leaves\n")
    path = rig.service.path("NGRID").path
    assert (path.root.macs, path.algorithm, path.rate_bps) == ((MAC_1,), "steiner", 20_000_000)
    assert [leaf.macs for leaf in path.leaves] == [(MAC_3A, MAC_3B), ("02:00:00:00:00:77",)]
    code, out, _ = run("list")
    assert [line.split() for line in out.splitlines()] == [
        ["PATH", "STATE", "RATE", "ROOT", "LEAVES", "WORKGROUP", "END"],
        ["NGRID", "up", "20", "Mbit/s", "s1:1:101", "2", "owner", "-"],
    ]
    code, out, _ = run("remove", "NGRID", "s3:9:103")
    assert (code, out) == (0, "path NGRID: up, 1 leaf\n")
    assert run("delete", "NGRID") == (0, "path NGRID deleted\n", "")
    assert run("--json", "list") == (0, "[]\n", "")


def test_a_reservation_is_listed_and_cancelled(run: Run, rig: Rig) -> None:
    """The rig's clock shows 1970-01-12T13:46:40Z."""
    asked = ("--root", "s1:1:101", "--rate", "20M", "--end", "1970-01-12T16:00")
    later = ("--start", "1970-01-12T15:00+01:00", "s3:9:103", "s4:9:104")
    code, out, _ = run("reserve", "NGRID", *asked, *later)
    line = "path NGRID: reserved from 1970-01-12T14:00:00Z to 1970-01-12T16:00:00Z, 2 leaves\n"
    assert (code, out) == (0, line)
    assert [line.split() for line in run("reservations")[1].splitlines()] == [
        ["PATH", "RATE", "ROOT", "LEAVES", "WORKGROUP", "START", "END"],
        ["NGRID", "20", "Mbit/s", "s1:1:101", "2", "owner"]
        + ["1970-01-12T14:00:00Z", "1970-01-12T16:00:00Z"],
    ]
    assert rig.sent == []
    code, _, err = run("reserve", "late", *asked, "--start", "1970-01-12T13:00")
    assert code == 1 and "start_time 997200.000" in err and "after now" in err
    for wrong in ("noon", f"+{'9' * 400}d", "2026-13-01"):
        code, _, err = run("reserve", "x", *asked[:4], "--start", wrong, "--end", "+2h")
        assert code == 2 and "valid: +90m" in err
    code, _, err = run("reserve", "x", *asked[:4], "--start", "+999999999d", "--end", "+999999999d")
    assert code == 1 and "253402300799" in err
    assert run("cancel", "NGRID") == (0, "reservation NGRID cancelled\n", "")
    assert run("--json", "reservations") == (0, "[]\n", "")
    assert run("cancel", "NGRID")[0] == 1


@pytest.mark.slow
def test_show_compares_what_entered_with_what_leaves_got(run: Run, rig: Rig) -> None:
    with_path(run)
    run("show", "NGRID")
    rig.clock.now += 2
    for _ in range(1200):
        rig.net.inject("s1", 1, Frame(MULTICAST, MAC_1, 101))
    rig.net.inject("s4", 9, Frame(MAC_1, "02:00:00:00:00:99", 104))
    code, out, _ = run("show", "NGRID")
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    since = "13:46:40"  # 1,000,000 s after the epoch began
    assert " ".join(lines[2][:6]) == "entered 1,200 frames 0.1 MB multicast,"
    assert " ".join(lines[8][:11]) == f"s4:9:104 up 1,200 frames 0.1 MB 0 of 1,200 since {since}Z"
    assert lines[8][-2:] == ["1", "0"]  # spoofed, denied
    hop = "s1 -> s2 300 1,200 frames 0.1 MB 1,200 frames 0.1 MB 0 of 1,200"
    assert " ".join(lines[11][:15]) == hop
    code, out, _ = run("--json", "show", "NGRID")
    shown = json.loads(out)
    assert shown["path"]["name"] == shown["counters"]["name"] == "NGRID"


def test_channels(run: Run, rig: Rig) -> None:
    """Frames of the second of two groups, which s3 has joined."""
    asked = ["--channels", "232.10.1.0/2", "--leave-latency", "3000"]
    run("create", "p", "--root", "s1:1:101", "--rate", "20M", *asked)
    run("add", "p", "s3:9:103")
    channels = rig.service.path("p").path.channels
    assert channels == Channels(IPv4Address("232.10.1.0"), 2, 3000)
    rig.service.set_channels("p", {("s3", 9, 103): frozenset([1])})
    for _ in range(3):
        rig.net.inject("s1", 1, Frame("01:00:5e:0a:01:01", MAC_1, 101))
    rig.clock.now += 2
    last = [line.split("  ") for line in run("show", "p")[1].splitlines()[-2:]]
    assert [[cell.strip() for cell in line if cell] for line in last] == [
        ["CHANNEL", "ENTERED", "LEAF", "JOINED", "GOT"],
        ["232.10.1.1", "3 frames 0.0 MB", "s3:9:103", "yes", "3 frames 0.0 MB"],
    ]


@pytest.mark.slow
def test_picture(run: Run, rig: Rig, tmp_path: Path) -> None:
    with_path(run)
    run("create", "other", "--root", "s2:9:202", "--rate", "best-effort")
    code, out, _ = run("picture", "NGRID")
    assert code == 0
    assert '"switch s1" -> "switch s2" [color="#4477AA", label="VLAN 300"];' in out
    assert '"switch s4" -> "leaf NGRID s4:9:104" [color="#4477AA", label="VLAN 104"];' in out
    assert '"root NGRID" -> "switch s1" [color="#4477AA", label="VLAN 101"];' in out
    assert "other" not in out
    for _ in range(3):
        rig.net.inject("s1", 1, Frame(MULTICAST, MAC_1, 101))
    rig.clock.now += 2
    target = tmp_path / "plan.dot"
    assert run("picture", "--counters", "--output", str(target))[0] == 0
    assert 'label="VLAN 300\\n3 of 3"' in target.read_text()
    assert "best effort" in target.read_text()
    assert run("picture", "--output", str(tmp_path / "plan.gif"))[0] == 2


@pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz is not installed")
def test_picture_as_svg(run: Run, tmp_path: Path) -> None:
    with_path(run)
    target = tmp_path / "plan.svg"
    assert run("picture", "--output", str(target))[0] == 0
    texts = [e.text for e in ElementTree.parse(target).iter() if e.tag.endswith("}text")]
    assert {"VLAN 300", "VLAN 310", "VLAN 330", "s3:9:103", "20 Mbit/s"} <= set(texts)
    assert list(tmp_path.glob(".*.tmp")) == []


def test_names_that_mean_something_to_dot_are_only_names() -> None:
    path: PathAnswer = {
        "name": 'x" -> "y',
        "state": "degraded",
        "workgroup": "",
        "algorithm": "shortest",
        "leaf_to_leaf": False,
        "end_time": None,
        "meter": None,
        "groups": [],
        "channels": None,
        "rate_bps": 0,
        "root": {"switch": "a\\", "port": 1, "vlan": 2, "macs": []},
        "leaves": [{"switch": "b", "port": 1, "vlan": 3, "macs": [], "state": "down"}],
        "edges": [],
    }
    drawn = picture.dot_of([path])
    assert '"root x\\" -> \\"y" [shape=house' in drawn
    assert '"switch a\\\\" [label="a\\\\"];' in drawn
    assert "style=dashed" in drawn and '"switch b"' not in drawn
    if shutil.which("dot") is not None:
        assert b"x&quot; &#45;&gt; &quot;y" in graphviz.draw(drawn)


def test_refusals_are_told_and_change_the_exit_code(run: Run) -> None:
    with_path(run)
    code, out, err = run("add", "NGRID", "s2:9:102", "s2:8:102")
    assert (code, out) == (1, "")
    assert err.startswith("paths: Invalid endpoint: port 8 of switch 's2' is not an access port")
    assert "(done before: s2:9:102)" in err
    code, _, err = run("show", "nothing")
    assert code == 1 and "there is no path 'nothing'" in err


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["create", "x", "--root", "s1:1", "--rate", "1M"], "found 's1:1'; valid: SWITCH:PORT"),
        (["create", "x", "--root", "s1:1:1@02:00", "--rate", "1M"], "found MAC '02:00'"),
        (["create", "x", "--root", "s1:1:1", "--rate", "fast"], "found 'fast'; valid: e.g. 20M"),
        (
            ["create", "x", "--root", "s1:1:1", "--rate", "1M", "--end", "soon"],
            "found 'soon'; valid: +90m",
        ),
        (
            ["create", "x", "--root", "s1:1:1", "--rate", "1M", "--channels", "232.10.1.0/x"],
            "found '232.10.1.0/x'; valid: GROUP[/COUNT], e.g. 232.10.1.0/46",
        ),
        (
            ["create", "x", "--root", "s1:1:1", "--rate", "1M", "--leave-latency", "9"],
            "found --leave-latency without --channels; valid: both",
        ),
        (["frobnicate"], "downpour paths: found command 'frobnicate'; valid: list, show"),
    ],
)
def test_bad_usage(argv: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ctl.main(["--at", "/nowhere", *argv]) == 2
    assert text in capsys.readouterr().err


def test_no_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ctl.ADDRESS, raising=False)
    assert ctl.main(["list"]) == 2
    assert "no --at ADDRESS" in capsys.readouterr().err
    assert ctl.main(["--at", str(tmp_path / "none.sock"), "list"]) == 3
    assert "does not answer at" in capsys.readouterr().err
    token = tmp_path / "token"
    assert ctl.main(["--at", "/x", "--token-file", str(token), "list"]) == 2
    assert f"--token-file {token}: No such file" in capsys.readouterr().err
    token.write_text("\n")
    assert ctl.main(["--at", "/x", "--token-file", str(token), "list"]) == 2
    assert "empty" in capsys.readouterr().err


def test_switches_and_workgroup(run: Run, rig: Rig) -> None:
    rig.service.switch_down("s3")
    code, out, _ = run("switches")
    assert [line.split() for line in out.splitlines()][1:] == [
        ["s1", "up"],
        ["s2", "up"],
        ["s3", "down"],
        ["s4", "up"],
    ]
    assert run("workgroup")[1] == "workgroup owner (admin)\n"


def test_watch_prints_events_since(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream does not end by itself; here it ends with the last event of the path's set-up."""
    with_path(run)
    events = PathClient.events

    def until_second_leaf(service: PathClient, since: str) -> Iterator[PathEvent]:
        leaves = 0
        for event in events(service, since):
            yield event
            leaves += event.kind == "leaf-added"
            if leaves == 2:
                return

    monkeypatch.setattr(PathClient, "events", until_second_leaf)
    code, out, _ = run("watch", "--since", "0-0")
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    kinds = [line[1] for line in lines if line[1].startswith(("path", "leaf"))]
    assert kinds[:3] == ["path-created", "leaf-added", "leaf-added"]
    added = next(line for line in lines if line[1] == "leaf-added")
    assert added[0] == "1970-01-12T13:46:40Z"
    assert "path=NGRID" in added
    code, out, _ = run("--json", "watch", "--since", "0-0")
    first = json.loads(out.splitlines()[0])
    assert set(first) == {"id", "kind", "data"}


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [
        ("20M", 20_000_000),
        ("1.5Gbps", 1_500_000_000),
        ("500kbit/s", 500_000),
        ("1234", 1234),
        ("best-effort", 0),
    ],
)
def test_rates(text: str, rate_bps: int) -> None:
    assert ctl_text.rate_of(text) == rate_bps


def test_ends() -> None:
    assert ctl_text.time_of("+90m", 1000.0) == 6400.0
    assert ctl_text.time_of("1970-01-02T00:00", 0.0) == 86400.0
    assert ctl_text.time_of("1970-01-02T00:00+01:00", 0.0) == 82800.0


def test_endpoints() -> None:
    assert ctl_text.endpoint_of("chic:3:1201") == Endpoint("chic", 3, 1201)
    assert ctl_text.endpoint_of("a:b:1:2@02:00:00:00:00:AA") == Endpoint(
        "a:b", 1, 2, ("02:00:00:00:00:aa",)
    )
