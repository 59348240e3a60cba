#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the published sender and receiver of the Rust library flute (MIT) into BUILD/bench/flute,
# which no distribution packages. Without a compiler, or if it does not build, the bench says that
# FLUTE is not measured; that is no error.
#   protocols/flute_setup.sh BUILD
set -euo pipefail
if [ $# != 1 ]; then
  echo "flute_setup.sh: found $# arguments; valid: BUILD (Meson's build directory)" >&2; exit 2
fi
version=1.11.7
needs=1.88  # its rust-version
root="$1/bench/flute"
if [ -x "$root/bin/flute-sender" ] && [ -x "$root/bin/flute-receiver" ]; then exit 0; fi

left_out() { echo "bench: FLUTE is left out: $*" >&2; exit 0; }
cargo=$(PATH="$PATH:${HOME:-/nonexistent}/.cargo/bin" command -v cargo) ||
  left_out "found no cargo; valid: cargo $needs or later (Debian: cargo-web; or rustup.rs)"
found=$("$cargo" --version | cut -d' ' -f2)
if [ "$(printf '%s\n' "$needs" "$found" | sort -V | head -1)" != "$needs" ]; then
  left_out "found cargo $found ($cargo); valid: $needs or later (Debian: cargo-web; or rustup.rs)"
fi
log="$1/bench-flute.log"
echo "  build: flute $version with cargo $found (2 minutes and more)"
PATH="$(dirname "$cargo"):$PATH" "$cargo" install flute --version "$version" --locked --features cli --root "$root" >"$log" 2>&1 ||
  left_out "cargo could not build flute $version: $(grep -m1 '^error' "$log" || tail -1 "$log") (log: $log)"
