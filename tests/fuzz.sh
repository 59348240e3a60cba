#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs each libFuzzer target of a build directory for a few seconds, one per processor at a time
# (JOBS=N: N).
#   tests/fuzz.sh BUILD SECONDS_EACH [TARGET]...
set -euo pipefail
build=$1 seconds=$2
shift 2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mapfile -t targets < <(find "$build" -type f -name 'fuzz_*' -perm -u+x | sort)
if [ $# -gt 0 ]; then
  wanted=()
  for name in "$@"; do
    found=$(printf '%s\n' "${targets[@]}" | grep "/$name\$") ||
      { echo "fuzz: found '$name'; valid: $(printf '%s\n' "${targets[@]##*/}" | paste -sd' ')" >&2; exit 2; }
    wanted+=("$found")
  done
  targets=("${wanted[@]}")
fi
[ ${#targets[@]} -gt 0 ] || { echo "fuzz: found no fuzz_* program in $build; valid: a build with -Dfuzz=true" >&2; exit 2; }
jobs=${JOBS:-$(nproc)}
rounds=$(( (${#targets[@]} + jobs - 1) / jobs ))
echo "fuzz: ${#targets[@]} targets, $jobs at once, $seconds s each: about $((rounds * seconds / 60)):$(printf %02d $((rounds * seconds % 60)))"

# Run one target; print a line with its result. If this run is killed, its fuzzer ends.
fuzz_one() {
  local target=$1 name seeds grown status=0
  name=$(basename "$target")
  seeds=$(find "$root" -path "*/fuzz/corpus/${name#fuzz_}" -type d -not -path "*/build*" | head -n 1)
  grown="$build/corpus/$name"
  mkdir -p "$grown"
  "$target" -max_total_time="$seconds" -max_len=4096 -artifact_prefix="$build/$name-" -print_final_stats=1 \
    "$grown" ${seeds:+"$seeds"} >"$build/$name.log" 2>&1 || status=$?
  local runs
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$name.log")
  if [ "$status" = 0 ]; then
    echo "passed  $name: $seconds s, ${runs:-?} runs"
  else
    echo "FAILED  $name: exit status $status (all of it: $build/$name.log)"
    tail -n 25 "$build/$name.log"
  fi
  return "$status"
}
export -f fuzz_one
export build seconds root
printf '%s\0' "${targets[@]}" | xargs -0 -P "$jobs" -I{} bash -c 'fuzz_one {}' | tee "$build/fuzz.txt" || true
failed=$(grep -c '^FAILED' "$build/fuzz.txt" || true)
passed=$(grep -c '^passed' "$build/fuzz.txt" || true)
echo "$passed passed, $failed failed"
[ "$passed" = ${#targets[@]} ]
