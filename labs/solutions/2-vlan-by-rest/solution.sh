# SPDX-License-Identifier: Apache-2.0
# Lab 2, as typed at the prompt of the lab.
api() { curl -s --unix-socket "$REST" -H 'Content-Type: application/json' "http://lab/v1/$1" "${@:2}"; }
switch_of() { case $1 in north) echo c2 ;; west) echo c3 ;; *) echo c4 ;; esac; }
port() { ports "$1" | awk -v to="$2" '$4 == to { print $2 }'; }
endpoint() { local vlan=VLAN_${1^^} sw=$(switch_of $1); echo "{\"switch\":\"$sw\",\"port\":$(port $sw sw-$1),\"vlan\":$((${!vlan} + ${2:-0}))}"; }

south=$(port c1 sw-south)
api paths -d "{\"name\":\"lesson\",\"root\":{\"switch\":\"c1\",\"port\":$south,\"vlan\":$VLAN_PUB},\"rate_bps\":$RATE_BPS}"; echo
for leaf in $LEAVES; do api paths/lesson/leaves -d "$(endpoint $leaf)"; echo; done

# Step 5: the edge that leads to the first leaf's switch.
first=${LEAVES%% *}
vlan=$(api paths/lesson | python3 -c "import json,sys; print([e['vlan'] for e in json.load(sys.stdin)['edges'] if e['to'] == '$(switch_of $first)'][0])")
sed -i "s/^vlan_at_first_leaf:.*/vlan_at_first_leaf: $vlan/" answers.yaml

# Step 7: too fast for the links.
api paths -d "{\"name\":\"big\",\"root\":{\"switch\":\"c1\",\"port\":$south,\"vlan\":$((VLAN_PUB + 1))},\"rate_bps\":60000000}"; echo
status=$(api paths/big/leaves -o /dev/null -w '%{http_code}' -d "$(endpoint $first 1)")
api paths/big -X DELETE
sed -i "s/^refused_with_status:.*/refused_with_status: $status/" answers.yaml

# Step 8: servers of LDM7 on lane 2.
own=VLAN_${first^^}; a=$((VLAN_PUB + 1)); b=$((${!own} + 1))
@pub ip link delete vlan$a; @$first ip link delete vlan$b
cat >publisher.conf <<end
MULTICAST NGRID $GROUP2:38800 10.10.2.1 24 $a c1 $south
ALLOW NGRID .*
SET ldm7.nic pub-nic3
SET fmtp.r_mc_bps 2000000
SET path.service unix:$REST
SET path.rate_bps 5000000
end
echo "RECEIVE NGRID 10.20.0.2:388 $first-nic3 $(switch_of $first) $(port $(switch_of $first) sw-$first) $b" >subscriber.conf
@pub ldm publisher.conf
@$first ldm subscriber.conf
sleep 2
