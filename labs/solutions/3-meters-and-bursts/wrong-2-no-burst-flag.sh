# SPDX-License-Identifier: Apache-2.0
# fails: burst-bounded large
# The word burst is missing: the size is not used.
of mod-meter c1 "meter=1,kbps,stats,band=type=drop,rate=$METER_KBPS"
undo() { of mod-meter c1 "meter=1,kbps,burst,stats,band=type=drop,rate=$METER_KBPS,burst_size=$burst_kbit"; }
