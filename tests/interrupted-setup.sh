#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Interrupts ansible/setup at five moments, one after another; then setup must complete and leave
# nothing broken. Only for a fresh machine, as it changes it:
#   tests/fresh-machine.sh tests/interrupted-setup.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ ! -e .venv ] || { echo "interrupted-setup: found .venv; valid: a fresh machine (tests/fresh-machine.sh)" >&2; exit 2; }
log=/var/log/interrupted-setup.log
# A separate process namespace: the script sees only its own processes, and none outlives it.
if [ $$ != 1 ]; then exec unshare --pid --fork --kill-child --mount-proc "$0"; fi

# Return whether a process's command line matches.
runs() { { cat /proc/[0-9]*/cmdline 2>/dev/null || true; } | tr "\0" " " | grep -E "$1" >/dev/null; }

# signal, to whom, what must run, seconds after that starts
interrupt() {
  local signal=$1 whom=$2 pattern=$3 after=$4 child
  # A script's background command ignores SIGINT.
  env --default-signal=INT setsid ansible/setup >>"$log" 2>&1 &
  child=$!
  until runs "$pattern"; do
    kill -0 $child 2>/dev/null || { tail "$log"; echo "interrupted-setup: it ended before '$pattern' ran" >&2; exit 1; }
    sleep 0.2
  done
  sleep "$after"
  kill -0 $child 2>/dev/null || { tail "$log"; echo "interrupted-setup: it ended before it was interrupted" >&2; exit 1; }
  case "$whom" in
    all) kill -"$signal" -1 ;;  # as when the power fails: dpkg has its own session
    group) kill -"$signal" -- -$child ;;
    *) kill -"$signal" $child ;;
  esac
  wait $child 2>/dev/null && { echo "interrupted-setup: found exit status 0 after the interruption" >&2; exit 1; }
  echo "SIG$signal to its $whom, $after s after '$pattern' began: $(dpkg --audit | grep -c '^ ') packages half installed, .venv: $(find .venv -name '*.dist-info' 2>/dev/null | wc -l) packages"
}
interrupt INT group 'apt-get .*install ansible-core' 2
interrupt KILL all 'dpkg .*(--unpack|--configure)' 3
interrupt KILL setup '/usr/bin/ansible-playbook' 4
interrupt KILL all 'dpkg .*(--unpack|--configure)' 10
interrupt INT group 'pip3? install .*requirements' 3
interrupt KILL all 'pip3? install .*requirements' 20

ansible/setup || { dpkg --audit; echo "interrupted-setup: the last setup failed" >&2; exit 1; }
fails=0
# shellcheck disable=SC2317 # called by check
nothing() { [ -z "$("$@")" ]; }
check() { local text=$1; shift; if "$@"; then echo "ok: $text"; else echo "FAILED: $text"; fails=1; fi; }
# shellcheck disable=SC2317
incomplete() { local one; for one in .venv/lib/python3*/site-packages/*.dist-info; do [ -f "$one/RECORD" ] || echo "$one"; done; find .venv -name '~*'; }
check "no package is half installed" nothing dpkg --audit
check "no Python package is half installed" nothing incomplete
check "Python packages fit each other" .venv/bin/python -m pip check
check "services of later packages start" test ! -e /usr/sbin/policy-rc.d
check "the programs are there" .venv/bin/python -c 'import mininet, os_ken, fastapi, matplotlib, mypy, pytest'
began=$SECONDS
ansible/setup
check "the next call has nothing to do" test $((SECONDS - began)) -lt 10
exit $fails
