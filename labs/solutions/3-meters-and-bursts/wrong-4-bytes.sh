# SPDX-License-Identifier: Apache-2.0
# fails: burst-passes small
# The burst size in kbyte.
of mod-meter c1 "meter=1,kbps,burst,stats,band=type=drop,rate=$METER_KBPS,burst_size=$((BURST_FRAMES))"
undo() { of mod-meter c1 "meter=1,kbps,burst,stats,band=type=drop,rate=$METER_KBPS,burst_size=$burst_kbit"; }
