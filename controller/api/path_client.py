# SPDX-License-Identifier: Apache-2.0
"""Python client of the path service, over its Unix socket or TCP."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from controller.api.answers import (
    CountersAnswer,
    HealthAnswer,
    HoldAnswer,
    PathAnswer,
    PathBody,
    ReservationAnswer,
    WorkgroupAnswer,
)
from controller.paths.core import Endpoint
from controller.paths.multipoint_path import Channels, endpoint_to_json
from topologies.model.network import Network, Segment

if TYPE_CHECKING:
    import httpx  # import takes 0.1 s, and few commands use the service

__all__ = [
    "Channels",
    "Endpoint",
    "PathAnswer",
    "PathClient",
    "PathClientError",
    "PathEvent",
    "PathOptions",
    "endpoints_of",
]

# The service waits up to 5 s for its switches. A second change may have to wait for the first.
TIMEOUT_S = 15.0
# Reuse an idle connection for less time than the server keeps it (common/http/server.py): a request
# on a connection that is being closed would get no answer.
KEEP_S = 2.0


class PathClientError(Exception):
    """The service refused (`status` = HTTP status) or did not answer (`status` = 0).

    The text is the problem's detail.
    """

    def __init__(self, status: int, title: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title
        self.detail = detail


@dataclass(frozen=True)
class PathEvent:
    """An event.

    `id`: where to resume. `kind`: `path-created`, `leaf-added` ... (docs/reference/contracts.md);
    `resync`: events were missed, so get the paths again.
    """

    id: str
    kind: str
    data: Mapping[str, object]


@dataclass(frozen=True)
class PathOptions:
    """The options of a path, besides its root, rate and leaves. `end_time`: epoch seconds."""

    workgroup: str | None = None  # None: the client's own
    algorithm: str | None = None  # None: the service's default
    leaf_to_leaf: bool = False
    end_time: float | None = None
    channels: Channels | None = None


DEFAULTS = PathOptions()


class PathClient:
    """A path service at `address`: the path of its Unix socket, or an http(s):// URL.

    `token`: the workgroup's (needed with a URL). `ca_file`: certificates that may sign the
    server's, instead of the system's. Results are the JSON objects of docs/reference/contracts.md.
    Every method raises PathClientError.
    """

    def __init__(
        self,
        address: Path | str,
        timeout_s: float = TIMEOUT_S,
        *,
        token: str | None = None,
        ca_file: Path | None = None,
    ) -> None:
        self._address = str(address)
        import httpx

        self._timeout_s = timeout_s
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        if self._address.startswith(("http://", "https://")):
            verify: ssl.SSLContext | bool = True
            if ca_file is not None:
                try:
                    verify = ssl.create_default_context(cafile=str(ca_file))
                except (OSError, ssl.SSLError) as error:
                    detail = f"{ca_file}: {error.strerror or error}; valid: PEM certificates"
                    raise PathClientError(0, "No certificates", detail) from error
            self._client = httpx.Client(
                base_url=self._address,
                headers=headers,
                timeout=timeout_s,
                verify=verify,
                limits=httpx.Limits(keepalive_expiry=KEEP_S),
            )
        else:
            self._client = httpx.Client(
                transport=httpx.HTTPTransport(uds=self._address, verify=False),  # has no TLS
                base_url="http://controller",
                headers=headers,
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
        """Close the connection."""
        self._client.close()

    # -- queries

    def health(self) -> HealthAnswer:
        """Return the service's role and the state of its switches."""
        answer: HealthAnswer = self._send("GET", "/v1/health").json()
        return answer

    def workgroup(self) -> WorkgroupAnswer:
        """Return the token's workgroup, and which endpoints it may use."""
        answer: WorkgroupAnswer = self._send("GET", "/v1/workgroups/me").json()
        return answer

    def paths(self) -> list[PathAnswer]:
        """Return all paths, over as many pages as needed."""
        result: list[PathAnswer] = []
        url: str | None = "/v1/paths?limit=1000"
        while url is not None:
            response = self._send("GET", url)
            result += response.json()
            url = response.links.get("next", {}).get("url")
        return result

    def get(self, name: str) -> PathAnswer:
        """Return a path."""
        return self._path("GET", _path_url(name))

    def counters(self, name: str) -> CountersAnswer:
        """Return what entered the path, and what each edge and leaf received."""
        answer: CountersAnswer = self._send("GET", f"{_path_url(name)}/counters").json()
        return answer

    def hold_state(self, hold_id: str) -> HoldAnswer:
        """Return a hold, open or over."""
        return self._hold("GET", _hold_url(hold_id))

    def metrics(self) -> str:
        """Return the metrics as Prometheus text."""
        return self._send("GET", "/v1/metrics").text

    def events(
        self, last_event_id: str | None = None, *, quiet_s: float | None = None
    ) -> Iterator[PathEvent]:
        """Yield events from now on, or since `last_event_id`.

        Ends only if nothing arrives for `quiet_s`; raises PathClientError if the connection
        breaks.
        """
        import httpx

        headers = {"accept": "text/event-stream"}
        if last_event_id is not None:
            headers["last-event-id"] = last_event_id
        # The service sends something at least every 15 s, if only a comment.
        timeout = httpx.Timeout(self._timeout_s, read=60.0 if quiet_s is None else quiet_s)
        try:
            with self._client.stream(
                "GET", "/v1/events", headers=headers, timeout=timeout
            ) as response:
                if not response.is_success:
                    response.read()
                    raise _error_of(response)
                yield from _events_in(response.iter_lines())
        except httpx.ReadTimeout as error:
            if quiet_s is None:
                raise self._no_answer(error) from error
        except httpx.HTTPError as error:
            raise self._no_answer(error) from error

    # -- changes

    def create_path(
        self,
        name: str,
        root: Endpoint,
        rate_bps: int,
        *,
        workgroup: str | None = None,
        algorithm: str | None = None,
        leaf_to_leaf: bool = False,
        end_time: float | None = None,
        channels: Channels | None = None,
    ) -> PathAnswer:
        """Create a path without leaves. `end_time`: epoch seconds."""
        options = PathOptions(workgroup, algorithm, leaf_to_leaf, end_time, channels)
        return self._path("POST", "/v1/paths", _path_body(name, root, rate_bps, options))

    def set_end_time(self, name: str, end_time: float | None) -> PathAnswer:
        """Set when the path ends (epoch seconds; None: never)."""
        return self._path("PATCH", _path_url(name), {"end_time": end_time})

    def add_leaf(self, name: str, endpoint: Endpoint) -> PathAnswer:
        """Add a leaf."""
        return self._path("POST", f"{_path_url(name)}/leaves", endpoint_to_json(endpoint))

    def remove_leaf(self, name: str, endpoint: Endpoint) -> PathAnswer:
        """Remove a leaf."""
        switch = _quoted(endpoint.switch)
        url = f"{_path_url(name)}/leaves/{switch}/{endpoint.port}/{endpoint.vlan}"
        return self._path("DELETE", url)

    def delete_path(self, name: str) -> None:
        """Delete a path."""
        self._send("DELETE", _path_url(name))

    def hold(
        self,
        name: str,
        root: Endpoint,
        rate_bps: int,
        leaves: Iterable[Endpoint] = (),
        *,
        hold_id: str | None = None,
        hold_s: float = 30.0,
        options: PathOptions = DEFAULTS,
    ) -> HoldAnswer:
        """Reserve what a path with at least these leaves needs, until `commit` installs it."""
        path = _path_body(name, root, rate_bps, options)
        path["leaves"] = [endpoint_to_json(leaf) for leaf in leaves]
        body = {"id": hold_id, "hold_s": hold_s, "path": path}
        return self._hold("POST", "/v1/holds", body)

    def reserve(
        self,
        name: str,
        root: Endpoint,
        rate_bps: int,
        leaves: Iterable[Endpoint],
        start_time: float,
        options: PathOptions,
    ) -> ReservationAnswer:
        """Reserve a path from `start_time` to `options.end_time` (epoch seconds)."""
        body = _path_body(name, root, rate_bps, options)
        body["leaves"] = [endpoint_to_json(leaf) for leaf in leaves]
        body["start_time"] = start_time
        answer: ReservationAnswer = self._send("POST", "/v1/reservations", body).json()
        return answer

    def reservations(self) -> list[ReservationAnswer]:
        """Return what is reserved for later."""
        answer: list[ReservationAnswer] = self._send("GET", "/v1/reservations").json()
        return answer

    def cancel(self, name: str) -> None:
        """Cancel a reservation."""
        self._send("DELETE", f"/v1/reservations/{_quoted(name)}")

    def commit(self, hold_id: str) -> PathAnswer:
        """Install a hold, and return the path."""
        return self._path("POST", f"{_hold_url(hold_id)}/commit")

    def release(self, hold_id: str) -> None:
        """Release a hold."""
        self._send("DELETE", _hold_url(hold_id))

    # -- internals

    def _path(self, method: str, url: str, body: Mapping[str, object] | None = None) -> PathAnswer:
        answer: PathAnswer = self._send(method, url, body).json()
        return answer

    def _hold(self, method: str, url: str, body: Mapping[str, object] | None = None) -> HoldAnswer:
        answer: HoldAnswer = self._send(method, url, body).json()
        return answer

    def _send(
        self, method: str, url: str, body: Mapping[str, object] | None = None
    ) -> httpx.Response:
        import httpx

        try:
            response = self._client.request(method, url, json=body)
        except httpx.HTTPError as error:
            raise self._no_answer(error) from error
        if not response.is_success:
            raise _error_of(response)
        return response

    def _no_answer(self, error: httpx.HTTPError) -> PathClientError:
        what = f"the path service does not answer at {self._address}: {error}"
        return PathClientError(0, "No answer", what)


