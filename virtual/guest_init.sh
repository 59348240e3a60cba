#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# First process of a guest. The root file system is the host's, read-only (hostfs); this script puts a
# temporary overlay over it with its own /proc, /sys, /dev, /tmp and /run, mounts what the launcher
# shares, runs the launcher's job and powers off. The kernel's command line sets DOWNPOUR_EXCHANGE, the
# host's directory with `mounts` (lines: ro|rw number target), `shares/NUMBER` (symbolic links to what
# is mounted, since mount options cannot contain commas), `job` (a shell script) and `mount` (a copy of
# the program: the host's own is setuid, and its owner may appear as nobody here. The overlay ignores
# such bits: everything runs as root).
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
fail() { echo "guest: $1" >/dev/console; }

exec 3<"$DOWNPOUR_EXCHANGE/mount"
"$DOWNPOUR_EXCHANGE/mount" -t tmpfs -o mode=755 tmpfs /tmp || fail "cannot mount a tmpfs on /tmp"
mount=/tmp/mount
cat <&3 >"$mount" && chmod 755 "$mount" && exec 3<&-
mkdir /tmp/upper /tmp/work /tmp/root
"$mount" -t overlay overlay -o nosuid,lowerdir=/,upperdir=/tmp/upper,workdir=/tmp/work /tmp/root || fail "cannot mount the overlay"
cd /tmp/root || fail "no overlay"
"$mount" -t proc proc proc
"$mount" -t sysfs sys sys
"$mount" -t devtmpfs dev dev
mkdir -p dev/pts dev/shm dev/net
"$mount" -t devpts devpts dev/pts
"$mount" -t tmpfs -o size=100%,mode=1777 tmpfs dev/shm
"$mount" -t tmpfs -o size=100%,mode=1777 tmpfs tmp
"$mount" -t tmpfs -o mode=755 tmpfs run
mkdir -p run/netns run/lock guest/exchange
"$mount" -t hostfs none guest/exchange -o "$DOWNPOUR_EXCHANGE" || fail "cannot mount $DOWNPOUR_EXCHANGE"
while read -r mode number target; do
  mkdir -p ".$target"
  "$mount" -t hostfs -o "$mode,$DOWNPOUR_EXCHANGE/shares/$number" none ".$target" || fail "cannot mount share $number on $target"
done < guest/exchange/mounts
mkdir -p tmp/old
pivot_root . tmp/old || fail "cannot change the root"
# The host's tree should have no other name here; the overlay keeps what it needs of it.
umount -l /tmp/old
rmdir /tmp/old
hostname guest
ip link set lo up
# All namespaces share this limit of neighbours (arp(7): 1024): too few for some hundred hosts.
for n in 1 2 3; do echo 65536 >/proc/sys/net/ipv4/neigh/default/gc_thresh$n; done
# Open vSwitch counts processors only once its clock is past 10 s; virtual time makes the wait short.
sleep 11
# The environment has only what the job sets: its length would move a program's stack.
env -i /bin/sh /guest/exchange/job >/guest/exchange/stdout 2>/guest/exchange/stderr </dev/null
echo $? >/guest/exchange/exit.part
mv /guest/exchange/exit.part /guest/exchange/exit
# reboot(RB_POWER_OFF): there is no init system that could do it.
exec /usr/bin/python3 -I -S -c 'import ctypes; ctypes.CDLL(None).reboot(0x4321FEDC)'
