# SPDX-License-Identifier: Apache-2.0
# Lab 3, as typed at the prompt of the lab.
port() { ports "$1" | awk -v to="$2" '$4 == to { print $2 }'; }
of() { ovs-ofctl -O OpenFlow13 "$@"; }
burst_kbit=$(( BURST_FRAMES * 1000 * 8 / 1000 + 16 ))  # two frames more than the burst
of add-meter c1 "meter=1,kbps,burst,stats,band=type=drop,rate=$METER_KBPS,burst_size=$burst_kbit"
of mod-flows c1 "priority=100,in_port=$(port c1 sw-south),dl_vlan=$VLAN_PUB,actions=meter:1,set_field:$((0x1000 | 2000))->vlan_vid,output:$(port c1 c2)"

# Step 5: how much of a burst is dropped.
sleep 5
@east numbered receive --seconds 2 > burst.txt &
sleep 0.5; @pub numbered send --count $((4 * BURST_FRAMES)) --interval-ms 0 --frame-bytes 1000; wait
cat burst.txt
got=$(sed -n 's/.*received \([0-9]*\) .*/\1/p' burst.txt)
sed -i "s/^dropped_of_burst:.*/dropped_of_burst: $((4 * BURST_FRAMES - got))/" answers.yaml

# Steps 6 and 7: the shaper, and how long a burst waits in it.
@pub tc qdisc add dev pub-nic1 root handle 1: htb default 10
@pub tc class add dev pub-nic1 parent 1: classid 1:10 htb rate $((METER_KBPS * 95 / 100))kbit burst 4kb cburst 4kb
sleep 5
@east numbered receive --seconds 3 > delay.txt &
sleep 0.5; @pub numbered send --count 100 --interval-ms 0 --frame-bytes 1000; wait
cat delay.txt
sed -i "s/^greatest_delay_ms:.*/greatest_delay_ms: $(sed -n 's/.*most \([0-9.]*\) ms/\1/p' delay.txt)/" answers.yaml
