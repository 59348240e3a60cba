# SPDX-License-Identifier: Apache-2.0
"""Virtual time: programs run in a User-Mode Linux guest whose clock jumps between events.

Where to look:

`guest`           starts a guest, runs a command in it, ends it; `guest_init.sh`: its init
`status_page`     how far a guest's time is, read from outside
`cores`           a processor core for each guest
`kernel_cache`    finds a built kernel: order of places, digest, locks
`kernel_build`    builds one: `kernel_fetch` (source), `kernel_source` (edits), `kernel_estimate`
`kernel_file`     a kernel as a release's file: written, checked, installed
`kernel_command`  `downpour virtual kernel`
`kernel`          the C files that are added to the kernel, and its configuration
`selftest`        timers and shapers of a guest against theory; `bench`: the real time that
                  experiments take
`doctor`          what a machine lacks for guests
"""
