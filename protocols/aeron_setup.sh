#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Gets Aeron (Apache-2.0) from Maven Central and compiles bench/peers/aeron into BUILD/bench/aeron.
# Without a JDK, or without the network, the bench says that Aeron is not measured; that is no error.
#   protocols/aeron_setup.sh BUILD
set -euo pipefail
if [ $# != 1 ]; then
  echo "aeron_setup.sh: found $# arguments; valid: BUILD (Meson's build directory)" >&2; exit 2
fi
version=1.51.0
sha256=9686a7c6bb3c464f7ac76ceaf7a0c67249e3499aa8142872a6d1b2f398bca458
here=$(cd "$(dirname "$0")/.." && pwd)
place="$1/bench/aeron"
program="$here/bench/peers/aeron/BenchAeron.java"
if [ "$place/BenchAeron.class" -nt "$program" ] && [ -f "$place/aeron-all.jar" ]; then exit 0; fi

left_out() { echo "bench: Aeron is left out: $*" >&2; exit 0; }
command -v javac >/dev/null || left_out "found no javac; valid: a JDK of version 17 or later"
found=$(javac -version 2>&1 | sed 's/^javac \([0-9]*\).*/\1/')
[ "$found" -ge 17 ] || left_out "found javac $found; valid: a JDK of version 17 or later"
mkdir -p "$place"
part="$place/aeron-all.jar.part"
if ! echo "$sha256  $place/aeron-all.jar" | sha256sum --check --status 2>/dev/null; then
  echo "  build: Aeron $version from Maven Central"
  curl --fail --silent --show-error --location --output "$part" \
    "https://repo1.maven.org/maven2/io/aeron/aeron-all/$version/aeron-all-$version.jar" ||
    left_out "Maven Central did not give aeron-all $version"
  echo "$sha256  $part" | sha256sum --check --status || left_out "$part has another SHA-256"
  mv "$part" "$place/aeron-all.jar"
fi
javac -cp "$place/aeron-all.jar" -d "$place" "$program" || left_out "BenchAeron.java did not compile"
