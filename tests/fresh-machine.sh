#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs commands in a clean clone on a fresh Debian 12 that has only git and make: an overlay over a
# debootstrap. Default: make experiment-lossy, then make test. Needs root and debootstrap.
#   tests/fresh-machine.sh [COMMAND]
# It copies only package sources, certificates and pip settings from this machine.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
command=${1:-make experiment-lossy && make test}
work=${DOWNPOUR_FRESH_DIR:-/var/tmp/downpour-fresh}
[ "$(id -u)" = 0 ] || { echo "fresh-machine: found user id $(id -u); valid: root, e.g. with sudo" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "fresh-machine: found no debootstrap; valid: apt-get install debootstrap" >&2; exit 2; }
umask 022
mkdir -p "$work"
if [ ! -d "$work/base" ]; then
  mirror=$(awk '/^URIs:/ {print $2; exit} /^deb / {print $2; exit}' /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null || true)
  echo "fresh-machine: debootstrap (about 2 minutes)"
  rm -rf "$work/base.tmp"
  debootstrap --variant=minbase --include=git,make,ca-certificates bookworm "$work/base.tmp" "${mirror:-http://deb.debian.org/debian}" >"$work/debootstrap.log" 2>&1 || { tail -n 5 "$work/debootstrap.log" >&2; exit 1; }
  mv "$work/base.tmp" "$work/base"
fi
machine="$work/machine.$$"
mkdir -p "$machine"/{upper,work,root}
# Separate mounts and processes: none outlives this script, and its `downpour down` sees only its own networks.
export machine work root command
# shellcheck disable=SC2016 # the inner shell expands them
unshare --mount --propagation private --pid --fork --kill-child bash -euo pipefail -c '
  new=$machine/root
  mount -t overlay overlay -o "lowerdir=$work/base,upperdir=$machine/upper,workdir=$machine/work" "$new"
  rm -f "$new/etc/apt/sources.list"
  cp -a /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/apt.conf.d /etc/apt/trusted.gpg.d "$new/etc/apt/" 2>/dev/null || true
  rm -f "$new"/etc/apt/apt.conf.d/*docker*
  cp -a /etc/ssl/certs/. "$new/etc/ssl/certs/"
  cp /etc/resolv.conf /etc/hosts "$new/etc/"
  for f in /etc/pip.conf ~/.pip/pip.conf ~/.config/pip/pip.conf; do [ ! -f "$f" ] || install -D "$f" "$new$f"; done
  mount -t proc proc "$new/proc"; mount --rbind /sys "$new/sys"; mount --rbind /dev "$new/dev"
  git clone -q "$root" "$new/downpour"
  # pivot_root, not chroot: processes that enter a namespace of a host find the same root.
  mkdir -p "$new/mnt/old"
  cd "$new"
  pivot_root . mnt/old
  cd /downpour
  umount -l /mnt/old
  exec /usr/bin/env -i HOME=/root LANG=C.UTF-8 TERM="${TERM:-dumb}" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    bash -c "$command"
' && code=0 || code=$?
rm -rf "$machine"
exit "$code"
