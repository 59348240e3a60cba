# SPDX-License-Identifier: Apache-2.0
# fails: one-copy stranger
# The last switch floods instead of naming the port.
of mod-flows c3 "in_port=$c3_c1,dl_vlan=$VLAN_C1C3,actions=set_field:$((0x1000 | VLAN_WEST))->vlan_vid,flood"
undo() { of del-groups c1; . "$SOLUTION/solution.sh"; }
