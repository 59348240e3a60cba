# SPDX-License-Identifier: Apache-2.0
# Lab 1, as typed at the prompt of the lab. Ports as `ports` shows them.
port() { ports "$1" | awk -v to="$2" '$4 == to { print $2 }'; }
of() { ovs-ofctl -O OpenFlow13 "$@"; }
south=$(port c1 sw-south); to_c2=$(port c1 c2); to_c3=$(port c1 c3)
c2_c1=$(port c2 c1); east=$(port c2 sw-east); c3_c1=$(port c3 c1); west=$(port c3 sw-west)

of add-group c1 "group_id=1,type=all,bucket=set_field:$((0x1000 | VLAN_C1C2))->vlan_vid,output:$to_c2,bucket=set_field:$((0x1000 | VLAN_C1C3))->vlan_vid,output:$to_c3"
of add-flow c1 "priority=100,in_port=$south,dl_vlan=$VLAN_PUB,actions=group:1"
of add-flow c2 "priority=100,in_port=$c2_c1,dl_vlan=$VLAN_C1C2,actions=set_field:$((0x1000 | VLAN_EAST))->vlan_vid,output:$east"
of add-flow c3 "priority=100,in_port=$c3_c1,dl_vlan=$VLAN_C1C3,actions=set_field:$((0x1000 | VLAN_WEST))->vlan_vid,output:$west"

# The return path.
of add-flow c2 "priority=100,in_port=$east,dl_vlan=$VLAN_EAST,actions=set_field:$((0x1000 | VLAN_C1C2))->vlan_vid,output:$c2_c1"
of add-flow c3 "priority=100,in_port=$west,dl_vlan=$VLAN_WEST,actions=set_field:$((0x1000 | VLAN_C1C3))->vlan_vid,output:$c3_c1"
of add-flow c1 "priority=100,in_port=$to_c2,dl_vlan=$VLAN_C1C2,actions=set_field:$((0x1000 | VLAN_PUB))->vlan_vid,output:$south"
of add-flow c1 "priority=100,in_port=$to_c3,dl_vlan=$VLAN_C1C3,actions=set_field:$((0x1000 | VLAN_PUB))->vlan_vid,output:$south"

# Step 7: the counter before and after ten frames; repeated if an ARP request came in between.
count() { of dump-group-stats c1 | sed -n "s/.*ref_count=[0-9]*,packet_count=\([0-9]*\),byte_count=\([0-9]*\).*/\\$1/p"; }
while :; do
  packets=$(count 1) bytes=$(count 2)
  @pub numbered send --count 10 --frame-bytes $FRAME_BYTES
  sleep 2  # the datapath's counts reach the group within a second
  [ $(($(count 1) - packets)) = 10 ] && break
done
sed -i "s/^bytes_for_each_frame:.*/bytes_for_each_frame: $((($(count 2) - bytes) / 10))/" answers.yaml
