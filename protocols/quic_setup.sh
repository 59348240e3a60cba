#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds bench/peers/quic, files by the Rust crate quinn (MIT or Apache-2.0), into BUILD/bench/quic.
# Without a compiler, or if it does not build, the bench says that QUIC is not measured; that is no
# error.
#   protocols/quic_setup.sh BUILD
set -euo pipefail
if [ $# != 1 ]; then
  echo "quic_setup.sh: found $# arguments; valid: BUILD (Meson's build directory)" >&2; exit 2
fi
needs=1.85  # of the crates in Cargo.lock
here=$(cd "$(dirname "$0")/.." && pwd)
source="$here/bench/peers/quic"
program="$1/bench/quic/release/bench-quic"
if [ "$program" -nt "$source/src/main.rs" ] && [ "$program" -nt "$source/Cargo.lock" ]; then exit 0; fi

left_out() { echo "bench: QUIC is left out: $*" >&2; exit 0; }
cargo=$(PATH="$PATH:${HOME:-/nonexistent}/.cargo/bin" command -v cargo) ||
  left_out "found no cargo; valid: cargo $needs or later (Debian: cargo-web; or rustup.rs)"
found=$("$cargo" --version | cut -d' ' -f2)
if [ "$(printf '%s\n' "$needs" "$found" | sort -V | head -1)" != "$needs" ]; then
  left_out "found cargo $found ($cargo); valid: $needs or later (Debian: cargo-web; or rustup.rs)"
fi
log="$1/bench-quic.log"
echo "  build: quinn with cargo $found (2 minutes and more)"
PATH="$(dirname "$cargo"):$PATH" "$cargo" build --release --locked \
  --manifest-path "$source/Cargo.toml" --target-dir "$1/bench/quic" >"$log" 2>&1 ||
  left_out "cargo could not build it: $(grep -m1 '^error' "$log" || tail -1 "$log") (log: $log)"
