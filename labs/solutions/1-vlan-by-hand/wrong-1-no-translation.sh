# SPDX-License-Identifier: Apache-2.0
# fails: translation publisher
# Frames keep the publisher's id through the whole core. Run in the solved state.
of mod-group c1 "group_id=1,type=all,bucket=output:$to_c2,bucket=output:$to_c3"
of add-flow c2 "priority=100,in_port=$c2_c1,dl_vlan=$VLAN_PUB,actions=set_field:$((0x1000 | VLAN_EAST))->vlan_vid,output:$east"
of add-flow c3 "priority=100,in_port=$c3_c1,dl_vlan=$VLAN_PUB,actions=set_field:$((0x1000 | VLAN_WEST))->vlan_vid,output:$west"
undo() { of del-flows c2 "dl_vlan=$VLAN_PUB"; of del-flows c3 "dl_vlan=$VLAN_PUB"; of del-groups c1; . "$SOLUTION/solution.sh"; }
