# SPDX-License-Identifier: Apache-2.0
# fails: nobody-else others
# All four hosts are leaves.
for leaf in north west east lake; do api paths/lesson/leaves -d "$(endpoint $leaf)"; done
undo() {
  for leaf in north west east lake; do
    case " $LEAVES " in *" $leaf "*) continue ;; esac
    vlan=VLAN_${leaf^^} sw=$(switch_of $leaf)
    api paths/lesson/leaves/$sw/$(port $sw sw-$leaf)/${!vlan} -X DELETE
  done
}
