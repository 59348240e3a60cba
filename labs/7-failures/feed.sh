# SPDX-License-Identifier: Apache-2.0
# The initial path: `feed`, from pub to east on lane 1, made by the path service.
port() { ports "$1" | awk -v to="$2" '$4 == to { print $2 }'; }
api() { curl -sS --fail-with-body --unix-socket "$REST" -H 'Content-Type: application/json' "http://lab/v1/$1" "${@:2}"; }
api paths -d "{\"name\":\"feed\",\"root\":{\"switch\":\"c1\",\"port\":$(port c1 sw-south),\"vlan\":$VLAN_PUB},\"rate_bps\":0}"
api paths/feed/leaves -d "{\"switch\":\"c4\",\"port\":$(port c4 sw-east),\"vlan\":$VLAN_EAST}"
