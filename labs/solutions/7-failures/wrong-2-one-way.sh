# SPDX-License-Identifier: Apache-2.0
# fails: protected dark
# The second route has no flow at c3.
of del-flows c3 "dl_vlan=2901"
undo() { of add-flow c3 "priority=5000,in_port=$(port c3 c1),dl_vlan=2901,actions=output:$(port c3 c4)"; }
