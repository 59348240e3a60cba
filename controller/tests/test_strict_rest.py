# SPDX-License-Identifier: Apache-2.0
"""What the REST interface accepts (names, numbers, methods), and what reaches the log."""

from __future__ import annotations

import logging
import shutil
import threading
from typing import Any

import pytest

from controller.api.path_client import PathClient
from controller.log import LineFormatter, set_up_logging
from controller.service.workgroups import WorkgroupErrors, load
from controller.tests.openapi import whole_app
from controller.tests.rig import Rig, assert_problem
from controller.tests.test_access import GROUPS, TOKENS, Site
from controller.tests.test_rest import LEAF, PATH, ROOT


@pytest.mark.parametrize("name", [".", ".."])
def test_names_that_urls_lose_are_refused(rig: Rig, name: str, tmp_path: Any) -> None:
    assert_problem(rig.http.post("/v1/paths", json={**PATH, "name": name}), 422, "body.name")
    hold = {"hold_s": 30, "path": PATH}
    assert_problem(rig.http.post("/v1/holds", json={**hold, "id": name}), 422, "body.id")
    named = {**hold, "path": {**PATH, "name": name}}
    assert_problem(rig.http.post("/v1/holds", json=named), 422, "body.path.name")
    owned = {**PATH, "workgroup": name}
    assert_problem(rig.http.post("/v1/paths", json=owned), 422, "body.workgroup")
    file = tmp_path / "workgroups.yaml"
    file.write_text(f'workgroups:\n  - {{name: "{name}", token_sha256: "{"00" * 32}"}}\n')
    with pytest.raises(WorkgroupErrors, match="not dots alone"):
        load(file)
    for fine in ("...a", "a..", "a.b", "-", "x" * 64):
        response = rig.http.post("/v1/paths", json={**PATH, "name": fine})
        assert response.status_code == 201, fine
        assert rig.http.delete(f"/v1/paths/{fine}").status_code == 204


@pytest.mark.parametrize("name", [".", "..", "a.b"])
def test_client_reaches_a_path_of_an_older_service_with_dots(rig: Rig, name: str) -> None:
    from controller.paths.core import Endpoint

    rig.service.create(name, Endpoint.of("s1", 1, 101), 0)
    client = PathClient("http://testserver")
    client._client = rig.http
    assert client.get(name)["name"] == name
    client.delete_path(name)
    assert rig.http.get("/v1/paths").json() == []


def log_text(caplog: pytest.LogCaptureFixture) -> str:
    formatter = LineFormatter("%(levelname)s %(name)s: %(message)s")
    return "\n".join(formatter.format(record) for record in caplog.records)


CONTROLS = [*map(chr, [*range(0x20), *range(0x7F, 0xA0)]), "\u2028", "\u2029", "\u202e", "\ud800"]


def test_no_control_character_reaches_the_log() -> None:
    formatter = LineFormatter("%(levelname)s %(name)s: %(message)s")
    for character in CONTROLS:
        record = logging.LogRecord("x", logging.INFO, "f", 1, "group=%s", (f"a{character}b",), None)
        line = formatter.format(record)
        assert line.startswith("INFO x: group=a\\") and line.endswith("b"), repr(line)
        assert line.isprintable() and line.encode()


def test_traceback_forges_no_line() -> None:
    try:
        raise ValueError("x\r\n2026-11-22T00:00:00.000Z INFO forged: \x00\x1b[2J")
    except ValueError as error:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "failed", None, None)
        record.exc_info = (type(error), error, error.__traceback__)
    text = LineFormatter("%(levelname)s %(message)s").format(record)
    first, *rest = text.split("\n")
    assert first == "ERROR failed"
    assert rest and all(line.startswith("    ") and line.isprintable() for line in rest)
    assert "ValueError: x" in text


