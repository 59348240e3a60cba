# SPDX-License-Identifier: Apache-2.0
"""What a run counted while it ran, kept for later.

`samples`      reads lines of a cell's counters.jsonl into a `Recording`
`columns`      packs the numbers of a series into a block of bytes, and unpacks them
`store`        keeps recordings in SQLite: sources, series, blocks
`openmetrics`  writes a recording as OpenMetrics text, and reads it back
`table`        writes a recording as CSV, and reads it back
`trace`        writes deliveries for Perfetto
`push`         sends a recording to VictoriaMetrics
`records`      reads rtstats' minute records; `minute_tables`, `minute_text` keep and print them
`running`      has what a run shows while it runs; `api` serves it, `tail`, `metrics` help
`sources`      finds recordings in files and runs

`grafana/`     has dashboards, alerts and the set-up of a store for them

`store`, `sources`, `push`, `running`, `tail` and `api` read or write; the others are pure.
"""
