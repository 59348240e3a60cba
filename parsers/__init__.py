# SPDX-License-Identifier: Apache-2.0
"""Turn the files of a run into records, metrics, tables, figures and a report.

Four wings, each of which imports only from those above it:

`base`: what all others share.
    `factors`, `metric_units`: names, units and labels of factors and metrics.
    `intervals`: estimates, confidence intervals, tests; `moving_block` makes intervals within a
    run,
    `power` says what they could have seen.
    `jsonfiles`, `problems`, `times`: JSON files, lines that cannot be read, time stamps.

`read`: text in, records out; pure, never raises for a bad line of a log. One module for a format:
    logs of LDM: `ldm_log` (ours and the originals), `papers_log` (2015/16), `notifyme`;
    of carousels: `fcast_log`; of layered multicast: `m2c_log`.
    samples of a machine: `sar_log`, `sadf`, `ps_log`, `cpu_log` (`blocks` cuts the last two).
    counters: `iptables_log`, `tc_qdisc`, `tc_class`, `ovs_ofctl`, `iperf3`, `counters` (a cell's).
    products: `trace` (sizes and times), `products` (contents of queues).
    `cell_files`: cell.json, verdict.json, virtual.json, manifest.json.
    `published`: `paper:`, `claims:` and `figures:` of an experiment file.
    `formats`: which format a file has.

`measure`: records in, numbers out; pure but for `run_files`, `evaluate`.
    One cell: `summary` (all metrics), from `metrics` (the papers' equations), `deliveries`,
    `file_sets`, `set_throughput`, `series` and `pieces` (over time), `repaired`; of a carousel
    `carousel` and `storage`, of layered multicast `layers`. If subscribers join and
    leave: `join_leave`, from `subscriptions`.
    Many cells: `sweep` (points), `comparison` (LDM7 beside LDM6), `verdicts`, `paper` (published
    values), `claims` (with `saving`, `undecided`); `sweep_json`.
    Several runs: `agreement` (points), `side_by_side` (cells, to the last digit).
    Files: `run_files` reads a run directory, `evaluate` measures all of it.

`report`: numbers in, words and figures out.
    `document` (a report as data, and as text), `page` (HTML), `markdown`, `tidy` (CSV).
    `brief`: what is printed, at most 40 lines; `result` words it; `wording` is shared by all.
    Sections: `sections` (LDM7 and LDM6), `sweep_sections`, `join_leave_report`, `fmtp_section`,
    `conditions`; of several runs `two_runs`, `side_by_side_report`, `side_by_side_json`.
    Figures: `drawing` (style, files), `plots` (of a group), `figures` (that a file asks for) with
    `curves`, `spreads`, `over_time`, `subscribers`, `overlays`.
    `publish` writes report/ and metrics.json.

In the room itself: `reading` (single files), `bench` and `synthetic_hour` (speed of reading).
"""
