#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# systemd accepts the unit without a warning, and it is hardened: unit.sh SYSTEMD_ANALYZE UNIT LDMD
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
sed "s,^ExecStart=[^ ]*,ExecStart=$(realpath "$3")," "$2" >"$dir/downpour-ldmd.service"
said=$("$1" verify --man=no "$dir/downpour-ldmd.service" 2>&1 | grep -v 'Failed to \(connect\|set up\)' || true)
if printf '%s' "$said" | grep -q downpour-ldmd; then
  printf '%s\n' "$said"
  exit 1
fi
# 0 is the best, 10 the worst exposure.
if exposure=$("$1" security --offline=yes --threshold=25 "$dir/downpour-ldmd.service" 2>&1); then
  printf '%s\n' "$exposure" | tail -n 1
else
  printf '%s\n' "$exposure" | tail -n 40
  exit 1
fi
