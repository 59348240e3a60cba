# SPDX-License-Identifier: Apache-2.0
"""One emulation in several guests, each on its own core, cut at links that have a delay.

`calendar`   which guest may run until when (no I/O)
`desk`       the calendar's process: speaks User-Mode Linux's time-travel protocol with the guests
`messages`   what machines say to each other (no I/O)
`links`      the batches that machines exchange
`peer`       the connection to another machine
`proxy`      the calendar's proxy on another machine
`machines`   sends parts to other machines, and serves them there
`together`   starts guests under one calendar, watches them, ends them
`experiments/runs/parts.py` runs cells in parts.
`cut_link.c` runs in each guest: carries the frames of cut links (`batch.c`: what it writes)
"""
