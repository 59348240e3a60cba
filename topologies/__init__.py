# SPDX-License-Identifier: Apache-2.0
"""Topology files, and the emulated networks that they describe.

Where to look:

`model`    reads a file (`load`), checks it (`validate`, `check_*`), expands it to a `Network`
           (`expand`, `network`), finds paths in it (`paths`), plans impaired links (`wire_plan`)
`emulate`  builds a network in namespaces and runs it: `emulation` (the whole), `build` (nodes,
           links), `shaping` (delay, loss, rate), `processes` (wire-relay, controller), `faults`
           (cut links), `switch_power`, `counter_reading`, `inventory_reading`, `switch_reading`
           and `census` (settings and programs), `lifecycle` (runs and what they leave), `up_down`
           (a network in the background), `facts` and `doctor` (what the kernel offers)
`remote`   hosts of a network on other machines: `inventory` (which), `agent` (the program there),
           `connection` and `host` (it, from here), `process`, `tunnels` (VXLAN);
           in other guests: `part_*`
`watch`    measures a running network: `counters`, `capture` (tcpdump), `link_probes` (delay),
           `taps` and `flights` (packets in transit), `inventory` and `journal` (settings),
           `raw_entries` and `switch_counters` (of switches)
`wire`     wire-relay, in C: delays and loses frames where the kernel has no netem
`ctcp`     Circuit TCP, in C: a BPF program and its loader
`cli`      the commands; `*.yaml`: the bundled topologies
"""
