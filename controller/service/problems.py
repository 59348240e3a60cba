# SPDX-License-Identifier: Apache-2.0
"""Errors as RFC 9457 problems: each says what is wrong and what would be valid."""

from __future__ import annotations

from collections.abc import Callable

from starlette.responses import JSONResponse

from controller.paths.core import (
    Conflict,
    EndpointInUse,
    InvalidEndpoint,
    NoCapacity,
    NoNumberLeft,
    NoVlanLeft,
    PlanError,
    Unreachable,
)

PROBLEM_JSON = "application/problem+json"

# Kind -> (status, when it occurs). The kinds are the last part of a problem's `type`.
KINDS: dict[str, tuple[int, str]] = {
    "unauthorized": (401, "No token, or a token that no workgroup has"),
    "not-allowed": (403, "The workgroup may not use that endpoint, or do that"),
    "unknown-path": (404, "No such path, or not one of the workgroup's"),
    "unknown-leaf": (404, "The path has no such leaf"),
    "unknown-reservation": (404, "Nothing is reserved for a path of that name"),
    "unknown-hold": (404, "No such hold"),
    "path-exists": (409, "The path exists, with other content"),
    "leaf-exists": (409, "The leaf exists, with other content"),
    "path-held": (409, "A hold on the path is open: commit or release it first"),
    "hold-exists": (409, "A hold of that id exists, with other content"),
    "hold-over": (409, "The hold was released, has expired, or its path was re-routed"),
    "no-capacity": (409, "Not enough capacity on the link that the detail names"),
    "no-vlan-left": (409, "No VLAN id left on the link that the detail names"),
    "vlan-in-use": (409, "No VLAN id of a hand-off link is free on both of its sides"),
    "no-number-left": (409, "All numbers of paths are in use"),
    "endpoint-in-use": (409, "Another path uses the endpoint"),
    "invalid": (422, "The request does not match the schema"),
    "invalid-endpoint": (422, "No such switch or access port"),
    "unreachable": (422, "No route to the endpoint"),
    "too-many-requests": (429, "Too many requests; Retry-After says when to ask again"),
    "refused": (502, "A switch refused the change; it was undone"),
    "store": (507, "The store cannot be written; nothing was changed"),
    "queues": (502, "The queues of a switch port could not be set; the change was undone"),
    "standby": (503, "This controller is a standby; the detail names the active one"),
    "domain-timeout": (504, "Another domain's controller did not answer; the change is undone"),
    "unconfirmed": (504, "A switch did not confirm in time; the path is degraded until it does"),
}


class ServiceError(Exception):
    """A request that was not done (or, with 504, not confirmed)."""

    def __init__(self, status: int, kind: str, title: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.title = title
        self.detail = detail
        self._workgroup: str | None = None
        self._public: ServiceError | None = None

    @property
    def public(self) -> ServiceError:
        """Return the version of the error that anybody may read."""
        return self._public or self

    def only_for(self, workgroup: str, public: ServiceError) -> ServiceError:
        """Return this error, which names a path or hold of `workgroup`. Callers who may not see it
        get `public` instead."""
        self._workgroup, self._public = workgroup, public
        return self

    def seen_by(self, may_see: Callable[[str], bool]) -> ServiceError:
        """Return the error for a caller who may see the workgroups for which `may_see` is true."""
        if self._workgroup is None or may_see(self._workgroup):
            return self
        return self.public


# The most specific first.
_PLAN_ERRORS: tuple[tuple[type[PlanError], int, str, str], ...] = (
    (NoCapacity, 409, "no-capacity", "Not enough capacity"),
    (NoVlanLeft, 409, "no-vlan-left", "No VLAN id left"),
    (NoNumberLeft, 409, "no-number-left", "No path number left"),
    (Conflict, 409, "endpoint-in-use", "Endpoint in use"),
    (Unreachable, 422, "unreachable", "Endpoint cannot be reached"),
    (InvalidEndpoint, 422, "invalid-endpoint", "Invalid endpoint"),
)


def of_plan_error(error: PlanError) -> ServiceError:
    """Return the problem that describes a plan error to the caller."""
    for kind_of_error, status, kind, title in _PLAN_ERRORS:
        if isinstance(error, kind_of_error):
            problem = ServiceError(status, kind, title, str(error))
            if isinstance(error, EndpointInUse):
                public = ServiceError(status, kind, title, error.public)
                return problem.only_for(error.workgroup, public)
            return problem
    return ServiceError(422, "invalid", "Invalid request", str(error))


def unknown_path(name: str) -> ServiceError:
    """Return the problem for callers who cannot see such a path."""
    detail = f"there is no path '{name}'; valid: a name that GET /v1/paths lists"
    return ServiceError(404, "unknown-path", "Unknown path", detail)


def name_in_use(name: str) -> ServiceError:
    """Return the problem for a workgroup that asks for a name in use by another workgroup."""
    detail = f"the name '{name}' is in use; valid: another one"
    return ServiceError(409, "path-exists", "Path exists", detail)


def problem_response(status: int, kind: str, title: str, detail: str) -> JSONResponse:
    """Return the HTTP response of a problem (RFC 9457)."""
    body = {
        "type": "about:blank" if not kind else f"urn:downpour:problem:{kind}",
        "title": title,
        "status": status,
        "detail": detail,
    }
    return JSONResponse(body, status_code=status, media_type=PROBLEM_JSON)
