# SPDX-License-Identifier: Apache-2.0
"""The labs after which tests are named, read once per process that collects tests."""

from __future__ import annotations

from typing import Final

from labs.spec import Lab, all_labs

LABS: Final[list[Lab]] = all_labs()
NETWORK: Final = [lab for lab in LABS if lab.spec.kind == "network"]
MEASURING: Final = [lab for lab in LABS if lab.spec.kind == "measuring"]
