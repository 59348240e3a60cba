# SPDX-License-Identifier: Apache-2.0
# fails: by-hand doubled
# A group of type all sends every frame over both routes.
of mod-group c1 "group_id=0x1000001,type=all,bucket=actions=$(id 2900),output:$to_c2,bucket=actions=$(id 2901),output:$to_c3"
ff() { of mod-group c1 "group_id=0x1000001,type=ff,bucket=watch_port:$to_c2,actions=$(id 2900),output:$to_c2,bucket=watch_port:$to_c3,actions=$(id 2901),output:$to_c3"; }
undo() { ff; }
