# SPDX-License-Identifier: Apache-2.0
"""Send recordings to a server by VictoriaMetrics' import, or by Prometheus' remote write if the URL
ends with its path. Both keep the recording's times, even those of the virtual clock. Prometheus
refuses samples an hour older than its newest.
"""

from __future__ import annotations

import contextlib
import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any, Final

from monitor import remote_write
from monitor.openmetrics import sample_lines, sampled_us
from monitor.recording import Recording

PATH: Final = "/api/v1/import/prometheus"
PIECE_BYTES: Final = 1 << 20
TIMEOUT_S: Final = 30
MOST_ANSWER: Final = 1 << 20
_MILLI: Final = 1000


class PushError(Exception):
    """The server refuses the recording. The message is one line."""


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: `urllib` would repeat the request without its data."""

    def redirect_request(self, *_: Any) -> None:
        """Return none, so that the answer is an error."""


def import_url(base: str, name: str) -> str:
    """Return the URL for a source: its name becomes the label `run`. Raises PushError."""
    try:
        parts = urllib.parse.urlsplit(base)
        is_valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # of the address or the port
        is_valid = False
    if not is_valid or any(c <= " " for c in base) or not base.isascii():
        raise PushError(f"found URL {base!r}; valid: http://HOST:PORT, or with {remote_write.PATH}")
    if parts.path.endswith(remote_write.PATH):
        return base
    if parts.query:
        raise PushError(f"found URL {base!r} with a query; valid: http://HOST:PORT")
    query = urllib.parse.urlencode({"extra_label": f"run={name}"})
    return f"{base.rstrip('/')}{PATH}?{query}"


def pieces(recording: Recording) -> Iterator[bytes]:
    """Yield the text, with times in milliseconds, in pieces of whole lines."""
    text, size = [], 0
    sampled = sampled_us(recording)
    for series, points in recording.points.items():
        for line in sample_lines(series, points, sampled, lambda us: str(us // _MILLI)):
            text.append(line)
            size += len(line)
            if size >= PIECE_BYTES:
                yield "".join(text).encode()
                text, size = [], 0
    if text:
        yield "".join(text).encode()


def push(base: str, name: str, recording: Recording) -> int:
    """Send a recording; return the number of bytes. Raises PushError."""
    url, total = import_url(base, name), 0
    written = url == base
    bodies = remote_write.requests(recording, name) if written else pieces(recording)
    headers = remote_write.HEADERS if written else {"Content-Type": "text/plain"}
    opener = urllib.request.build_opener(_Stay)
    for piece in bodies:
        _send(opener, urllib.request.Request(url, piece, headers))
        total += len(piece)
    return total


def _send(opener: urllib.request.OpenerDirector, request: urllib.request.Request) -> None:
    """Send a request. Raises PushError."""
    url = request.full_url
    try:
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            answer.read(MOST_ANSWER)
    except urllib.error.HTTPError as error:
        raise PushError(
            f"{url}: found status {error.code} {_said(error)}; valid: a server with "
            "VictoriaMetrics' import, or remote write"
        ) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise PushError(f"{url}: {_line(str(getattr(error, 'reason', error)))}") from None


def _said(error: urllib.error.HTTPError) -> str:
    """Return the text of a refusal, or if there is none, or it breaks off, the status's words."""
    text = b""
    with error, contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        text = error.read(200)
    return _line(text.decode(errors="replace")) or _line(str(error.reason))


def _line(text: str) -> str:
    """Return a server's text as one line without control characters."""
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
