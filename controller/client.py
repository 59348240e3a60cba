# SPDX-License-Identifier: Apache-2.0
"""Python client of the path service, over its Unix socket."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

from controller.core import Endpoint
from topologies.model import Network, Segment

__all__ = ["Endpoint", "PathService", "PathServiceError", "endpoints_of"]

# The service waits up to 5 s for its switches; a second change may have to wait for a first.
TIMEOUT_S = 15.0


class PathServiceError(Exception):
    """The service said no (`status` = HTTP status) or did not answer (`status` = 0). The text
    is the problem's detail."""

    def __init__(self, status: int, title: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title
        self.detail = detail


class PathService:
    """Results are the JSON objects of docs/contracts.md. Every method raises PathServiceError."""

    def __init__(self, socket_path: Path | str, timeout_s: float = TIMEOUT_S) -> None:
        self._socket_path = str(socket_path)
        self._client = httpx.Client(
            transport=httpx.HTTPTransport(uds=self._socket_path),
            base_url="http://controller",
            timeout=timeout_s,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def health(self) -> dict[str, Any]:
        result: dict[str, Any] = self._request("GET", "/v1/health")
        return result

    def paths(self) -> list[dict[str, Any]]:
        result: list[dict[str, Any]] = self._request("GET", "/v1/paths")
        return result

    def get(self, name: str) -> dict[str, Any]:
        result: dict[str, Any] = self._request("GET", _path_url(name))
        return result

    def create_path(self, name: str, root: Endpoint, rate_bps: int) -> dict[str, Any]:
        body = {"name": name, "root": _json_of(root), "rate_bps": rate_bps}
        result: dict[str, Any] = self._request("POST", "/v1/paths", body)
        return result

    def add_leaf(self, name: str, endpoint: Endpoint) -> dict[str, Any]:
        url = f"{_path_url(name)}/leaves"
        result: dict[str, Any] = self._request("POST", url, _json_of(endpoint))
        return result

    def remove_leaf(self, name: str, endpoint: Endpoint) -> dict[str, Any]:
        switch = quote(endpoint.switch, safe="")
        url = f"{_path_url(name)}/leaves/{switch}/{endpoint.port}/{endpoint.vlan}"
        result: dict[str, Any] = self._request("DELETE", url)
        return result

    def delete_path(self, name: str) -> None:
        self._request("DELETE", _path_url(name))

    def _request(self, method: str, url: str, body: dict[str, Any] | None = None) -> Any:
        try:
            response = self._client.request(method, url, json=body)
        except httpx.HTTPError as error:
            raise PathServiceError(
                0,
                "No answer",
                f"the path service does not answer at {self._socket_path}: {error}",
            ) from error
        if response.is_success:
            return response.json() if response.content else None
        try:
            problem = response.json()
            title, detail = str(problem["title"]), str(problem["detail"])
        except (ValueError, KeyError, TypeError):
            title, detail = response.reason_phrase, response.text[:200]
        raise PathServiceError(response.status_code, title, detail)


def endpoints_of(network: Network, lane: int = 1) -> tuple[Endpoint, dict[str, Endpoint]]:
    """The publisher's endpoint on `lane`, and the lane's other segments' by segment name.

    One endpoint per static segment: the core port where it ends, its VLAN id, the MACs of its
    hosts' NICs. Raises ValueError if the publisher has no segment.
    """
    publisher = network.publisher.name
    segments = [segment for segment in network.segments if segment.lane == lane]
    roots = [segment for segment in segments if publisher in segment.hosts]
    if not roots:
        raise ValueError(f"no static segment leads to the publisher '{publisher}'")
    leaves = {s.name: _endpoint_of(network, s) for s in segments if s not in roots}
    return _endpoint_of(network, roots[0]), leaves


def _endpoint_of(network: Network, segment: Segment) -> Endpoint:
    return Endpoint.of(
        segment.endpoint_switch,
        segment.endpoint_port,
        segment.vlan,
        (nic.mac for nic in network.nics_of(segment)),
    )


def _json_of(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "switch": endpoint.switch,
        "port": endpoint.port,
        "vlan": endpoint.vlan,
        "macs": list(endpoint.macs),
    }


def _path_url(name: str) -> str:
    return f"/v1/paths/{quote(name, safe='')}"