def test_the_log_file_has_that_format(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    set_up_logging(tmp_path / "log", verbose=True)
    logging.getLogger("x").info("a\nb\x00c\ud800")
    assert (tmp_path / "log").read_text().endswith("x: a\\x0ab\\x00c\\ud800\n")


def test_log_whose_directory_has_gone_stops_nobody(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    place = tmp_path / "logs"
    place.mkdir()
    set_up_logging(place / "log", verbose=False)
    shutil.rmtree(place)
    for number in range(5):
        logging.getLogger("x").info("lost %d", number)
    assert len(capsys.readouterr().err.splitlines()) == 1
    place.mkdir()
    logging.getLogger("x").info("there again")
    assert (place / "log").read_text().endswith("there again\n")


def test_requests_put_no_control_character_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    site = Site()
    forged = "x\n2026-11-22T00:00:00.000Z INFO    controller.launcher: forged"
    answers = [
        site["ops"].post("/v1/paths", json={**PATH, "workgroup": forged}),
        site["ops"].post("/v1/paths", json={**PATH, "name": forged}),
        site["ops"].post("/v1/paths", json={**PATH, "root": {**ROOT, "switch": forged}}),
        *(
            site["ops"].request(method, f"/v1/{what}/a%00%0a%1b{rest}")
            for method, what, rest in (
                ("GET", "paths", ""),
                ("DELETE", "paths", ""),
                ("GET", "paths", "/counters"),
                ("GET", "holds", ""),
                ("DELETE", "holds", ""),
                ("POST", "holds", "/commit"),
                ("DELETE", "paths", "/leaves/s1/1/101"),
                ("DELETE", "paths/a/leaves", "/1/101"),
            )
        ),
    ]
    assert [answer.status_code for answer in answers] == [422] * len(answers)
    assert_problem(site["ops"].get("/v1/none%00%0a"), 404)
    assert site["ops"].get("/v1/paths").json() == []
    lines = log_text(caplog).split("\n")
    assert all(line.isprintable() for line in lines), lines
    assert not any(line.startswith("2026") for line in lines)


def test_a_workgroup_that_does_not_exist_is_refused() -> None:
    site = Site()
    body = {**PATH, "workgroup": "unidate"}
    for response in (
        site["ops"].post("/v1/paths", json=body),
        site["ops"].post("/v1/holds", json={"hold_s": 9, "path": body}),
    ):
        assert_problem(response, 422, "there is no workgroup 'unidate'; valid: ", "unidata")
    for name in ("unidate", "other"):  # a workgroup that is no admin does not learn which exist
        response = site["unidata"].post("/v1/paths", json={**PATH, "workgroup": name})
        assert_problem(response, 403, f"may not make paths of '{name}'")
    for name in ("unidata", "ops", "owner"):
        response = site["ops"].post("/v1/paths", json={**PATH, "workgroup": name})
        assert (response.status_code, response.json()["workgroup"]) == (201, name)
        assert site["ops"].delete("/v1/paths/NGRID").status_code == 204
    assert set(TOKENS) == {group.name for group in GROUPS.all()}


@pytest.mark.slow
def test_allow_lists_all_methods(rig: Rig) -> None:
    """RFC 9110, 15.5.6: for every path of the interface, and every method that it does not have."""
    from fastapi.testclient import TestClient

    from controller.api.auth import Access
    from controller.service.workgroups import Workgroups

    app = whole_app(rig)
    http = TestClient(app, client=("", 1))
    assert Access(Workgroups()).admit(http.headers, "")  # as the owner
    methods = {"get", "head", "post", "put", "patch", "delete", "options"}
    for path, operations in app.openapi()["paths"].items():
        url = path.format(name="n", hold_id="h", switch="s1", port=1, vlan=7)
        for method in methods - operations.keys():
            response = http.request(method, url)
            assert response.status_code == 405, (method, url)
            allowed = set(response.headers["allow"].lower().split(", "))
            assert allowed == operations.keys(), (method, url)


@pytest.mark.slow
def test_every_body_may_be_answered_400(rig: Rig) -> None:
    """The OpenAPI document says so, for each operation that takes a body."""
    served = whole_app(rig).openapi()
    found = set()
    for path, operations in served["paths"].items():
        for method, operation in operations.items():
            if "requestBody" in operation or path == "/v1/domains/messages":
                assert {"400", "408", "413", "422"} <= set(operation["responses"]), path
                found.add(f"{method} {path}")
    assert found == {
        "patch /v1/paths/{name}",
        "post /v1/domains/messages",
        "post /v1/holds",
        "post /v1/paths",
        "post /v1/paths/{name}/leaves",
        "post /v1/reservations",
    }
    kind = {"content-type": "application/json"}
    for method, url in (
        ("POST", "/v1/paths"),
        ("POST", "/v1/holds"),
        ("POST", "/v1/reservations"),
        ("POST", "/v1/paths/n/leaves"),
        ("PATCH", "/v1/paths/n"),
    ):
        for body in (b"[" * 200_000, b'{"name": ' + b"9" * 100_000 + b"}"):
            assert_problem(rig.http.request(method, url, content=body, headers=kind), 400)


def test_numbers_are_those_of_the_schema(rig: Rig) -> None:
    """395.0 is an integer for JSON Schema; true and "395" are none, nor are they numbers."""
    root = {**ROOT, "port": 1.0, "vlan": 101.0}
    response = rig.http.post("/v1/paths", json={**PATH, "root": root, "rate_bps": 20_000_000.0})
    assert (response.status_code, response.json()["root"]) == (201, ROOT)
    assert response.json()["rate_bps"] == 20_000_000
    leaf = {**LEAF, "vlan": 102.0}
    assert rig.http.post("/v1/paths/NGRID/leaves", json=leaf).status_code == 201
    for text in ("395.5", '"395"', "true", "null", "[395]", "1e999"):
        body = '{"switch": "s2", "port": 9, "vlan": %s}' % text  # noqa: UP031 - braces
        response = rig.http.post(
            "/v1/paths/NGRID/leaves", content=body, headers={"content-type": "application/json"}
        )
        assert_problem(response, 422, "body.vlan")
    for value in ("2000000000", True):
        response = rig.http.patch("/v1/paths/NGRID", json={"end_time": value})
        assert_problem(response, 422, "body.end_time")
        hold = {"hold_s": value, "path": {**PATH, "name": "x"}}
        assert_problem(rig.http.post("/v1/holds", json=hold), 422, "body.hold_s")
    assert rig.http.patch("/v1/paths/NGRID", json={"end_time": 2_000_000_000}).status_code == 200


def test_the_schema_tells_what_is_checked_besides(rig: Rig) -> None:
    past = {**PATH, "end_time": rig.clock.now - 1}
    assert_problem(rig.http.post("/v1/paths", json=past), 422, "is in the past; valid: after now")
    schemas = rig.http.get("/openapi.json").json()["components"]["schemas"]
    request = schemas["PathRequest"]["properties"]
    assert "later than now" in str(request["end_time"])
    assert "later than now" in str(schemas["PathPatch"]["properties"]["end_time"])
    assert request["rate_bps"]["anyOf"] == [{"const": 0}, {"minimum": 1000}]
    mac = schemas["EndpointModel"]["properties"]["macs"]["items"]["pattern"]
    assert "[02468ACEace]" in mac
