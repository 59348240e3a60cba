# SPDX-License-Identifier: Apache-2.0
# fails: leaves wrong-tag
# The first leaf with an id that is not its segment's.
leaf=${LEAVES%% *} sw=$(switch_of ${LEAVES%% *}) vlan=VLAN_${leaf^^}
api paths/lesson/leaves/$sw/$(port $sw sw-$leaf)/${!vlan} -X DELETE
api paths/lesson/leaves -d "$(endpoint $leaf 11)"
undo() { api paths/lesson/leaves/$sw/$(port $sw sw-$leaf)/$((${!vlan} + 11)) -X DELETE; api paths/lesson/leaves -d "$(endpoint $leaf)"; }