def _error_of(response: httpx.Response) -> PathClientError:
    try:
        problem = response.json()
        title, detail = str(problem["title"]), str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        title, detail = response.reason_phrase, response.text[:200]
    return PathClientError(response.status_code, title, detail)


def _events_in(lines: Iterable[str]) -> Iterator[PathEvent]:
    """Yield server-sent events (WHATWG HTML, 9.2)."""
    event_id, kind, data = "", "", ""
    for line in lines:
        if line == "":
            if data:
                yield PathEvent(event_id, kind, json.loads(data))
            kind, data = "", ""
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            event_id = value
        elif name == "event":
            kind = value
        elif name == "data":
            data += value


def endpoints_of(network: Network, lane: int = 1) -> tuple[Endpoint, dict[str, Endpoint]]:
    """Return the publisher's endpoint on `lane`, and those of its other segments by segment name.

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


def _path_url(name: str) -> str:
    return f"/v1/paths/{_quoted(name)}"


def _hold_url(hold_id: str) -> str:
    return f"/v1/holds/{_quoted(hold_id)}"


def _quoted(name: str) -> str:
    """Return the name as one segment of a URL. Clients would remove "." and ".."."""
    return quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")


def _path_body(name: str, root: Endpoint, rate_bps: int, options: PathOptions) -> PathBody:
    body: PathBody = {"name": name, "root": endpoint_to_json(root), "rate_bps": rate_bps}
    if options.workgroup is not None:
        body["workgroup"] = options.workgroup
    if options.algorithm is not None:
        body["algorithm"] = options.algorithm
    if options.leaf_to_leaf:
        body["leaf_to_leaf"] = True
    if options.end_time is not None:
        body["end_time"] = options.end_time
    if options.channels is not None:
        channels = options.channels
        body["channels"] = {
            "base": str(channels.base),
            "count": channels.count,
            "leave_latency_ms": channels.leave_latency_ms,
        }
    return body
