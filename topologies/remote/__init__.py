# SPDX-License-Identifier: Apache-2.0
"""Hosts of an emulated network on other machines, reached by ssh.

A machine's agent (`agent`) holds a namespace with the host's interfaces, which VXLAN joins to the
host's place in the network here (`tunnels`). Programs there look like processes here (`process`),
and a file there like its copy here (`host`). `inventory` reads which machine has which host;
`checkout` finds a machine whose programs are not those of this one.
"""
