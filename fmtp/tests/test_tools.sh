#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fmtp-send to two fmtp-recv over the loopback interface, and messages on wrong usage.
# Usage: test_tools.sh FMTP-SEND FMTP-RECV
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
await() { # what, then a command: until it succeeds
    what=$1 tries=0; shift
    until "$@"; do
        [ $tries -lt 800 ] || fail "40 s without $what"
        sleep 0.05; tries=$((tries + 1))
    done
}
port_of() { sed -n 's/.*TCP port //p' "$dir/send.err" | sed -n "$1p"; }
has_port() { [ -n "$(port_of "$1")" ]; }

mkfifo "$dir/fifo" || exit 1
mkdir "$dir/in" "$dir/out1" "$dir/out2"
head -c 1500000 /dev/urandom >"$dir/in/large"
head -c 10 /dev/urandom >"$dir/in/name with spaces"
: >"$dir/in/empty"
group=239.192.$(($$ % 250 + 1)).77:$((20000 + $$ % 20000))

for layout in 2021 2017; do
    rm -f "$dir"/out1/* "$dir"/out2/*
    : >"$dir/send.err"
    $bounded "$send" --group $group --address 127.0.0.1 --receivers 2 --layout $layout \
        --rate 200M "$dir"/in/* >"$dir/send.out" 2>"$dir/send.err" &
    sender=$! pids=$!
    await "a port" has_port 1
    port=$(port_of 1)
    $bounded "$recv" --server "127.0.0.1:$port" --group "$group" --interface 127.0.0.1 \
        --layout $layout --rate 200M --sha256 "$dir/out1" >"$dir/1.out" 2>"$dir/1.err" &
    one=$! pids="$pids $!"
    $bounded "$recv" --server "127.0.0.1:$port" --group "$group" --interface 127.0.0.1 \
        --layout $layout --rate 200M --count 3 "$dir/out2" >"$dir/2.out" 2>"$dir/2.err" &
    two=$! pids="$pids $!"
    wait $one || fail "receiver 1, layout $layout"
    wait $two || fail "receiver 2, layout $layout"
    wait $sender || fail "sender, layout $layout"
    diff -r "$dir/in" "$dir/out1" || fail "files differ at receiver 1"
    diff -r "$dir/in" "$dir/out2" || fail "files differ at receiver 2"
    digest=$(sha256sum "$dir/in/large" | cut -d' ' -f1)
    grep -q "sha256=$digest name=large" "$dir/1.out" || fail "digest"
    grep -q 'products=3 receivers=.* unacknowledged=0 .*result=complete' "$dir/send.out" ||
        fail "sender's report"
    [ "$(grep -c 'why=all-done' "$dir/send.out")" = 3 ] || fail "a line per file"
done

# Files that standard input names while the program runs; the last line has no newline.
mkdir "$dir/out3"
mkfifo "$dir/names"
: >"$dir/send.err"
$bounded "$send" --group $group --address 127.0.0.1 --stdin --rate 200M <"$dir/names" \
    >"$dir/send.out" 2>"$dir/send.err" &
sender=$! pids="$pids $!"
exec 4>"$dir/names"
await "a port" has_port 1
port=$(port_of 1)
# Files in flight need more descriptors than 256, up to the hard limit.
$bounded prlimit --nofile=256: "$recv" --server "127.0.0.1:$port" --group "$group" --interface 127.0.0.1 \
    --rate 200M "$dir/out3" >"$dir/3.out" 2>"$dir/3.err" 4>&- &
three=$! pids="$pids $!"
echo "$dir/in/large" >&4
await "the file" grep -qs 'name=large' "$dir/3.out"
kill -0 $sender || fail "sender ended before its standard input"
limits="/proc/$(pgrep -P $three)/limits" most=$((4096 + 64))
hard=$(sed -n 's/^Max open files *[0-9]* *\([a-z0-9]*\) .*/\1/p' "$limits")
[ "$hard" != unlimited ] && [ "$hard" -lt $most ] && most=$hard
[ "$(sed -n 's/^Max open files *\([0-9]*\) .*/\1/p' "$limits")" = "$most" ] ||
    fail "the receiver's limit of open files"
