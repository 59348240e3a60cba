# SPDX-License-Identifier: Apache-2.0
# fails: meter-rate units
# The meter's rate in Mbit/s.
of mod-meter c1 "meter=1,kbps,burst,stats,band=type=drop,rate=$((METER_KBPS / 1000)),burst_size=$burst_kbit"
undo() { of mod-meter c1 "meter=1,kbps,burst,stats,band=type=drop,rate=$METER_KBPS,burst_size=$burst_kbit"; }
