# SPDX-License-Identifier: Apache-2.0
# The initial path: from pub to east and back, without a meter.
port() { ports "$1" | awk -v to="$2" '$4 == to { print $2 }'; }
of() { ovs-ofctl -O OpenFlow13 "$@"; }
id() { echo "set_field:$((0x1000 | $1))->vlan_vid"; }
of add-flow c1 "priority=100,in_port=$(port c1 sw-south),dl_vlan=$VLAN_PUB,actions=$(id 2000),output:$(port c1 c2)"
of add-flow c2 "priority=100,in_port=$(port c2 c1),dl_vlan=2000,actions=$(id "$VLAN_EAST"),output:$(port c2 sw-east)"
of add-flow c2 "priority=100,in_port=$(port c2 sw-east),dl_vlan=$VLAN_EAST,actions=$(id 2000),output:$(port c2 c1)"
of add-flow c1 "priority=100,in_port=$(port c1 c2),dl_vlan=2000,actions=$(id "$VLAN_PUB"),output:$(port c1 sw-south)"
