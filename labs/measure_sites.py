# SPDX-License-Identifier: Apache-2.0
"""`verify` at a lab's prompt: ping and iperf3 to every host, requested values beside measured
ones."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from common.quantities import parse_rate_bps
from common.shell import NetworkError
from topologies.emulate.emulation_state import controllers_of
from topologies.model.network import Network
from topologies.verify import sites
from topologies.verify.nodes import nodes_of

RATE = "5Mbps"


def main(words: list[str], environment: Mapping[str, str]) -> int:
    """Measure every host over its own path, and print the table. Return 1 if something is not as
    requested."""
    parser = argparse.ArgumentParser(prog="verify", description=__doc__)
    parser.add_argument("--rate", default=RATE, help=f"of the path (default {RATE})")
    parser.add_argument("--seconds", type=int, default=3, help="of each iperf3 test (default 3)")
    options = parser.parse_args(words)
    try:
        rate_bps = parse_rate_bps(options.rate)
    except ValueError as error:
        print(f"verify: --rate: found '{options.rate}'; valid: {error}", file=sys.stderr)
        return 2
    if "REST" not in environment:
        print("verify: found no path service; valid: in lab 2", file=sys.stderr)
        return 2
    described = Path(environment["NETWORK"])
    network = Network.from_json(described.read_text(encoding="utf-8"))
    run_id = described.parent.name
    try:
        found = sites.verify(
            nodes_of(run_id),
            network,
            {domain: Path(socket) for domain, socket in controllers_of(run_id).items()},
            lambda text: print(f"  {text}", flush=True),
            rate_bps=rate_bps,
            seconds=options.seconds,
        )
    except NetworkError as error:
        print(f"verify: {error}", file=sys.stderr)
        return 2
    print(sites.table(found), end="")
    return 1 if any(one.problems() for one in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
