# SPDX-License-Identifier: Apache-2.0
# fails: silent-gap cadence
# The link that was cut was not the one that the path uses: only the time between two datagrams.
right=$(sed -n 's/^gap_cut_silently_ms: //p' answers.yaml)
set_answer gap_cut_silently_ms 1.169
undo() { set_answer gap_cut_silently_ms "$right"; }
