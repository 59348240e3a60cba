# SPDX-License-Identifier: Apache-2.0
# fails: shaped dropped
# HTB is faster than the meter.
@pub tc class change dev pub-nic1 parent 1: classid 1:10 htb rate $((METER_KBPS * 120 / 100))kbit burst 4kb cburst 4kb
undo() { @pub tc class change dev pub-nic1 parent 1: classid 1:10 htb rate $((METER_KBPS * 95 / 100))kbit burst 4kb cburst 4kb; }
