# SPDX-License-Identifier: Apache-2.0
"""`python -m controller.tests.openapi` writes docs/openapi.json."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI

from controller.api.observe import router_of
from controller.api.rest import description, make_app
from controller.federation.front import FederatedService
from controller.federation.joining import join
from controller.tests.process import CHECKOUT
from controller.tests.rig import Rig

DOCUMENT = CHECKOUT / "docs/openapi.json"


def whole_app(rig: Rig) -> FastAPI:
    """With all routes that a controller may have."""
    service = FederatedService(rig.of, "core", rig.apply, rig.read)
    _, router = join(rig.of, "core", service, rig.store, {})
    return make_app(service, None, [router_of(service, rig.monitor), router])


def contract(openapi: dict[str, Any]) -> dict[str, Any]:
    """What clients rely on, without what depends on the version of a library."""
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


def kept() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(DOCUMENT.read_text())
    return document


if __name__ == "__main__":
    DOCUMENT.write_text(description(whole_app(Rig())))
