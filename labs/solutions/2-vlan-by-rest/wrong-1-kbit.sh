# SPDX-License-Identifier: Apache-2.0
# fails: rate units
# The rate in kbit/s.
again() {
  api paths/lesson -X DELETE
  api paths -d "{\"name\":\"lesson\",\"root\":{\"switch\":\"c1\",\"port\":$south,\"vlan\":$VLAN_PUB},\"rate_bps\":$1}"
  for leaf in $LEAVES; do api paths/lesson/leaves -d "$(endpoint $leaf)"; done
}
again $((RATE_BPS / 1000))
undo() { again $RATE_BPS; }
