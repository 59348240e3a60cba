# SPDX-License-Identifier: Apache-2.0
"""The workgroups file, who may use what, and how often a workgroup may ask."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from common.http.ratelimit import RateLimit
from controller.paths.core import Endpoint
from controller.service.workgroups import (
    OWNER,
    VlanSet,
    Workgroup,
    WorkgroupErrors,
    load,
    read_token,
    unknown_endpoints,
)

TOKEN = "a-token-of-the-tests-0123456789"
DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()


def written(directory: Path, text: str) -> Path:
    path = directory / "workgroups.yaml"
    path.write_text(text)
    return path


def test_file(tmp_path: Path) -> None:
    token_file = tmp_path / "ops.token"
    token_file.touch(mode=0o600)
    token_file.write_text("the-token-of-operations-1\n")
    groups = load(
        written(
            tmp_path,
            f"""\
workgroups:
  - name: unidata
    token_sha256: ["{DIGEST}", "{"00" * 32}"]
    endpoints:
      - {{switch: newy, port: 3, vlans: "100-199,205"}}
      - {{switch: wash, port: 1, vlans: 7}}
  - {{name: ops, token_file: ops.token, admin: true}}
  - {{name: esnet, token_sha256: "{"11" * 32}", peer: true}}
""",
        )
    )
    unidata = groups.by_token(TOKEN)
    assert unidata is not None
    assert (unidata.name, unidata.is_admin, unidata.is_peer) == ("unidata", False, False)
    assert [str(grant) for grant in unidata.grants] == [
        "newy:3 VLANs 100-199,205",
        "wash:1 VLANs 7",
    ]
    ops = groups.by_token("the-token-of-operations-1")
    assert ops is not None and ops.is_admin
    assert groups.by_token(TOKEN + "0") is None
    assert groups.by_token("") is None
    assert unknown_endpoints(groups, lambda switch, _port: switch == "newy") == [
        "workgroup 'unidata': wash:1 is not an access port of this domain"
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ":1: found an empty file; valid: a list 'workgroups'"),
        ("workgroups: 1", ":1: found no list 'workgroups'"),
        ("workgroups:\n  - 7", ":2: found 7; valid: a mapping with name"),
        ("workgroups:\n  - {name: a b}", ":2: found name 'a b'"),
        ("workgroups:\n  - {name: owner}", ":2: found name 'owner'"),
        ("workgroups:\n  - {name: x}", "workgroup 'x' without a token; valid: token_sha256"),
        ("workgroups:\n  - {name: x, token_file: none}", "none: No such file"),
        ("workgroups:\n  - {name: x, token_sha256: abc}", "an invalid digest"),
        ("workgroups:\n  - {name: x, colour: 1}", ":2: found key 'colour'; valid: name,"),
        ("workgroups:\n  - name: x\n    admin: 1", ":3: found 1; valid: true or false"),
        (
            "workgroups:\n  - name: x\n    endpoints:\n      - {switch: s, port: 0, vlans: 1}",
            ":4: found 0; valid: a port number",
        ),
        (
            'workgroups:\n  - name: x\n    endpoints:\n      - {switch: s, port: 1, vlans: "9-5"}',
            ":4: found '9-5' is not within 1..4094, low end first; valid: \"100-199,205\"",
        ),
        (
            f"workgroups:\n  - {{name: x, token_sha256: '{DIGEST}'}}\n"
            f"  - {{name: y, token_sha256: '{DIGEST}'}}",
            ":3: found a token of 'y' that another workgroup has",
        ),
    ],
)
def test_mistakes_in_the_file(tmp_path: Path, text: str, expected: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(WorkgroupErrors) as caught:
        load(path)
    assert f"{path}" in str(caught.value)
    assert expected in str(caught.value)


def test_token_written_instead_of_its_digest_is_not_quoted(tmp_path: Path) -> None:
    with pytest.raises(WorkgroupErrors) as caught:
        load(written(tmp_path, f"workgroups:\n  - {{name: x, token_sha256: {TOKEN}}}"))
    assert TOKEN not in str(caught.value)


def test_token_file_that_others_can_read(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o640)
    with pytest.raises(ValueError, match="mode 0640") as caught:
        read_token(path)
    assert TOKEN not in str(caught.value)
    path.chmod(0o600)
    assert read_token(path) == TOKEN
    path.write_text("short")
    with pytest.raises(ValueError, match=r"16\.\.512 characters"):
        read_token(path)


def test_vlan_sets() -> None:
    assert str(VlanSet.parse("7, 100-199,150-250,251")) == "7,100-251"
    allowed = VlanSet.parse("100-199,205")
    assert [vlan in allowed for vlan in (99, 100, 199, 200, 205)] == [
        False,
        True,
        True,
        False,
        True,
    ]
    for text in ("", "0", "4095", "5-", "a", "1-2-3", "-1", "١"):
        with pytest.raises(ValueError):
            VlanSet.parse(text)


def test_objections_say_what_is_valid(tmp_path: Path) -> None:
    text = (
        f"workgroups:\n  - {{name: x, token_sha256: '{DIGEST}', "
        "endpoints: [{switch: s1, port: 1, vlans: 100-199}]}"
    )
    group = load(written(tmp_path, text)).by_token(TOKEN)
    assert group is not None
    assert group.objection_to(Endpoint("s1", 1, 150)) == ""
    assert group.objection_to(Endpoint("s1", 1, 200)) == (
        "workgroup 'x' may not use VLAN 200 on port 1 of switch 's1'; valid VLANs there: 100-199"
    )
    assert "valid: s1:1 VLANs 100-199" in group.objection_to(Endpoint("s2", 1, 150))
    assert "no endpoint at all" in Workgroup("y").objection_to(Endpoint("s2", 1, 150))
    assert OWNER.objection_to(Endpoint("s2", 1, 150)) == ""


def test_rate_limit() -> None:
    """2 per second, 3 at once: the fourth must wait; half a second brings one more."""
    limit = RateLimit(2.0, 3.0)
    assert [limit.take("a", 10.0) for _ in range(4)] == [0, 0, 0, 1]
    assert limit.take("b", 10.0) == 0
    assert [limit.take("a", 10.5), limit.take("a", 10.5)] == [0, 1]
    assert [limit.take("a", 99.0) for _ in range(4)] == [0, 0, 0, 1]
    assert RateLimit(0.1, 1.0).take("a", 0.0) == 0
    slow = RateLimit(0.1, 1.0)
    assert [slow.take("a", 0.0), slow.take("a", 0.0), slow.take("a", 6.0)] == [0, 10, 4]


def test_rate_limit_remembers_a_bounded_number() -> None:
    limit = RateLimit(1.0, 1.0, max_keys=2)
    for key in ("a", "b", "a", "c"):  # b had asked least recently when c came
        limit.take(key, 0.0)
    assert limit.take("a", 0.0) > 0
    assert limit.take("b", 0.0) == 0
