#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every libFuzzer target of a build directory for some seconds each.
#   tests/fuzz.sh BUILD SECONDS_EACH
set -euo pipefail
build=$1 seconds=$2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mapfile -t targets < <(find "$build" -type f -name 'fuzz_*' -perm -u+x | sort)
[ ${#targets[@]} -gt 0 ] || { echo "fuzz: found no fuzz_* program in $build; valid: a build with -Dfuzz=true" >&2; exit 2; }
failed=0 number=0
for target in "${targets[@]}"; do
  number=$((number + 1))
  name=$(basename "$target")
  seeds=$(find "$root" -path "*/fuzz/corpus/${name#fuzz_}" -type d | head -n 1)
  grown="$build/corpus/$name"
  mkdir -p "$grown"
  left=$(( (${#targets[@]} - number + 1) * seconds ))
  echo "[$number/${#targets[@]}] $name for $seconds s (about $((left / 60)):$(printf %02d $((left % 60))) left)"
  if ! "$target" -max_total_time="$seconds" -max_len=4096 -artifact_prefix="$build/$name-" -print_final_stats=1 "$grown" ${seeds:+"$seeds"} >"$build/$name.log" 2>&1; then
    failed=$((failed + 1)); tail -n 25 "$build/$name.log"
  fi
  grep -E 'stat::number_of_executed_units|stat::average_exec_per_sec' "$build/$name.log" || true
done
echo "$((${#targets[@]} - failed)) passed, $failed failed"
[ "$failed" = 0 ]
