#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the playbooks on a second host: an OpenSSH server on the loopback in its own mount namespace,
# with its own home and /opt. They copy this checkout there, install and build it, run an experiment,
# fetch its run and parse it here; a second time they change nothing.
#   tests/second-host.sh [EXPERIMENT [ARGUMENTS]]     (default: lossy, 5 s, 2 receivers)
# Exit codes: 0 passed; 1 failed; 77 no OpenSSH server: NOTHING was tested.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
experiment=${1:-lossy}
arguments=${2:---receivers 2 --duration 5}
skip() { echo "second-host: SKIPPED: $*: NOTHING was tested"; exit 77; }
[ "$(id -u)" = 0 ] || skip "no root, which starts a server"
sshd=${DOWNPOUR_SSHD:-$(PATH="$PATH:/usr/sbin" command -v sshd || true)}
[ -x "$sshd" ] || skip "found no sshd (apt install openssh-server, or DOWNPOUR_SSHD=FILE)"
work=$(mktemp -d /var/tmp/downpour-second.XXXXXX)
port=${DOWNPOUR_SSH_PORT:-22290}
server=
cleanup() {
  code=$?
  trap - EXIT INT TERM
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  rm -rf "$work" "$root/runs/second-host"
  exit $code
}
trap cleanup EXIT INT TERM

mkdir -p "$work/opt/home" "$work/root" /run/sshd
ssh-keygen -q -t ed25519 -N '' -f "$work/host"
ssh-keygen -q -t ed25519 -N '' -f "$work/user"
# Its root has /opt/home, and the server's user exists even without the package.
sed 's#^root:\([^:]*:[^:]*:[^:]*:[^:]*\):[^:]*:#root:\1:/opt/home:#' /etc/passwd > "$work/passwd"
grep -q ^sshd: "$work/passwd" || echo 'sshd:x:74:65534::/run/sshd:/usr/sbin/nologin' >> "$work/passwd"
certificates=$(env | grep -E '^(PIP_|SSL_CERT|REQUESTS_CA|CURL_CA)' | sed 's/=\(.*\)/="\1"/' | tr '\n' ' ' || true)
cat > "$work/sshd_config" <<CONFIG
Port $port
ListenAddress 127.0.0.1
HostKey $work/host
AuthorizedKeysFile $work/user.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
StrictModes no
PidFile none
Subsystem sftp internal-sftp
SetEnv HOME=/opt/home DOWNPOUR_OWNER=second-host $certificates
CONFIG
cat > "$work/machines.yml" <<MACHINES
all:
  vars: { ansible_python_interpreter: /usr/bin/python3 }
  hosts:
    second-host:
      ansible_host: 127.0.0.1
      ansible_port: $port
      ansible_user: root
      ansible_ssh_private_key_file: $work/user
      ansible_ssh_common_args: -o UserKnownHostsFile=/dev/null -o StrictHostKeyChecking=no
      downpour_root: /opt/downpour
      only: ["protocol=ldm7"]
MACHINES
# shellcheck disable=SC2016 # the inner shell expands them
unshare --mount bash -c '
  mount --bind "$0/opt" /opt && mount --bind "$0/root" /root && mount --bind "$0/passwd" /etc/passwd &&
  exec "$1" -D -e -f "$0/sshd_config"' "$work" "$sshd" 2>"$work/sshd.log" & server=$!
for _ in $(seq 50); do grep -q "Server listening" "$work/sshd.log" && break; sleep 0.1; done
grep -q "Server listening" "$work/sshd.log" || skip "sshd does not start: $(tail -n 1 "$work/sshd.log")"

play() { "$root/ansible/play" "$1" -i "$work/machines.yml" -e "experiment=$experiment" -e "arguments='$arguments'" "${@:2}"; }
echo "second-host: the workflow"
play workflow > "$work/first.log" || { tail -n 40 "$work/first.log" >&2; exit 1; }
grep -A1 RECAP "$work/first.log"
report=$(ls "$root/runs/second-host/$experiment"/*/report/report.txt)
[ -s "$report" ] || { echo "second-host: FAILED: found no report here" >&2; exit 1; }
head -n 12 "$report"
echo "second-host: the same again"
play workflow > "$work/again.log" || { tail -n 40 "$work/again.log" >&2; exit 1; }
grep -A1 RECAP "$work/again.log"
grep -q "changed=0 " "$work/again.log" || { grep -B1 '^changed' "$work/again.log" >&2; echo "second-host: FAILED: the second time changed something" >&2; exit 1; }
echo "second-host: run, fetched and parsed; the second time changed nothing"
