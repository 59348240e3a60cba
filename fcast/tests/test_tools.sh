#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fcast-send to fcast-recv over the loopback interface: both protocols, several codes, a session
# file, a key, a receiver that is killed and continues, names that lead out of the folder, and wrong usage.
# Usage: test_tools.sh FCAST-SEND FCAST-RECV
set -u
# In the foreground: otherwise `timeout` sends SIGCONT after a signal, which cancels the stop that the
# leak checker waits for at the program's end; the two would then wait for each other.
bounded="timeout --foreground -k 5 60"
send=$1 recv=$2
dir=$(mktemp -d) || exit 1
pids=
cleanup() { for p in $pids; do kill "$p" 2>/dev/null; done; rm -rf "$dir"; }
trap cleanup EXIT
fail() { echo "FAILED: $*"; cat "$dir"/*.err "$dir"/*.out 2>/dev/null; exit 1; }

mkdir "$dir/in" "$dir/cache"
head -c 1500000 /dev/urandom >"$dir/in/large"
head -c 10 /dev/urandom >"$dir/in/name with spaces"
: >"$dir/in/empty"
group=239.192.$(($$ % 250 + 1)).79:$((20000 + $$ % 20000))

# start_sender OPTION...: FILES... are those of in/
start_sender() {
    rm -f "$dir/session.sdp"
    "$send" --group "$group" --interface 127.0.0.1 --cache "$dir/cache" --sdp "$dir/session.sdp" \
        "$@" >"$dir/send.out" 2>"$dir/send.err" &
    sender=$! pids="$pids $!" tries=0
    while [ ! -s "$dir/session.sdp" ] && [ $tries -lt 400 ]; do sleep 0.05; tries=$((tries + 1)); done
    [ -s "$dir/session.sdp" ] || fail "no session file"
}
stop_sender() {
    kill -TERM $sender
    wait $sender || fail "sender: $*"
    grep -q '^files=.* read_errors=0 ' "$dir/send.out" || fail "the sender's report: $*"
}

for options in "--protocol fcast" "--protocol flute" "--fec rs --k 40" "--fec ldpc-staircase --order rotate" \
    "--fec none --jitter" "--fec rs --variant flute --protocol flute"; do
    rm -rf "$dir/out1" "$dir/out2"
    mkdir "$dir/out1" "$dir/out2"
    variant=''
    case $options in *flute\ --protocol*) variant='--variant flute' ;; esac
    # shellcheck disable=SC2086
    start_sender --rate 60M $options "$dir"/in/*
    # shellcheck disable=SC2086
    $bounded "$recv" --session "$dir/session.sdp" --interface 127.0.0.1 $variant "$dir/out1" \
        >"$dir/1.out" 2>"$dir/1.err" &
    one=$! pids="$pids $!"
    # shellcheck disable=SC2086
    $bounded "$recv" --session "$dir/session.sdp" --interface 127.0.0.1 $variant "$dir/out2" \
        >"$dir/2.out" 2>"$dir/2.err" || fail "receiver 2, $options"
    wait $one || fail "receiver 1, $options"
    stop_sender "$options"
    rm -rf "$dir/out1/.fcast" "$dir/out2/.fcast"
    diff -r "$dir/in" "$dir/out1" || fail "files differ at receiver 1, $options"
    diff -r "$dir/in" "$dir/out2" || fail "files differ at receiver 2, $options"
    grep -q 'files=3 bytes=1500010 .* result=complete' "$dir/1.out" || fail "report, $options"
    grep -q "^toi=[0-9]* bytes=1500000 seconds=[0-9.]* received=[1-9][0-9]* lost=[0-9]* \
useful=[1-9][0-9]* digest=[a-z]* name=large\$" "$dir/1.out" || fail "a file's line, $options"
    grep -q ' rss_bytes=[1-9][0-9]* ' "$dir/1.out" || fail "memory, $options"
done

# The packets of 1999: one file, no descriptor. The receiver leaves once it has the file.
for options in "" "--order rotate --k 100 --symbol 512"; do
    rm -rf "$dir/out6"
    mkdir "$dir/out6"
    # shellcheck disable=SC2086
    start_sender --rate 60M --protocol seed $options "$dir/in/large"
    grep -q 'SEED/UDP' "$dir/session.sdp" || fail "protocol in the session file"
    $bounded "$recv" --session "$dir/session.sdp" --interface 127.0.0.1 "$dir/out6" >"$dir/6.out" \
        2>"$dir/6.err" || fail "receiver of 1999, $options"
    stop_sender "seed $options"
    rmdir "$dir/out6/.fcast" || fail "something is left in .fcast"
    cmp "$dir/in/large" "$dir/out6/large" || fail "files differ by the packets of 1999"
done

# gzip: packed on the wire where that helps, unpacked on arrival; a bomb is refused.
mkdir "$dir/out7" "$dir/out8" "$dir/packed"
yes 'a line that packs' | head -c 3000000 >"$dir/packed/text"
cp "$dir/in/large" "$dir/packed/noise"
for protocol in fcast flute; do
    rm -rf "$dir/out7"
    mkdir "$dir/out7"
    start_sender --rate 60M --protocol $protocol --encoding gzip "$dir"/packed/*
    grep -q 'bytes=3000000 packed_bytes=[0-9]\{1,5\} name=text' "$dir/send.err" || fail "packing"
    $bounded "$recv" --session "$dir/session.sdp" --interface 127.0.0.1 "$dir/out7" >"$dir/7.out" \
        2>"$dir/7.err" || fail "receiver of gzip, $protocol"
    rmdir "$dir/out7/.fcast"
    diff -r "$dir/packed" "$dir/out7" || fail "files differ that were packed, $protocol"
    if [ $protocol = fcast ]; then
        $bounded "$recv" --session "$dir/session.sdp" --interface 127.0.0.1 --max-unpacked 1M \
            "$dir/out8" >"$dir/8.out" 2>"$dir/8.err" && fail "a bomb was taken"
        grep -q 'unpacked, 3000000 bytes; --max-unpacked is 1000000' "$dir/8.err" || fail "message of a bomb"
        grep -q 'files=1 .* unstored=1 ' "$dir/8.out" || fail "report of a bomb"
        [ "$(ls "$dir/out8")" = noise ] || fail "a bomb left something"
    fi
    stop_sender "gzip $protocol"
done

# A receiver is killed in the middle; the next one continues with what was stored.
head -c 6000000 /dev/urandom >"$dir/big"
mkdir "$dir/out3"
start_sender --rate 20M "$dir/big"
"$recv" --session "$dir/session.sdp" --interface 127.0.0.1 "$dir/out3" >"$dir/3.out" 2>"$dir/3.err" &
victim=$! tries=0
while [ "$(cat "$dir"/out3/.fcast/*.notes 2>/dev/null | wc -c)" -lt 16384 ] && [ $tries -lt 400 ]; do
    sleep 0.05; tries=$((tries + 1))
done
kill -9 $victim
wait $victim 2>/dev/null
[ ! -e "$dir/out3/big" ] || fail "the receiver was done before it was killed"
$bounded "$recv" --session "$dir/session.sdp" --interface 127.0.0.1 "$dir/out3" >"$dir/3.out" \
    2>"$dir/3.err" || fail "the second receiver"
cmp "$dir/big" "$dir/out3/big" || fail "files differ after the restart"
restored=$(sed -n 's/.* restored=\([0-9]*\) .*/\1/p' "$dir/3.out")
[ "$restored" -ge 2048 ] || fail "restored only $restored symbols"
[ -z "$(ls "$dir/out3/.fcast")" ] || fail "something is left in .fcast"
stop_sender restart

# With another key, or none, nothing is accepted.
for n in 1 2; do (umask 077 && printf '%064d\n' $n >"$dir/key$n"); done
mkdir "$dir/out4" "$dir/wrong"
start_sender --rate 20M --key-file "$dir/key1" "$dir/in/large"
$bounded "$recv" --session "$dir/session.sdp" --interface 127.0.0.1 --key-file "$dir/key2" \
    --timeout 2 "$dir/wrong" >"$dir/4.out" 2>"$dir/4.err" &
wrong=$!
$bounded "$recv" --session "$dir/session.sdp" --interface 127.0.0.1 --key-file "$dir/key1" \
    "$dir/out4" >"$dir/5.out" 2>"$dir/5.err" || fail "the receiver with the key"
cmp "$dir/in/large" "$dir/out4/large" || fail "files differ with a key"
stop_sender key
wait $wrong && fail "the receiver with a wrong key ended well"
grep -q 'files=0 .*received=0 .*forged=[1-9]' "$dir/4.out" || fail "report with a wrong key"

# The sender ends without being stopped, and a receiver that came too late reports that.
mkdir "$dir/out5"
$bounded "$recv" --group "$group" --interface 127.0.0.1 --tsi 77 "$dir/out5" >"$dir/6.out" \
    2>"$dir/6.err" &
late=$!
"$send" --group "$group" --interface 127.0.0.1 --cache "$dir/cache" --tsi 78 --rate 60M --cycles 1 \
    "$dir/in/large" >"$dir/send.out" 2>"$dir/send.err" || fail "a sender of one cycle"
grep -q ' rounds=1 ' "$dir/send.out" || fail "rounds"
kill -TERM $late
wait $late && fail "a receiver without its session ended well"
grep -q 'files=0 .* result=incomplete' "$dir/6.out" || fail "report of the other session"

usage() {
    want=$1
    shift
    "$@" >"$dir/u.out" 2>"$dir/u.err"
    [ $? = 2 ] || fail "exit status of: $*"
    grep -qF -- "$want" "$dir/u.err" || fail "message of: $*"
}
usage "--group '10.0.0.1:5'; valid: a multicast group" "$send" --group 10.0.0.1:5
usage "--order 'any'; valid: sequential, rotate, shuffle" "$send" --order any
usage "are needed" "$recv" "$dir"
usage "found 2 files; valid: one FILE with --protocol seed" "$send" --group "$group" \
    --interface 127.0.0.1 --protocol seed "$dir/big" "$dir/in/large"
usage "--protocol seed with another code; valid: --fec rs" "$send" --group "$group" \
    --interface 127.0.0.1 --protocol seed --fec none "$dir/big"
usage "--protocol seed with --key-file" "$recv" --group "$group" --interface 127.0.0.1 \
    --protocol seed --key-file "$dir/key1" "$dir"
usage "'$dir/none': No such file" "$send" --group "$group" --interface 127.0.0.1 "$dir/none"
printf 'm=video 1 RTP/AVP 0\n' >"$dir/bad.sdp"
usage "bad.sdp:1: found \"m=video 1 RTP/AVP 0\"" "$recv" --session "$dir/bad.sdp" --interface 127.0.0.1 "$dir"
printf 'abc\n' >"$dir/badkey"
chmod 600 "$dir/badkey"
usage "badkey:1: found 3 digits; valid: one line of 64 hexadecimal digits" "$recv" --key-file "$dir/badkey"
echo ok
