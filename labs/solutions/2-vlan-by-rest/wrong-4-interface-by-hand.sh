# SPDX-License-Identifier: Apache-2.0
# fails: subscription by-hand
@$first ldm stop subscriber.conf
@$first ip link add link $first-nic3 name vlan$b type vlan id $b
@$first ip address add 10.10.2.2/24 dev vlan$b; @$first ip link set dev vlan$b up
api paths/NGRID/leaves -d "$(endpoint $first 1)"
undo() { @$first ip link delete vlan$b; @$first ldm subscriber.conf; }
