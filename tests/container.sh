#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs docker-compose.yml for real: starts an engine in its own network namespace, makes a base image
# with debootstrap, builds the image from it, runs its profiles, and removes everything.
#   tests/container.sh [native|virtual|network|labs|ldm|all]        (default all)
# Exit codes: 0 passed; 1 failed; 2 bad usage; 77 no engine can start here: NOTHING was tested.
# DOWNPOUR_CONTAINER_DIR keeps image and base for the next time (default: a directory that it removes).
# COMPOSE="docker compose" uses that instead of docker-compose.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
what=${1:-all}
case "$what" in native|virtual|network|labs|ldm|all) ;; *) echo "container: found '$what'; valid: native, virtual, network, labs, ldm, all" >&2; exit 2 ;; esac
wanted() { [ "$what" = all ] || [ "$what" = "$1" ]; }
skip() { echo "container: SKIPPED: $*: NOTHING of the container was tested"; exit 77; }
[ "$(id -u)" = 0 ] || skip "no root, which starts an engine"
read -ra compose <<<"${COMPOSE:-docker-compose}"
for program in dockerd docker "${compose[0]}" debootstrap slirp4netns; do
  command -v "$program" >/dev/null || skip "found no $program (apt install docker.io docker-compose debootstrap slirp4netns)"
done

keep=${DOWNPOUR_CONTAINER_DIR:-}
work=${keep:-$(mktemp -d /var/tmp/downpour-container.XXXXXX)}
mkdir -p "$work"
work=$(realpath "$work")
name=dpc-$$
export DOCKER_HOST=unix://$work/docker.sock DOCKER_BUILDKIT=0 COMPOSE_PROJECT_NAME=downpourtest
checkout=$work/checkout
pids=()
# The engine mounts its containers' file systems and network namespaces below its directory; some outlive it.
unmount_below() { # directory
  local point
  awk -v below="$1/" 'index($5, below) == 1 {print length($5), $5}' /proc/self/mountinfo | sort -rn | cut -d' ' -f2- |
    while read -r point; do umount -l "$(printf '%b' "$point")" 2>/dev/null || true; done
}
remove() { # directory
  unmount_below "$1"
  rm -rf "$1" 2>/dev/null && return
  sleep 2 # a process of the engine was still ending
  unmount_below "$1"
  rm -rf "$1" || echo "container: $1 could not be removed; it holds nothing that you need" >&2
}
all=("${compose[@]}" --profile virtual --profile network --profile domains --profile labs)
cleanup() {
  code=$?
  trap - EXIT INT TERM
  set +e
  [ ! -d "$checkout" ] || (cd "$checkout" && timeout 60 "${all[@]}" down --volumes >/dev/null 2>&1) || true
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  ip netns del "$name" 2>/dev/null || true
  if [ -n "$keep" ]; then unmount_below "$work"; remove "$checkout"; else remove "$work"; fi
  exit "$code"
}
trap cleanup EXIT INT TERM

failed() { # reason, the container whose output tells more
  echo "container: FAILED: $1" >&2
  [ -z "${2:-}" ] || docker logs "$2" 2>&1 | sed 's/^/  | /' >&2
  exit 1
}

# Print from a run's output: plan, verdict, table of metrics, problems, directory.
headlines() {
  awk '/ Fidelity /{on=1} /cells? .*(random order|order of the file)|^\*\*\*|^Results:|FAILED/ || on; /^ Clock /{on=0}'
}

ip netns add "$name"
ip -n "$name" link set lo up
inside=(nsenter "--net=/run/netns/$name" --)
"${inside[@]}" sleep infinity & pids+=($!)
slirp4netns --configure --mtu=65520 --disable-host-loopback "$!" tap0 >"$work/slirp.log" 2>&1 & pids+=($!)
"${inside[@]}" dockerd --data-root "$work/data" --exec-root "$work/exec" -p "$work/pid" -H "$DOCKER_HOST" >"$work/dockerd.log" 2>&1 & pids+=($!)
for _ in $(seq 60); do docker info >/dev/null 2>&1 && break; sleep 0.5; done
docker info >/dev/null 2>&1 || skip "dockerd does not start here: $(tail -n 1 "$work/dockerd.log")"
# Leftovers of an interrupted test, if the directory was kept.
docker container prune -f >/dev/null; docker volume prune -f >/dev/null

