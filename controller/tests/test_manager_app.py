# SPDX-License-Identifier: Apache-2.0
"""The path service as an app of `ryu-manager` or `osken-manager`: mistakes, paths, other apps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from controller.manager_app import words_of
from controller.options import UsageError
from controller.tests import process
from controller.tests.ovs_bench import EVERYONE, MULTICAST, RATE, needs_open_vswitch, open_bench
from controller.tests.sample import LEAF_2, LEAF_3, LEAF_4, MAC_1, ROOT, network

# Another app in the same process: it counts the replies that the service asked for.
NEIGHBOUR = """
import sys
if "ryu.cmd.manager" in sys.modules:
    from ryu.base.app_manager import RyuApp as App
    from ryu.controller import ofp_event
    from ryu.controller.handler import MAIN_DISPATCHER, set_ev_cls
else:
    from os_ken.base.app_manager import OSKenApp as App
    from os_ken.controller import ofp_event
    from os_ken.controller.handler import MAIN_DISPATCHER, set_ev_cls

class Neighbour(App):
    @set_ev_cls(ofp_event.EventOFPPortStatsReply, MAIN_DISPATCHER)
    def ports(self, event):
        with open({out!r}, "a") as file:
            file.write(f"{{event.msg.datapath.id}} {{len(event.msg.body)}}\\n")
"""


def config(directory: Path, text: str) -> list[str]:
    path = directory / "service.conf"
    path.write_text(text)
    return [str(path)]


def test_options_of_the_configuration(tmp_path: Path) -> None:
    files = config(tmp_path, "[downpour]\nrest_socket = /run/x\nverbose = yes\ndomain = core\n")
    assert words_of(files) == ["--rest-socket", "/run/x", "--verbose", "--domain", "core"]
    assert words_of(config(tmp_path, "[downpour]\nverbose = no\n")) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", r"valid: --config-file FILE with a section \[downpour\]"),
        ("[downpour]\nrest_scoket = x\n", r"found 'rest_scoket'; .*\(nearest: rest_socket\)"),
        ("[downpour]\nverbose = perhaps\n", "verbose: found 'perhaps'; valid: yes, no"),
        ("downpour\n", "no section headers"),
    ],
)
def test_mistakes_in_the_configuration(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        words_of(config(tmp_path, text))


def launched(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "controller", "manager", *arguments],
        cwd=process.CHECKOUT,
        capture_output=True,
        text=True,
        timeout=process.HANG_S,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"domain": "nowhere"}, "domain 'nowhere' of network 'sample' does not exist; valid: core"),
        ({"rest_socket": "/nowhere/rest.sock"}, "--rest-socket /nowhere/rest.sock: No such file"),
    ],
)
def test_mistakes_end_the_launcher_in_one_line(
    tmp_path: Path, settings: dict[str, str], expected: str
) -> None:
    file = tmp_path / "network.json"
    file.write_text(network().to_json())
    values = {
        "network": str(file),
        "domain": "core",
        "rest_socket": str(tmp_path / "rest.sock"),
        "of_listen": "127.0.0.1:16653",
        **settings,
    }
    text = "".join(f"{name} = {value}\n" for name, value in values.items())
    files = config(tmp_path, f"[DEFAULT]\nenable_debugger = true\n[downpour]\n{text}")
    done = launched("--config-file", *files, "controller/manager_app.py")
    assert done.returncode == 2, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("manager_app: ")]
    assert len(said) == 1 and expected in said[0], done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_launcher_without_an_app_or_with_one_that_is_not_there() -> None:
    done = launched("controller/no_such_app.py")
    assert done.returncode == 2
    assert "no_such_app" in done.stderr and "Traceback" not in done.stderr


@needs_open_vswitch
@pytest.mark.slow
def test_paths_beside_another_app(tmp_path: Path) -> None:
    """The launcher runs the service and another app: frames are replicated and translated, and the
    other app sees the statistics that switches sent."""
    counted = tmp_path / "counted"
    neighbour = tmp_path / "neighbour.py"
    neighbour.write_text(NEIGHBOUR.format(out=str(counted)))
    with open_bench(apps=(str(neighbour),)) as bench, bench.client() as client:
        expected = os.environ.get("DOWNPOUR_EXPECT_FRAMEWORK", "")
        assert f"with {expected}" in bench.log().read_text()
        client.create_path("NGRID", ROOT, RATE)
        for leaf in (LEAF_2, LEAF_3, LEAF_4):
            client.add_leaf("NGRID", leaf)
        bench.expect(EVERYONE, "s1", MULTICAST, MAC_1, 101)
        client.remove_leaf("NGRID", LEAF_4)
        bench.expect([("s2", 102), ("s3", 103)], "s1", MULTICAST, MAC_1, 101)
        process.wait_until("statistics at the other app", counted.exists, 30)
