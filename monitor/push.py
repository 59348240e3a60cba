# SPDX-License-Identifier: Apache-2.0
"""Sends recordings to a server with VictoriaMetrics' import, which takes them with our own times,
those of the virtual clock too. Prometheus takes no past samples over HTTP: `export` and `promtool
tsdb create-blocks-from openmetrics` do it.
"""

from __future__ import annotations

import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Final

from monitor.openmetrics import sample_lines, sampled_us
from monitor.recording import Recording

PATH: Final = "/api/v1/import/prometheus"
PIECE_BYTES: Final = 1 << 20
TIMEOUT_S: Final = 30
_MILLI: Final = 1000


class PushError(Exception):
    """A server that does not take it. One line."""


def import_url(base: str, name: str) -> str:
    """Return where a source of that name goes: its name becomes the label `run`. PushError."""
    parts = urllib.parse.urlsplit(base)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise PushError(f"found URL {base!r}; valid: http://HOST:PORT")
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
    """Send a recording; return its bytes of text. PushError."""
    url, total = import_url(base, name), 0
    for piece in pieces(recording):
        request = urllib.request.Request(url, piece, {"Content-Type": "text/plain"})
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            raise PushError(f"{url}: found status {error.code} {error.reason}; valid: a server "
                            "with VictoriaMetrics' import") from None  # fmt: skip
        except (OSError, ValueError) as error:
            raise PushError(f"{url}: {getattr(error, 'reason', error)}") from None
        total += len(piece)
    return total
