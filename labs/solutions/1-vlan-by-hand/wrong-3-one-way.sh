# SPDX-License-Identifier: Apache-2.0
# fails: back no-way
# The return path is missing.
of del-flows c2 "in_port=$east"; of del-flows c3 "in_port=$west"
undo() { of del-groups c1; . "$SOLUTION/solution.sh"; }