grep -q '1 receivers connected' "$dir/send.err" || fail "no line on the receivers"
printf '%s\n\n%s' "$dir/in/name with spaces" "$dir/in/empty" >&4
exec 4>&-
wait $sender || fail "sender with --stdin"
wait $three || fail "receiver of --stdin"
diff -r "$dir/in" "$dir/out3" || fail "files differ with --stdin"
arrived=$(sed -n 's/.* arrived=\([0-9]*\)\..* name=large/\1/p' "$dir/3.out")
[ $(($(date +%s) - arrived)) -le 60 ] || fail "arrival time '$arrived'"

# Two feeds with receivers of different MAC levels, an index that continues, a receiver that returns.
group2=239.193.$(($$ % 250 + 1)).78:${group##*:}
for start in 0 3; do
    rm -f "$dir"/out1/*
    : >"$dir/send.err"
    $bounded "$send" --group "$group" --group "$group2" --address 127.0.0.1 --receivers 2 --mac 1 \
        --state "$dir/state" --rate 200M "$dir"/in/* >"$dir/send.out" 2>"$dir/send.err" &
    sender=$! pids="$pids $!"
    await "two ports" has_port 2
    $bounded "$recv" --server "127.0.0.1:$(port_of 1)" --group "$group" --server "127.0.0.1:$(port_of 2)" \
        --group "$group2" --interface 127.0.0.1 --mac 1 --count 6 --rate 200M "$dir/out1" \
        >"$dir/1.out" 2>"$dir/1.err" || fail "receiver of two feeds"
    wait $sender || fail "sender of two feeds"
    diff -r "$dir/in" "$dir/out1" || fail "files of two feeds differ"
    [ "$(grep -c "^index=$((start + 2)) " "$dir/1.out")" = 2 ] || fail "index does not go on from $start"
done
[ "$(cat "$dir/state")" = "next_index 6" ] || fail "state file"

# The sender is killed and started again: the receiver reconnects.
rm -f "$dir"/out1/*
port=$((${group##*:} + 1))
$bounded "$send" --group $group --address 127.0.0.1 --port $port --state "$dir/state" --rate 200M \
    "$dir/in/large" --stdin <"$dir/fifo" >"$dir/send.out" 2>"$dir/send.err" &
sender=$! pids="$pids $!"
$bounded "$recv" --server "127.0.0.1:$port" --group "$group" --interface 127.0.0.1 --reconnect 20 --count 2 \
    --rate 200M "$dir/out1" >"$dir/1.out" 2>"$dir/1.err" &
one=$! pids="$pids $!"
exec 3>"$dir/fifo"
await "the file" test -f "$dir/out1/large"
kill -9 "$(ps -o pid= --ppid "$sender" | tr -d " ")"; wait $sender; exec 3>&-
$bounded "$send" --group $group --address 127.0.0.1 --port $port --state "$dir/state" --rate 200M \
    "$dir/in/name with spaces" >"$dir/send.out" 2>"$dir/send.err" || fail "sender started again"
wait $one || fail "receiver of a sender started again"
grep -q 'index=7 bytes=10 ' "$dir/1.out" || fail "index after a restart"
grep -q 'connections=2 ' "$dir/1.out" || fail "no second connection"

# A receiver that cannot store a file reports that to the sender; leftovers delay nothing; a killed sender is
# distinguished from one that is done; a file that shrinks affects no other.
run_pair() { # options of the sender --; then files; the receiver's directory is out1, its status in $got
    : >"$dir/send.err"
    $bounded "$send" --group $group --address 127.0.0.1 "$@" >"$dir/send.out" 2>"$dir/send.err" &
    sender=$! pids="$pids $!"
    await "a port" has_port 1
    port=$(port_of 1)
    $bounded "$recv" --server "127.0.0.1:$port" --group "$group" --interface 127.0.0.1 --rate 200M \
        "$dir/out1" >"$dir/1.out" 2>"$dir/1.err"
    got=$?
}
rm -rf "$dir/out1"; mkdir -p "$dir/out1/large"
for n in 0 1 2; do for p in $(seq 1 40); do : >"$dir/out1/.fmtp-$p-0-$n"; done; done
run_pair --rate 200M "$dir"/in/*
wait $sender && fail "a sender whose receiver could not store a file"
[ $got = 1 ] || fail "exit $got of a receiver that could not store a file"
grep -q 'failed=1 .*result=incomplete' "$dir/send.out" || fail "sender's report of what failed"
grep -q 'why=failed name=large' "$dir/send.out" || fail "line of what failed"
grep -q "'large', 1500000 bytes: Is a directory" "$dir/1.err" || fail "why it failed"
cmp "$dir/in/name with spaces" "$dir/out1/name with spaces" || fail "the other file"
rm -rf "$dir/out1"; mkdir "$dir/out1"

head -c 6000000 /dev/urandom >"$dir/shrinks"
for mac in 0 1; do
    rm -f "$dir"/out1/*; cp "$dir/shrinks" "$dir/cut"
    (while [ -z "$(find "$dir/out1" -name '.fmtp-*')" ]; do sleep 0.02; done; sleep 0.3; : >"$dir/cut") &
    run_pair --mac $mac --rate 20M "$dir/cut" "$dir/in/large"
    wait $sender && fail "a sender of a file that shrank, mac $mac"
    [ $got = 1 ] || fail "exit $got of the receiver of a file that shrank, mac $mac"
    grep -q 'why=changed name=cut' "$dir/send.out" || fail "no line on the file that shrank, mac $mac"
    grep -q 'why=all-done name=large' "$dir/send.out" || fail "the file behind it, mac $mac"
    cmp "$dir/in/large" "$dir/out1/large" || fail "file behind one that shrank, mac $mac"
    [ ! -e "$dir/out1/cut" ] || fail "a file that shrank is there, mac $mac"
done

rm -f "$dir"/out1/*
(
    await "the file" test -f "$dir/out1/large"
    kill -9 "$(ps -o pid= --ppid "$(cat "$dir/sender.pid")" | tr -d " ")"
) &
killer=$!
mkfifo "$dir/never"; sleep 30 >"$dir/never" & holder=$!; pids="$pids $holder"
: >"$dir/send.err"
$bounded "$send" --group $group --address 127.0.0.1 --rate 200M --stdin "$dir/in/large" <"$dir/never" \
    >"$dir/send.out" 2>"$dir/send.err" &
sender=$! pids="$pids $!"; echo $sender >"$dir/sender.pid"
await "a port" has_port 1
port=$(port_of 1)
$bounded "$recv" --server "127.0.0.1:$port" --group "$group" --interface 127.0.0.1 --rate 200M "$dir/out1" \
    >"$dir/1.out" 2>"$dir/1.err"
got=$?
wait $killer; kill $holder; wait $sender
[ $got = 3 ] || fail "exit $got instead of 3: its sender was killed"
grep -q 'connection broke before the sender announced its end' "$dir/1.err" || fail "no line on the lost sender"
grep -q 'products=1 .*result=sender-lost' "$dir/1.out" || fail "result of a lost sender"

# Wrong usage: exit status, and the offending text in the message.
expect() {
    want=$1 text=$2; shift 2
    timeout --foreground -k 5 20 "$@" >"$dir/usage.out" 2>"$dir/usage.err"
    got=$?
    [ $got = "$want" ] || fail "exit $got instead of $want: $*"
    grep -q -- "$text" "$dir/usage.err" || fail "no '$text': $*"
}
expect 2 "'239.1.1.1'" "$send" --group 239.1.1.1 --address 127.0.0.1 x
expect 2 "'/no/file'" "$send" --group $group --address 127.0.0.1 /no/file
expect 2 "not a regular file" "$send" --group $group --address 127.0.0.1 "$dir"
expect 2 "'0'" "$send" --group $group --address 127.0.0.1 --rate 0 "$dir/in/empty"
expect 2 "no FILE" "$send" --group $group --address 127.0.0.1
echo /no/such/file | expect 2 "'/no/such/file'" "$send" --group $group --address 127.0.0.1 --receivers 0 --stdin
expect 1 "10.1.1.1" "$send" --group 10.1.1.1:5 --address 127.0.0.1 "$dir/in/empty"
echo "next_index x" >"$dir/bad"
expect 2 'bad:1: found "next_index x"' "$send" --group $group --address 127.0.0.1 --state "$dir/bad" x
expect 2 "'3'" "$send" --mac 3
expect 2 "'none'" "$recv" --repair none
expect 2 "1 times --group" "$recv" --server 127.0.0.1:9 --server 127.0.0.1:8 --group $group --interface 127.0.0.1 /tmp
expect 2 "'2020'" "$recv" --layout 2020
expect 2 "'1.2.3:4'" "$recv" --server 1.2.3:4
expect 2 "'/no/dir'" "$recv" --server 127.0.0.1:9 --group $group --interface 127.0.0.1 /no/dir
"$send" --help | grep -q '^Usage' || fail "--help"
"$recv" --version | grep -q Downpour || fail "--version"
echo "tools: ok"
