# SPDX-License-Identifier: Apache-2.0
"""What a run counted while it ran, kept so that it can be looked at.

`samples`      lines of a cell's counters.jsonl -> a `Recording`
`columns`      the numbers of a series -> a block of bytes, and back
`store`        recordings in SQLite: sources, series, blocks
`openmetrics`  a recording as OpenMetrics text, and back
`table`        a recording as CSV, and back
`trace`        deliveries for Perfetto
`push`         a recording to VictoriaMetrics
`records`      rtstats' minute records, and `minute_tables`, `minute_text`: kept, printed
`running`      what a run shows while it runs; `api` serves it, `tail`, `metrics` help
`sources`      which file or run is what

`grafana/`     dashboards, alerts and how a store is set up for them

`store`, `sources`, `push`, `running`, `tail` and `api` read or write; the others are pure.
"""
