# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document of all routes: `python -m controller.tests.openapi FILE` writes it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from controller.api.auth import Access
from controller.api.counters import router_of
from controller.api.rest import description, make_app
from controller.federation.joining import join
from controller.service.monitor import Monitor
from controller.service.service import PathService
from controller.tests.rig import Rig


def whole_app(rig: Rig, access: Access | None = None) -> FastAPI:
    """Return an app with every route that a controller can have."""
    own = PathService(rig.of, "core", rig.apply, rig.read)
    for switch in rig.net.switches:
        own.switch_up(switch)
    monitor = Monitor(own, rig.stats)
    joined = join(rig.of, "core", own, rig.store, {})
    return make_app(joined.service, access, [router_of(own, monitor), joined.router])


def contract(openapi: dict[str, Any]) -> dict[str, Any]:
    """Return what clients rely on: parameters, answers, properties, values."""
    operations = {
        f"{method} {path}": {
            "parameters": sorted(p["name"] for p in operation.get("parameters", ())),
            "answers": sorted(operation["responses"]),
        }
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
    }
    schemas = {
        name: {
            "properties": sorted(schema.get("properties", ())),
            "required": sorted(schema.get("required", ())),
            "values": schema.get("enum"),
        }
        for name, schema in openapi["components"]["schemas"].items()
    }
    return {"operations": operations, "schemas": schemas}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(description(whole_app(Rig())))
