#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The control library, over the loopback interface: a file with redundancy, one sent until stopped,
# two in succession, and arguments that are refused.
# Usage: test_control.sh EXAMPLE             the example from the build
#        test_control.sh --installed BUILD EXAMPLE.c   one built with the installed library
set -u
dir=$(mktemp -d) || exit 1
pids=
cleanup() { for p in $pids; do kill "$p" 2>/dev/null; done; rm -rf "$dir"; }
trap cleanup EXIT
fail() { echo "FAILED: $*"; cat "$dir"/*.err "$dir"/*.out 2>/dev/null; exit 1; }

if [ "$1" = --installed ]; then
    if ! command -v pkg-config >/dev/null || ! command -v cc >/dev/null; then
        echo "no pkg-config or cc"
        exit 77
    fi
    DESTDIR="$dir/root" meson install -C "$2" --tags devel --no-rebuild >"$dir/install.out" 2>&1 ||
        fail "meson install"
    pc=$(find "$dir/root" -name downpour-fcast.pc)
    [ -n "$pc" ] || fail "no downpour-fcast.pc"
    PKG_CONFIG_PATH=$(dirname "$pc") PKG_CONFIG_SYSROOT_DIR="$dir/root"
    export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
    flags=$(pkg-config --cflags --libs downpour-fcast) || fail "pkg-config"
    # shellcheck disable=SC2086
    cc -Wall -Wextra -Werror -o "$dir/example" "$3" $flags -lpthread || fail "the example does not build"
    LD_LIBRARY_PATH=$(dirname "$(find "$dir/root" -name 'libdownpour-fcast.so' | head -n 1)")
    export LD_LIBRARY_PATH
    example=$dir/example
    # It exports only its own names.
    names=$(nm -D --defined-only "$LD_LIBRARY_PATH/libdownpour-fcast.so" | awk '{ print $3 }' | sed 's/@.*//')
    [ -n "$names" ] || fail "no names"
    others=$(echo "$names" | grep -v -e '^fcast_[tr]x_' -e '^DOWNPOUR_FCAST')
    [ -z "$others" ] || fail "the library has other names: $others"
else
    example=$1
fi

head -c 700000 /dev/urandom >"$dir/one"
head -c 100001 /dev/urandom >"$dir/two"
address=239.192.$(($$ % 250 + 1)).80 port=$((20000 + $$ % 20000))

# start_receiver FOLDER
start_receiver() {
    mkdir -p "$dir/$1"
    timeout 60 "$example" recv $address $port 127.0.0.1 "$dir/$1" >"$dir/$1.out" 2>"$dir/$1.err" &
    receiver=$! pids="$pids $!" tries=0
    while ! grep -q ready "$dir/$1.out" 2>/dev/null && [ $tries -lt 200 ]; do sleep 0.05; tries=$((tries + 1)); done
    grep -q ready "$dir/$1.out" || fail "the receiver does not start"
}

# 50 % more than the file, then it ends without being stopped.
start_receiver a
timeout 60 "$example" send $address $port 127.0.0.1 "$dir/one" 0.5 >"$dir/send.out" 2>"$dir/send.err" || fail "send"
wait $receiver || fail "receive"
cmp "$dir/one" "$dir/a/one" || fail "the file differs"
grep -q '^start id=1 bytes=7' "$dir/a.out" || fail "no start"
grep -q '^complete id=1 bytes=700000 name=one$' "$dir/a.out" || fail "no end"
grep -q ' started=1 received_files=1 done=1 ' "$dir/a.out" || fail "counts of the receiver"
# 700,000 bytes are 488 symbols of 1436, half as many repair symbols, and some descriptors.
sent=$(sed -n 's/^sent=\([0-9]*\) rounds=1 complete=1 errors=0$/\1/p' "$dir/send.out")
{ [ "${sent:-0}" -ge 732 ] && [ "$sent" -le 780 ]; } || fail "sent '$sent', valid: 732 to 780"

# Sent until stopped; two sessions of one sender.
start_receiver b
mkfifo "$dir/keys"
timeout 60 "$example" send $address $port 127.0.0.1 "$dir/one,$dir/two" <"$dir/keys" >"$dir/send.out" 2>"$dir/send.err" &
sender=$! pids="$pids $!"
exec 3>"$dir/keys"
wait $receiver || fail "receive from a carousel without end"
cmp "$dir/one" "$dir/b/one" || fail "the file differs"
start_receiver c # joins late, in the middle of the carousel
echo >&3
wait $receiver # complete, or the sender ended first
start_receiver d
wait $receiver || fail "the second session"
cmp "$dir/two" "$dir/d/two" || fail "the second file differs"
echo >&3
wait $sender || fail "the sender's end"
[ "$(grep -c '^sent=.* complete=0 errors=0$' "$dir/send.out")" = 2 ] || fail "two sessions"

# Errors say why.
refused() {
    wanted=$1
    shift
    if timeout 10 "$example" "$@" >"$dir/no.out" 2>"$dir/no.err" </dev/null; then fail "accepted: $*"; fi
    grep -qF "$wanted" "$dir/no.err" || fail "no '$wanted' in the message of: $*"
}
refused "'10.0.0.1' port 1711; valid: a multicast group" send 10.0.0.1 1711 127.0.0.1 "$dir/one" 0.5
refused "interface 'eth'; valid:" send $address $port eth "$dir/one" 0.5
refused "no interface has the address 192.0.2.1" send $address $port 192.0.2.1 "$dir/one" 0.5
refused "'$dir/none': No such file" send $address $port 127.0.0.1 "$dir/none" 0.5
refused "'$dir': not a regular file" send $address $port 127.0.0.1 "$dir" 0.5
refused "redundancy 8; valid: up to 7" send $address $port 127.0.0.1 "$dir/one" 8
refused "directory '$dir/none': No such file" recv $address $port 127.0.0.1 "$dir/none"
echo "passed"
