# SPDX-License-Identifier: Apache-2.0
# fails: strangers forwarded
# The publisher's flow matches only the port.
of del-flows c1 "in_port=$south"
of add-flow c1 "priority=100,in_port=$south,actions=group:1"
undo() { of del-groups c1; . "$SOLUTION/solution.sh"; }
