# SPDX-License-Identifier: Apache-2.0
"""Send recordings to a server by VictoriaMetrics' import, or by Prometheus' remote write if the URL
ends with its path. Both keep the recording's times, even those of the virtual clock. Prometheus
refuses samples an hour older than its newest.
"""

from __future__ import annotations

import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Final

from monitor import remote_write
from monitor.openmetrics import sample_lines, sampled_us
from monitor.recording import Recording

PATH: Final = "/api/v1/import/prometheus"
PIECE_BYTES: Final = 1 << 20
TIMEOUT_S: Final = 30
_MILLI: Final = 1000


class PushError(Exception):
    """The server refuses the recording. The message is one line."""


def import_url(base: str, name: str) -> str:
    """Return the URL for a source: its name becomes the label `run`. Raises PushError."""
    parts = urllib.parse.urlsplit(base)
    if parts.path.endswith(remote_write.PATH) and parts.hostname:
        return base
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise PushError(f"found URL {base!r}; valid: http://HOST:PORT, or with {remote_write.PATH}")
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
    for piece in bodies:
        request = urllib.request.Request(url, piece, headers)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            said = error.read(200).decode(errors="replace").strip()
            raise PushError(
                f"{url}: found status {error.code} {said or error.reason}; valid: a server with "
                "VictoriaMetrics' import, or remote write"
            ) from None
        except (OSError, ValueError) as error:
            raise PushError(f"{url}: {getattr(error, 'reason', error)}") from None
        total += len(piece)
    return total
