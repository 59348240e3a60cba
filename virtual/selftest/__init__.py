# SPDX-License-Identifier: Apache-2.0
"""Is virtual time true? Checks timers, protocols and shapers in a guest against theory.

`cli` (host) boots a guest and judges; `inside` (in the guest, or natively) measures; `theory` and
`parse` are pure. C probes: `probe_timers.c`, `probe_udp.c`.
"""
