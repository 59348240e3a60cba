#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests the Debian packages in a fresh Debian 12. They install; `downpour doctor` runs; ldmd, with its
# unit's command line and user, relays a product; a program built with the development package sends
# a file to fcast-recv; a purge leaves nothing.
#   tests/deb.sh [DIRECTORY-WITH-DEBS]    (root; needs debootstrap; some minutes)
# Without a directory it builds the packages first. MIRROR= names another mirror, ROOTFS= a directory
# that debootstrap has filled (this script copies it).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ "$(id -u)" = 0 ] || { echo "tests/deb.sh: found user id $(id -u); valid: root" >&2; exit 2; }
work=$(mktemp -d)
root=$work/root
end() {
  for at in dev proc; do mountpoint -q "$root/$at" && umount -l "$root/$at"; done
  rm -rf "$work"
}
trap end EXIT
debs=${1:-}
{ { [ -n "${ROOTFS:-}" ] || command -v debootstrap; } && { [ -n "$debs" ] || command -v dh; }; } >/dev/null ||
  { echo "tests/deb.sh: SKIPPED: found no debootstrap or dh; valid: after ansible/setup --tags deb"; exit 77; }
if [ -z "$debs" ]; then
  debs=$work/debs
  "$here/tools/deb" --output "$debs"
fi
say() { echo "deb: $*"; }

if [ -n "${ROOTFS:-}" ]; then cp -a "$ROOTFS" "$root"; else
  debootstrap --variant=minbase bookworm "$root" "${MIRROR:-http://deb.debian.org/debian}" >"$work/debootstrap.log"
fi
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --make-rslave "$root/dev"
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod +x "$root/usr/sbin/policy-rc.d"
mkdir "$root/debs"
cp "$debs"/*.deb "$root/debs/"
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root DEBIAN_FRONTEND=noninteractive "$@"; }
files() { (cd "$root" && find etc var/lib usr opt srv home -xdev \( -path var/lib/apt -o -path var/lib/dpkg -o -path var/lib/systemd \) -prune -o -print | sort); }

inside apt-get -qq update
# Install their dependencies first: the purge must return to that state.
depends=$(for deb in "$root"/debs/*.deb; do dpkg-deb -f "$deb" Depends | tr ',' '\n'; done |
  sed 's/|.*//; s/(.*//; s/ //g' | grep -v downpour | sort -u)
# shellcheck disable=SC2086
inside apt-get -qq -y --no-install-recommends install $depends >"$work/depends.log" 2>&1 || { tail -5 "$work/depends.log"; exit 1; }
files >"$work/before"
inside cut -d: -f1 /etc/passwd | sort >"$work/users-before"

say "install"
inside sh -c 'dpkg -i /debs/*.deb' >"$work/install.log" 2>&1 || { tail -20 "$work/install.log"; exit 1; }
inside dpkg -l '*downpour*' | tail -4
inside downpour --version
inside ldmd --version
inside sh -c 'cd /tmp && downpour run lossy --dry-run --clock virtual' | head -3
say "doctor"
inside sh -c 'cd /tmp && downpour doctor' | tee "$work/doctor" || true
grep -q . "$work/doctor"
inside getent passwd ldm

say "ldmd by its unit's command line"
unit=$root/lib/systemd/system/downpour-ldmd.service
grep -q '^User=ldm$' "$unit"
grep -q 'LDM_QUEUE=/var/lib/downpour/queue' "$unit"
inside install -d -o ldm -g ldm /run/downpour-ldm
printf 'ALLOW ANY ^(localhost|127\\.0\\.0\\.1)$\n' >"$root/etc/downpour/ldmd.conf"
printf 'LDM_QUEUE_SIZE=8m\nLDM_PORT=13880\nLDM_IP=127.0.0.1\n' >"$root/etc/downpour/ldm.env"
as_ldm() { inside setpriv --reuid=ldm --regid=ldm --clear-groups "$@"; }
as_ldm ldmctl mkqueue
command=$(sed -n 's/^ExecStart=//p' "$unit")
settings=$(sed -n 's/^Environment=//p' "$unit" | tr ' ' '\n')
# First the unit's Environment=, then its EnvironmentFile=.
# shellcheck disable=SC2016 # expanded where it runs
unshare --net chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 sh -ec '
  ip link set lo up
  set -a
  eval "$1"
  . /etc/downpour/ldm.env
  set +a
  cd /var/lib/downpour
  eval "setpriv --reuid=ldm --regid=ldm --clear-groups $2 &"
  daemon=$!
  trap "kill $daemon" EXIT
  for try in 1 2 3 4 5 6 7 8 9 10; do ldmping -h 127.0.0.1 -P 13880 >/tmp/ping 2>&1 && break; sleep 0.5; done || true
  cat /tmp/ping
  grep -q RESPONDING /tmp/ping
  ps -o user=,args= -p $daemon
  [ "$(ps -o user= -p $daemon)" = ldm ]
  echo content >/tmp/product
  setpriv --reuid=ldm --regid=ldm --clear-groups pqinsert -q /var/lib/downpour/queue -f EXP /tmp/product
  setpriv --reuid=ldm --regid=ldm --clear-groups pqcat -q /var/lib/downpour/queue --list
  trap - EXIT
  kill $daemon
  wait $daemon || true
  rm -f /tmp/ping /tmp/product
' sh "$settings" "$command"

say "a program with libdownpour-fcast-dev"
inside dpkg -L libdownpour-fcast-dev | grep -E '\.(h|pc|so|3\.gz)$'
flags=$(PKG_CONFIG_LIBDIR=$(dirname "$root"/usr/lib/*/pkgconfig/downpour-fcast.pc) PKG_CONFIG_SYSROOT_DIR=$root pkg-config --cflags --libs downpour-fcast)
# Only the root has the library's own libraries.
# shellcheck disable=SC2086
cc -Wall -Werror -o "$root/example" "$here/fcast/tests/control_example.c" $flags -lpthread -Wl,--allow-shlib-undefined
# shellcheck disable=SC2016 # expanded where it runs
unshare --net chroot "$root" env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin LC_ALL=C.UTF-8 sh -ec '
  ip link set lo up multicast on
  mkdir /inbox
  head -c 700000 /dev/urandom >/content
  timeout 60 fcast-recv --group 239.192.9.9:9900 --interface 127.0.0.1 /inbox &
  sleep 1
  timeout 60 /example send 239.192.9.9 9900 127.0.0.1 /content 0.5
  wait $!
  cmp /content /inbox/content
'
rm -r "$root/example" "$root/content" "$root/inbox"

say "purge"
rm -f "$root/etc/downpour/ldmd.conf" "$root/etc/downpour/ldm.env"
inside apt-get -qq -y purge downpour downpour-ldm libdownpour-fcast0 libdownpour-fcast-dev >"$work/purge.log" 2>&1 || { tail -20 "$work/purge.log"; exit 1; }
rm -rf "$root/run/downpour-ldm"
files >"$work/after"
inside cut -d: -f1 /etc/passwd | sort >"$work/users-after"
diff "$work/users-before" "$work/users-after" || { echo "deb: the user still exists" >&2; exit 1; }
diff "$work/before" "$work/after" || { echo "deb: the purge left files, or removed others" >&2; exit 1; }
! inside dpkg -l '*downpour*' 2>/dev/null | grep -E '^(ii|rc)' || exit 1
say "the system is as before"
