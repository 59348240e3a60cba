# SPDX-License-Identifier: Apache-2.0
# Lab 7, as typed at the prompt of the lab.
port() { ports "$1" | awk -v to="$2" '$4 == to { print $2 }'; }
of() { ovs-ofctl -O OpenFlow13 "$@"; }
id() { echo "set_field:$((0x1000 | $1))->vlan_vid"; }
set_answer() { sed -i "s/^$1:.*/$1: $2/" answers.yaml; }
gap() { sed -n 's/.*longest time without one: \([0-9.]*\) ms.*/\1/p' "$1"; }
# The current first link of feed: after a cut the path stays on its new route.
used() { curl -s --unix-socket "$REST" http://lab/v1/paths/feed | python3 -c "import json,sys; print(['c1:'+e['to'] for e in json.load(sys.stdin)['edges'] if e['from']=='c1'][0])"; }

# Steps 3 and 4: the gap after a cut.
for how in cut cut-silently; do
  link=$(used)
  @east numbered receive --seconds 3 > $how.txt &
  ( sleep 1; fault $how $link ) &
  sleep 0.2; @pub numbered send --count 2000 --interval-ms 1
  wait; cat $how.txt; fault mend $link; sleep 3
done
set_answer gap_cut_ms "$(gap cut.txt)"
set_answer gap_cut_silently_ms "$(gap cut-silently.txt)"

# Step 5: the controller dies.
link=$(used)
@east numbered receive --seconds 3 > killed.txt &
( sleep 1; fault kill-controller ) &
sleep 0.2; @pub numbered send --count 1000 --interval-ms 2
wait; cat killed.txt
set_answer lost_by_kill "$(sed -n 's/.*), \([0-9]*\) lost between.*/\1/p' killed.txt)"

# Step 6: nobody repairs.
fault cut $link
@east numbered receive --seconds 3 > dead.txt &
sleep 0.2; @pub numbered send --count 200 --interval-ms 10; wait
cat dead.txt
if grep -q nothing dead.txt; then set_answer comes_back_without_controller no; else set_answer comes_back_without_controller yes; fi
fault mend $link; fault start-controller; sleep 3

# Step 7: a path by hand on lane 2, with fast failover at c1. Nobody else uses groups beyond 0xffffff.
south=$(port c1 sw-south); to_c2=$(port c1 c2); to_c3=$(port c1 c3); east=$(port c4 sw-east)
of add-group c1 "group_id=0x1000001,type=ff,bucket=watch_port:$to_c2,actions=$(id 2900),output:$to_c2,bucket=watch_port:$to_c3,actions=$(id 2901),output:$to_c3"
of add-flow c1 "priority=5000,in_port=$south,dl_vlan=$((VLAN_PUB + 1)),actions=group:0x1000001"
of add-flow c2 "priority=5000,in_port=$(port c2 c1),dl_vlan=2900,actions=output:$(port c2 c4)"
of add-flow c3 "priority=5000,in_port=$(port c3 c1),dl_vlan=2901,actions=output:$(port c3 c4)"
of add-flow c4 "priority=5000,in_port=$(port c4 c2),dl_vlan=2900,actions=$(id $((VLAN_EAST + 1))),output:$east"
of add-flow c4 "priority=5000,in_port=$(port c4 c3),dl_vlan=2901,actions=$(id $((VLAN_EAST + 1))),output:$east"

# Step 8: a silent cut of the first bucket's link, on lane 2's group.
@east numbered receive --seconds 3 --group $GROUP2 > silent.txt &
( sleep 1; fault cut-silently c1:c2 ) &
sleep 0.2; @pub numbered send --count 2000 --interval-ms 1 --group $GROUP2
wait; cat silent.txt; fault mend c1:c2; sleep 3
last=$(sed -n 's/.*numbers [0-9]* to \([0-9]*\)).*/\1/p' silent.txt)
if [ "$last" -ge 1900 ]; then set_answer failover_survives_silent_cut yes; else set_answer failover_survives_silent_cut no; fi
