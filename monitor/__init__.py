# SPDX-License-Identifier: Apache-2.0
"""What a run counted while it ran, kept so that it can be looked at.

`samples`      lines of a cell's counters.jsonl -> a `Recording`
`columns`      the numbers of a series -> a block of bytes, and back
`store`        recordings in SQLite: sources, series, blocks
`openmetrics`  a recording as OpenMetrics text, and back
`table`        a recording as CSV, and back
`sources`      which file or run is what

All but `store` and `sources` are pure.
"""
