# SPDX-License-Identifier: Apache-2.0
"""The newest samples as text that Prometheus and VictoriaMetrics scrape (/metrics)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final

from monitor.openmetrics import PREFIX, escaped, label_text, metric_name
from monitor.recording import Recording, Series, labels_of, shown
from monitor.running import latest

TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def _rows(recordings: Mapping[str, Recording]) -> Iterator[tuple[Series, int, str]]:
    for cell, recording in recordings.items():
        for series, value in latest(recording).items():
            yield series, value, cell


def text(recordings: Mapping[str, Recording]) -> str:
    """Return the exposition. `recordings`: by cell. The cell becomes a label."""
    out = []
    rows = sorted(_rows(recordings), key=lambda r: (metric_name(r[0]), r[2], r[0].labels))
    for name, members in groupby(rows, key=lambda r: metric_name(r[0])):
        group = list(members)
        first = group[0][0]
        about = escaped(first.help) or f"Counter {first.name}."
        out.append(f"# HELP {name} {about}\n# TYPE {name} {first.kind}\n")
        lines = {  # of two series with the same name and labels, the last: a scraper takes one
            label_text(labels_of({**dict(series.labels), "cell": cell})): shown(
                value, series.decimals
            )
            for series, value, cell in group
        }
        out += [f"{name}{{{labels}}} {value}\n" for labels, value in lines.items()]
    up = f"{PREFIX}monitor_cells"
    out.append(f"# HELP {up} Cells that the monitor knows.\n# TYPE {up} gauge\n")
    out.append(f"{up} {len(recordings)}\n")
    return "".join(out)
