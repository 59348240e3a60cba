# SPDX-License-Identifier: Apache-2.0
"""Whatever workgroups do beside one another, no answer to one reveals what another has."""

from __future__ import annotations

import os
import random
import re
from typing import Any

import pytest
from fastapi.testclient import TestClient

from controller.api.auth import Access
from controller.service.workgroups import Grant, VlanSet, Workgroup, Workgroups
from controller.tests.rig import Clock, Rig
from controller.tests.test_access import TOKENS, digest

STEPS = 250
ENDS = (("s1", 1), ("s2", 9), ("s3", 9), ("s4", 9))
EVERYWHERE = tuple(Grant(switch, port, VlanSet.parse("1-4094")) for switch, port in ENDS)
GROUPS = Workgroups(
    [
        Workgroup("unidata", digest("unidata"), grants=EVERYWHERE),
        Workgroup("other", digest("other"), grants=EVERYWHERE),
        Workgroup("ops", digest("ops"), is_admin=True),
    ]
)
# Words and times of the workgroups that keep a secret; the spy, `other`, never sends one of them.
# The rig's times have 7 digits before the point; a hold's end is this machine's time and has 10.
SECRET = re.compile(r"hush|02:5e:c2|\bunidata\b|\bops\b|\b\d{7}\.777(?!\d)")
SPY = "other"


class Actor:
    """Makes random requests of one workgroup, about few things, so that they meet those of
    others."""

    def __init__(self, who: str, http: TestClient, dice: random.Random, now: float) -> None:
        self.who, self.dice, self.now = who, dice, now
        self.word = "spy" if who == SPY else f"hush-{who}"
        self.macs = "02:00:00:00:01" if who == SPY else "02:5e:c2:00:01"
        self.http = http

    def name(self) -> str:
        return f"{self.word}-{self.dice.randrange(4)}"

    def end(self, index: int) -> dict[str, Any]:
        switch, port = ENDS[index]
        vlan, mac = self.dice.randrange(100, 106), f"{self.macs}:{self.dice.randrange(16):02x}"
        return {"switch": switch, "port": port, "vlan": vlan, "macs": [mac]}

    def path(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "name": self.name(),
            "root": self.end(0),
            "rate_bps": self.dice.choice([0, 10**6, 40 * 10**6, 10**9]),
        }
        if self.dice.random() < 0.3:
            body["channels"] = {"base": "232.1.1.0", "count": 4}
        return body

    def times(self) -> dict[str, float]:
        odd = 0.5 if self.who == SPY else 0.777
        start = self.now + 100 * self.dice.randrange(1, 4) + odd
        return {"start_time": start, "end_time": start + 150}

    def held(self) -> dict[str, Any]:
        return {**self.path(), "leaves": [self.end(self.dice.randrange(1, 4))]}

    def act(self) -> Any:
        """Make one request."""
        path, name = "/v1/paths", self.name()
        end = self.end(self.dice.randrange(1, 4))
        place = f"{end['switch']}/{end['port']}/{end['vlan']}"
        hold = {"id": self.name(), "hold_s": 60, "path": self.held()}
        requests: list[tuple[str, str, Any]] = [
            ("POST", path, self.path()),
            ("POST", path, self.path()),
            ("POST", f"{path}/{name}/leaves", end),
            ("POST", f"{path}/{name}/leaves", end),
            ("DELETE", f"{path}/{name}/leaves/{place}", None),
            ("DELETE", f"{path}/{name}", None),
            ("PATCH", f"{path}/{name}", {"end_time": self.times()["end_time"]}),
            ("POST", "/v1/holds", hold),
            ("POST", f"/v1/holds/{name}/commit", None),
            ("DELETE", f"/v1/holds/{name}", None),
            ("POST", "/v1/reservations", {**self.held(), **self.times()}),
            ("DELETE", f"/v1/reservations/{name}", None),
        ]
        looks = [path, "/v1/reservations", "/v1/metrics", "/v1/health"]
        looks += [f"/v1/{kind}/{name}" for kind in ("paths", "holds", "reservations")]
        looks += [f"{path}/{name}/counters", f"{path}?limit=1000", "/v1/workgroups/me"]
        requests += [("GET", url, None) for url in looks]
        method, url, body = self.dice.choice(requests)
        self.http.headers["authorization"] = f"Bearer {TOKENS[self.who]}"
        return method, url, body, self.http.request(method, url, json=body)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4 if "DOWNPOUR_TEST_LONG" in os.environ else 1))
def test_nobody_is_told_of_others(seed: int) -> None:
    dice, rig = random.Random(seed), Rig()
    http = rig.http_as("192.0.2.1", Access(GROUPS, 1e6, Clock()))
    actors = [Actor(who, http, dice, rig.clock.now) for who in ("unidata", "ops", SPY, SPY)]
    codes: dict[str, set[int]] = {}
    for _ in range(STEPS):
        actor = dice.choice(actors)
        method, url, body, response = actor.act()
        assert response.status_code < 500 or response.status_code == 504, response.text
        codes.setdefault(actor.who, set()).add(response.status_code)
        if actor.who == SPY:
            told = f"{response.headers}\n{response.text}"
            assert not SECRET.search(told), f"{method} {url} {body}: {told}"
        if dice.random() < 0.1:
            rig.clock.now += dice.choice([1.0, 60.0, 120.0])
    assert {200, 201, 404, 409} <= codes[SPY], codes  # they had something, and met
    assert all(201 in found for found in codes.values()), codes
    assert all(SECRET.search(str(time_s)) for time_s in actors[0].times().values())
