# SPDX-License-Identifier: Apache-2.0
"""`python -m controller.tests.openapi` writes docs/openapi.json."""

from controller.rest import description, make_app
from controller.tests.process import CHECKOUT
from controller.tests.rig import Rig

if __name__ == "__main__":
    (CHECKOUT / "docs/openapi.json").write_text(description(make_app(Rig().service)))
