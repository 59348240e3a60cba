# SPDX-License-Identifier: Apache-2.0
"""The option `--onos` of `python -m controller`."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from common.exit_codes import EXIT_USAGE
from common.onos import OnosAddress
from controller import launcher
from controller.options import parse_arguments, settings_of
from controller.tests.sample import network

URL = "http://127.0.0.1:8181"


def words(directory: Path, *more: str) -> list[str]:
    file = directory / "network.json"
    file.write_text(network().to_json(), encoding="utf-8")
    return [
        *("--network", str(file), "--domain", "core"),
        *("--rest-socket", str(directory / "s"), *more),
    ]


def test_with_onos_no_link_is_probed(tmp_path: Path) -> None:
    switches = settings_of(parse_arguments(words(tmp_path, "--onos", URL))).switches
    assert switches.onos == OnosAddress("127.0.0.1", 8181)
    assert switches.liveness_period_ms == 0
    assert settings_of(parse_arguments(words(tmp_path))).switches.onos is None


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--queues", "ovsdb"], "--onos with --queues ovsdb; valid: one of them"),
        (["--lease-s", "1"], "--onos with --lease-s; valid: one of them"),
        (
            ["--of-tls-key", "a", "--of-tls-cert", "b", "--of-tls-ca", "c"],
            "--onos with --of-tls-key; valid: one of them",
        ),
    ],
)
def test_what_onos_does_not_go_with(
    tmp_path: Path, more: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments(words(tmp_path, "--onos", URL, *more))
    assert ended.value.code == EXIT_USAGE
    assert says in capsys.readouterr().err


def test_a_wrong_address_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert launcher.main(words(tmp_path, "--onos", "ssh://onos")) == EXIT_USAGE
    assert capsys.readouterr().err == (
        "controller: --onos: found 'ssh://onos'; valid: http://HOST:PORT, "
        "e.g. http://127.0.0.1:8181\n"
    )


def test_onos_that_does_not_answer_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    assert launcher.main(words(tmp_path, "--onos", url)) == EXIT_USAGE
    said = capsys.readouterr().err
    assert said == f"controller: {url} does not answer: Connection refused\n"