if [ -z "$(docker images -q downpour-base)" ]; then
  echo "container: base image by debootstrap (about 1 minute)"
  mirror=$(awk '/^URIs:/ {print $2; exit} /^deb / {print $2; exit}' /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null || true)
  rm -rf "$work/base"
  # Try once more if the archive did not answer.
  for try in 1 2; do
    debootstrap --variant=minbase --include=ca-certificates bookworm "$work/base" "${mirror:-http://deb.debian.org/debian}" >"$work/debootstrap.log" 2>&1 && break
    [ $try = 1 ] || { tail -n 5 "$work/debootstrap.log" >&2; exit 1; }
    rm -rf "$work/base"
  done
  # This machine's package sources, certificates and pip settings; no documentation, as in Debian's slim images.
  rm -f "$work/base/etc/apt/sources.list"
  cp -a /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/apt.conf.d /etc/apt/trusted.gpg.d "$work/base/etc/apt/" 2>/dev/null || true
  cp -a --remove-destination /etc/ssl/certs/. "$work/base/etc/ssl/certs/"
  for f in /etc/pip.conf ~/.pip/pip.conf ~/.config/pip/pip.conf; do [ ! -f "$f" ] || install -D "$f" "$work/base/etc/pip.conf"; done
  rm -rf "$work/base"/usr/share/{doc,man,info,locale}/* "$work/base"/var/cache/apt/* "$work/base"/var/lib/apt/lists/*
  tar -C "$work/base" -c . | docker import - downpour-base >/dev/null
  rm -rf "$work/base"
fi

rm -rf "$checkout"
git clone -q "$root" "$checkout"
cd "$checkout"
mkdir -p runs && chown 1000:1000 runs
export BASE=downpour-base BUILD_NETWORK=host
if wanted ldm; then
  echo "container: docker build -f Dockerfile.ldm"
  docker build -q --network host --build-arg BASE=downpour-base -f Dockerfile.ldm -t downpour-ldm . >"$work/ldm.log" 2>&1 || { tail -n 20 "$work/ldm.log" >&2; exit 1; }
  echo "container: LDM image of $(($(docker image inspect -f '{{.Size}}' downpour-ldm) / 1000000)) MB"
  mkdir -p "$work/ldm" && printf 'ALLOW ANY ^127\\.0\\.0\\.1$\n' >"$work/ldm/ldmd.conf" && chmod 755 "$work/ldm"
  server=$(docker run -d -e LDM_QUEUE_SIZE=20m -v "$work/ldm:/etc/downpour:ro" downpour-ldm)
  for _ in $(seq 60); do docker exec "$server" ldmping -i 0 127.0.0.1 && break; sleep 0.5; done
  docker exec "$server" sh -c 'echo Hello >/tmp/hello && pqinsert -q "$LDM_QUEUE" -f EXP -p "hello one" /tmp/hello && pqcat -q "$LDM_QUEUE" --list' | tee "$work/ldm/list"
  grep -q 'hello one' "$work/ldm/list" || failed "the product is not in the queue" "$server"
  echo "container: ldm: user '$(docker inspect -f '{{.Config.User}}' "$server")'"
  docker stop -t 20 "$server" >/dev/null
  [ "$(docker inspect -f '{{.State.ExitCode}}' "$server")" = 0 ] || failed "ldmd did not end on its own" "$server"
  docker rm -v "$server" >/dev/null
  [ "$what" = all ] || exit 0
fi

echo "container: building the image"
"${compose[@]}" build emulation >"$work/build.log" 2>&1 || { tail -n 20 "$work/build.log" >&2; exit 1; }
size=$(docker image inspect -f '{{.Size}}' downpour)
base=$(docker image inspect -f '{{.Size}}' downpour-base)
echo "container: image of $((size / 1000000)) MB, of which $((base / 1000000)) MB are the base"
[ "$size" -lt 600000000 ] || failed "valid: below 600 MB"

if wanted native; then
  echo "container: ${compose[*]} up"
  "${compose[@]}" up -d
  emulation=$("${compose[@]}" ps -aq emulation)
  # Restart only the controller, while the emulation replays.
  for _ in $(seq 600); do docker logs "$emulation" 2>&1 | grep -q "replaying: " && break; [ "$(docker inspect -f '{{.State.Running}}' "$emulation")" = true ] || break; sleep 0.5; done
  [ "$(docker inspect -f '{{.State.Running}}' "$emulation")" = true ] || failed "the emulation ended before it replayed, with $(docker wait "$emulation")" "$emulation"
  "${compose[@]}" restart -t 10 controller
  code=$(docker wait "$emulation")
  docker logs "$emulation" 2>&1 | headlines
  echo "container: the emulation ended with $code"
  "${compose[@]}" logs --no-color controller | tail -n 12
  [ "$code" = 0 ] || [ "$code" = 3 ] || failed "the emulation ended with $code" "$emulation"
  # It ended and started again while the cell needed it.
  "${compose[@]}" logs --no-color controller | sed 's/.*: //' | paste -sd , | grep -q 'starting,waiting for networks,starting,' || failed "the controller was not restarted for the cell that replayed"
  "${compose[@]}" exec -T report .venv/bin/python -c "
import urllib.request
page = urllib.request.urlopen('http://127.0.0.1:8080/lossy/latest/report/index.html').read().decode()
assert 'LDM7' in page and '</html>' in page, page[:200]
print(f'container: the report service has the report: {len(page)} bytes')"
  for service in emulation controller report; do
    id=$("${compose[@]}" ps -aq $service)
    echo "container: $service: user '$(docker inspect -f '{{.Config.User}}' "$id")', capabilities $(docker inspect -f '{{.HostConfig.CapAdd}}' "$id"), health $(docker inspect -f '{{if .State.Health}}{{.State.Health.Status}}{{else}}none{{end}}' "$id")"
  done
  echo "container: EXPERIMENT=losy ${compose[*]} up --exit-code-from emulation"
  code=0; EXPERIMENT=losy "${compose[@]}" up --no-color --exit-code-from emulation >"$work/losy.log" 2>&1 || code=$?
  grep "found .*losy" "$work/losy.log" || true
  [ "$code" = 2 ] || { cat "$work/losy.log"; failed "found exit $code for bad input; valid: 2"; }
fi
if wanted virtual; then
  echo "container: ${compose[*]} --profile virtual up --exit-code-from virtual virtual"
  code=0; "${compose[@]}" --profile virtual up --no-color --exit-code-from virtual virtual >"$work/virtual.log" 2>&1 || code=$?
  sed 's/^[^|]*| //' "$work/virtual.log" | headlines
  id=$("${compose[@]}" --profile virtual ps -aq virtual)
  echo "container: virtual: user '$(docker inspect -f '{{.Config.User}}' "$id")', capabilities added $(docker inspect -f '{{.HostConfig.CapAdd}}' "$id") dropped $(docker inspect -f '{{.HostConfig.CapDrop}}' "$id")"
  [ "$code" = 0 ] || failed "virtual ended with $code" "$id"
fi
if wanted network; then
  echo "container: ${compose[*]} --profile network up -d network"
  "${all[@]}" up -d network
  wait_up() {
    network=$("${all[@]}" ps -aq network)
    for _ in $(seq 120); do [ "$(docker inspect -f '{{.State.Health.Status}}' "$network")" = starting ] || break; sleep 1; done
  }
  wait_up
  "${all[@]}" exec -T network downpour status || failed "the network is not up" "$network"
  "${all[@]}" exec -T network downpour shell uva -- ping -c 3 -i 0.2 10.20.0.2 # ucar
  "${all[@]}" stop network
  [ "$(docker inspect -f '{{.State.ExitCode}}' "$network")" = 0 ] || failed "the network did not end with 0" "$network"
  echo "container: twocores, with a controller's container for each domain"
  export CONTROLLERS='controller-{domain}' TOPOLOGY=twocores
  "${all[@]}" up -d network controller-internet2 controller-geant
  wait_up
  "${all[@]}" exec -T network downpour status || failed "the network is not up" "$network"
  for domain in internet2 geant; do
    "${all[@]}" logs --no-color "controller-$domain" | grep "controller-$domain.request.json: starting" || failed "the container of $domain runs no controller"
  done
  "${all[@]}" exec -T network downpour multicast 5Mbps || failed "no path over both domains" "$network"
  "${all[@]}" stop network
  unset CONTROLLERS TOPOLOGY
fi
if wanted labs; then
  echo "container: ${compose[*]} --profile labs up -d labs"
  mkdir -p downpour-labs && chown 1000:1000 downpour-labs
  "${all[@]}" up -d labs
  inside_labs() { "${all[@]}" exec -T labs downpour lab "$@"; }
  inside_labs start 1 --student ann | tail -n 3
  code=0; inside_labs check 1 >"$work/lab.log" 2>&1 || code=$?
  [ "$code" = 1 ] || { tail -n 5 "$work/lab.log"; failed "found exit $code of an unsolved lab; valid: 1"; }
  inside_labs run 1 -- ovs-ofctl -O OpenFlow13 dump-flows c1
  [ -s downpour-labs/1/result-1.json ] || failed "no result-1.json"
  inside_labs stop 1
fi
"${all[@]}" down --volumes
left=$(docker ps -aq; docker volume ls -q; docker network ls -q --filter type=custom)
[ -z "$left" ] || failed "left after down: $left"
echo "container: down left no container, network or volume; runs/ has $(find runs -name report.txt | wc -l) reports"
