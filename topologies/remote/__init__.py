# SPDX-License-Identifier: Apache-2.0
"""Hosts of an emulated network on other machines, reached by ssh.

A machine's agent (`agent`) holds a namespace with the host's interfaces, which VXLAN joins to the
host's place in the network here (`tunnels`). Programs there look like processes here (`process`),
and a file there like its copy here (`host`). `inventory` reads which machine has which host.

In virtual time a host may be in another guest of the same calendar: `part_plan` says which,
`part_agent` serves the hosts of one part, and `part_host` is such a host as part 0 sees it. `there`
and `channel` are what both kinds of hosts have in common.
"""
