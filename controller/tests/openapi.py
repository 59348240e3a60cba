# SPDX-License-Identifier: Apache-2.0
"""`python -m controller.tests.openapi` writes docs/openapi.json."""

from fastapi import FastAPI

from controller.federation.front import FederatedService
from controller.federation.joining import join
from controller.observe import router_of
from controller.rest import description, make_app
from controller.tests.process import CHECKOUT
from controller.tests.rig import Rig


def whole_app(rig: Rig) -> FastAPI:
    """With all routes that a controller may have."""
    service = FederatedService(rig.of, "core", rig.apply, rig.read)
    _, router = join(rig.of, "core", service, None, {})
    return make_app(service, None, [router_of(service, rig.monitor), router])


if __name__ == "__main__":
    (CHECKOUT / "docs/openapi.json").write_text(description(whole_app(Rig())))
