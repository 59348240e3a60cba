#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The model of the published sender, on 40 products of 500,000 bytes at 40 Mbit/s over 20 Mbit/s.
# Product k waits about 0.21 (k + 1) - 0.1 k seconds; 97 % of them lose a packet at 1 %. With 1
# microsecond a datagram, f_snd = 5000 serves each for 1.74 s: 15 products and 3 % of the others.
set -eu
model=$1
trace=$(mktemp)
trap 'rm -f "$trace"' EXIT
k=0
while [ $k -lt 40 ]; do
    printf '500000 201506150000%02d.%d00\n' $((k / 10)) $((k % 10)) >>"$trace"
    k=$((k + 1))
done

run() {
    "$model" "$trace" 4 4 "$@" 7
}

value() {
    printf '%s\n' "$1" | tr ' ' '\n' | sed -n "s/^$2=//p"
}

check() {
    if ! awk "BEGIN { exit !($2) }"; then
        echo "$1: found $2" >&2
        exit 1
    fi
}

rate=$(run 0.01 5000 rate loop nic1)
short=$(run 0.01 5000 1 loop nic1)
blocking=$(run 0.01 5000 1 blocking nic1)
none=$(run 0 5000 1 blocking nic2)
check "by the rate all is served" "$(value "$rate" ffdr) == 100"
check "by the hand-over time" "$(value "$short" ffdr) > 36 && $(value "$short" ffdr) < 46"
check "blocking threads reject the same" "$(value "$blocking" ffdr) == $(value "$short" ffdr)"
check "without loss" "$(value "$none" ffdr) == 100 && $(value "$none" pulls_mbps) == 0"
check "four receivers pull three fifths of 20 MB each" "$(value "$short" pulls_mbps) * $(value "$short" end_s) > 0.5 * 4 * 160"
if "$model" "$trace" 4 0 0.01 5000 rate loop nic1 7 2>/dev/null; then
    echo "0 receivers were accepted" >&2
    exit 1
fi
