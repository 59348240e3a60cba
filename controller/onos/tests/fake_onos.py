# SPDX-License-Identifier: Apache-2.0
"""A stand-in for ONOS's REST without a network, which does what was seen of ONOS 2.7.0: it
answers at once, shows entries as pending until it has looked at the switch, takes a flow that it
knows for new instructions, and ignores a second request for a group."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

from common.onos import OnosAddress, OnosError, OnosNotFound, OnosRefused, Rest
from controller.onos.planning import SETTINGS
from controller.onos.records import REST_APPLICATION, Json

PENDING_ADD, PENDING_DELETE = "PENDING_ADD", "PENDING_DELETE"


class FakeOnos(Rest):
    """`refuses`: a path that gets status 400; `fails`: flows that the switches refuse; `is_gone`:
    nothing is answered; `looks`: whether it looks at its switches before each answer."""

    def __init__(self, devices: list[str]) -> None:
        super().__init__(OnosAddress("127.0.0.1", 8181))
        self.available = dict.fromkeys(devices, True)
        self.flows: dict[str, dict[str, Json]] = {device: {} for device in devices}
        self.groups: dict[str, dict[str, Json]] = {device: {} for device in devices}
        self.meters: dict[str, dict[int, Json]] = {device: {} for device in devices}
        self.ports: dict[str, dict[int, bool]] = {device: {1: True, 2: True} for device in devices}
        self.settings = {c: dict.fromkeys(names, "unset") for c, names in SETTINGS.items()}
        self.calls: list[str] = []
        self.refuses = ""
        self.fails: tuple[int, int] | None = None  # flows of this port and VLAN id
        self.is_gone = False
        self.looks = True
        self._time = 0

    def look(self) -> None:
        """Find in the switches what was requested."""
        self._time += 1
        kinds: tuple[tuple[dict[str, Any], str], ...] = (
            (self.flows, "lastSeen"),
            (self.groups, "life"),
            (self.meters, "life"),
        )
        for kind, stamp in kinds:
            for held in kind.values():
                for key, item in list(held.items()):
                    if item["state"] == PENDING_DELETE:
                        del held[key]
                    else:
                        state = "FAILED" if self._fails(item) else "ADDED"
                        item["state"], item[stamp] = state, self._time

    def _fails(self, item: Json) -> bool:
        criteria = item.get("selector", {}).get("criteria", ())
        found = {c["type"]: c.get("port", c.get("vlanId")) for c in criteria}
        return (found.get("IN_PORT"), found.get("VLAN_VID")) == self.fails

    def get(self, path: str) -> Any:
        return self.call("GET", path)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        if self.is_gone:
            raise OnosError(f"{self.address} does not answer: gone")
        if method != "GET":
            self.calls.append(f"{method} {path}")
        elif self.looks:
            self.look()
        if self.refuses and path.startswith(self.refuses) and method == "POST":
            raise OnosRefused(f"{self.address}: {method} {path}: status 400")
        match [method, *path.strip("/").split("/")]:
            case ["GET", "system"]:
                return {"version": "2.7.0"}
            case ["GET", "configuration", component]:
                return {component: self.settings[component]}
            case ["POST", "configuration", component]:
                self.settings[component].update(body)
                return None
            case ["GET", "devices"]:
                return {"devices": [{"id": d, "available": a} for d, a in self.available.items()]}
            case ["GET", "devices", "ports"]:
                items = [(d, n, up) for d, some in self.ports.items() for n, up in some.items()]
                return {
                    "ports": [{"element": d, "port": str(n), "isEnabled": u} for d, n, u in items]
                }
            case ["GET", "statistics", "ports"]:
                return {"statistics": []}
            case ["GET", "flows", device]:
                if not self.flows[device]:
                    raise OnosNotFound("Device is not found")
                return {"flows": deepcopy(list(self.flows[device].values()))}
            case ["POST", "flows"]:
                return {"flows": [self._add_flow(item) for item in body["flows"]]}
            case ["DELETE", "flows"]:
                for item in body["flows"]:
                    held = self.flows[item["deviceId"]]
                    for flow in held.values():
                        if flow["id"] == item["flowId"]:
                            flow["state"] = PENDING_DELETE
                return None
        return self._others(method, path, body)

    def _others(self, method: str, path: str, body: Any) -> Any:
        match [method, *path.strip("/").split("/")]:
            case ["GET", "groups" | "meters" as kind, device]:
                return {kind: deepcopy(list(getattr(self, kind)[device].values()))}
            case ["GET", "groups", device, key]:
                if key not in self.groups[device]:
                    raise OnosNotFound("Group was not found")
                return {"groups": [deepcopy(self.groups[device][key])]}
            case ["POST", "groups", device]:
                self.groups[device].setdefault(body["appCookie"], self._new_group(body))
            case ["DELETE", "groups", device, key]:
                if key in self.groups[device]:
                    self.groups[device][key]["state"] = PENDING_DELETE
            case ["POST", "groups", device, key, "buckets"]:
                group = self.groups[device][key]
                group["buckets"] += [self._bucket(bucket) for bucket in body["buckets"]]
                group["state"] = "PENDING_UPDATE"
            case ["DELETE", "groups", device, key, "buckets", ids]:
                group = self.groups[device][key]
                gone = {int(number) for number in ids.split(",")}
                group["buckets"] = [b for b in group["buckets"] if b["bucketId"] not in gone]
                group["state"] = "PENDING_UPDATE"
            case ["POST", "meters", device]:
                meter = {"id": f"{body['index']:x}", "appId": REST_APPLICATION, "life": 0}
                self.meters[device][body["index"]] = {**body, **meter, "state": PENDING_ADD}
            case ["DELETE", "meters", device, "global", number]:
                self.meters[device][int(number)]["state"] = PENDING_DELETE
            case other:
                raise AssertionError(f"no such request: {other}")
        return None

    def _add_flow(self, item: Json) -> Json:
        name = json.dumps([item["priority"], item["selector"]])
        instructions = deepcopy(item["treatment"]["instructions"])
        for instruction in instructions:
            if instruction["type"] == "METER":
                instruction["meterId"] = f"{int(instruction['meterId']):x}"
        held = self.flows[item["deviceId"]]
        id_ = held.get(name, {}).get("id", str(abs(hash((item["deviceId"], name)))))
        treatment = {"instructions": instructions or [{"type": "NOACTION"}]}
        flow = {**item, "id": id_, "state": PENDING_ADD, "treatment": treatment, "lastSeen": 0}
        held[name] = flow
        return {"deviceId": item["deviceId"], "flowId": id_}

    def _new_group(self, body: Json) -> Json:
        return {
            "id": int(body["groupId"]),
            "appCookie": "0x" + body["appCookie"][2:].upper(),
            "state": PENDING_ADD,
            "life": 0,
            "buckets": [self._bucket(bucket) for bucket in body["buckets"]],
        }

    def _bucket(self, bucket: Json) -> Json:
        return {**bucket, "bucketId": abs(hash(json.dumps(bucket))), "packets": 0, "bytes": 0}
