#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets up from the bundle in a fresh Debian 12 without network: `ansible/setup --bundle`, then a plan
# in virtual time and the guest's kernel.
#   tests/offline.sh [BUNDLE]    (root; needs debootstrap; some minutes)
# Without BUNDLE it makes one first. MIRROR= and ROOTFS= are as in tests/deb.sh.
set -euo pipefail
{ [ -n "${ROOTFS:-}" ] || command -v debootstrap; } >/dev/null ||
  { echo "tests/offline.sh: SKIPPED: found no debootstrap; valid: after ansible/setup --tags deb"; exit 77; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ "$(id -u)" = 0 ] || { echo "tests/offline.sh: found user id $(id -u); valid: root" >&2; exit 2; }
work=$(mktemp -d)
root=$work/root
end() {
  for at in dev proc; do mountpoint -q "$root/$at" && umount -l "$root/$at"; done
  rm -rf "$work"
}
trap end EXIT
bundle=${1:-}
if [ -z "$bundle" ]; then
  bundle=$work/bundle
  "$here/tools/bundle" --output "$bundle"
fi
if [ -n "${ROOTFS:-}" ]; then cp -a "$ROOTFS" "$root"; else
  debootstrap --variant=minbase bookworm "$root" "${MIRROR:-http://deb.debian.org/debian}" >"$work/debootstrap.log"
fi
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --make-rslave "$root/dev"
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod +x "$root/usr/sbin/policy-rc.d"
# No index, no mirror, and only the bundle's lists of packages.
rm -rf "$root"/etc/apt/sources.list* "$root"/var/lib/apt/lists "$root"/var/cache/apt/archives/*.deb
"$here/tools/source" "$root/downpour"
cp -r "$bundle" "$root/bundle"
offline() { unshare --net chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root "$@"; }
offline /downpour/ansible/setup --bundle /bundle
echo "offline: again, which finds everything installed"
offline /downpour/ansible/setup --bundle /bundle

offline sh -c 'cd /downpour && .venv/bin/python -m downpour virtual status'
offline sh -c 'cd /downpour && .venv/bin/python -m downpour run lossy --dry-run --clock virtual' | head -3
offline sh -c 'cd /downpour && meson setup build --buildtype release >/dev/null && ninja -C build --quiet ldm7/pqcat && build/ldm7/pqcat --version'
echo "offline: everything came from the bundle"
