# SPDX-License-Identifier: Apache-2.0
"""`python -m controller.tests.openapi` writes docs/openapi.json."""

from controller.observe import router_of
from controller.rest import description, make_app
from controller.tests.process import CHECKOUT
from controller.tests.rig import Rig

if __name__ == "__main__":
    rig = Rig()
    app = make_app(rig.service, None, [router_of(rig.service, rig.monitor)])
    (CHECKOUT / "docs/openapi.json").write_text(description(app))
