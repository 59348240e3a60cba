# SPDX-License-Identifier: Apache-2.0
# fails: silent-gap cadence
# The path did not use the link that was cut, so this is only the time between two datagrams.
right=$(sed -n 's/^gap_cut_silently_ms: //p' answers.yaml)
set_answer gap_cut_silently_ms 1.169
undo() { set_answer gap_cut_silently_ms "$right"; }
