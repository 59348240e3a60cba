# SPDX-License-Identifier: Apache-2.0
"""What Schemathesis must know besides the OpenAPI document (SCHEMATHESIS_HOOKS).

The document does not say which switches a network has: most requests made from it would fail at an
unknown switch. And a request that fits the document may still be impossible in this network; its
422 must say so and not blame the request's form.
"""

from __future__ import annotations

from typing import Any

import schemathesis

ACCESS_PORTS = {"s1": 1, "s2": 9, "s3": 9, "s4": 9}  # of the sample network
FORM = ("body", "query", "path", "header")  # where errors of form are located


@schemathesis.hook
def before_load_schema(_context: Any, raw_schema: dict[str, Any]) -> None:
    """Limit requests to the sample network's access ports."""
    for name in ("EndpointModel",):
        properties = raw_schema["components"]["schemas"][name]["properties"]
        properties["switch"]["enum"] = sorted(ACCESS_PORTS)
        properties["port"]["enum"] = sorted(set(ACCESS_PORTS.values()))


@schemathesis.check
def valid_form_is_never_blamed(_context: Any, response: Any, case: Any) -> None:
    """A request that fits the document is refused only for what it asks."""
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    if case.meta.phase.name.value == "stateful":
        return  # values of earlier answers, which need not fit
    if response.status_code == 422:
        detail = response.json()["detail"]
        assert not detail.startswith(FORM), f"422 for a request that fits: {detail}"
