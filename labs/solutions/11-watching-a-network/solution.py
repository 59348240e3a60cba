# SPDX-License-Identifier: Apache-2.0
"""The instructor's answers to lab 11, from the minute records alone:

    .venv/bin/python labs/solutions/11-watching-a-network/solution.py WORK

prints the lines of answers.yaml for the student of that work directory, once the run exists.
"""

import sys
from collections import defaultdict
from pathlib import Path

from ruamel.yaml import YAML

NETWORKS = {"uva": "MARIA", "uwisc": "BOREAS", "umd": "MAX", "uutah": "UEN", "uwash": "PNWGP"}
Numbers = tuple[int, int, int, int]  # files, files by FMTP, bytes by FMTP, blocks again


def records(work: Path) -> dict[str, dict[str, Numbers]]:
    """Return the records by host and by the end of the minute; a record that occurs twice counts
    once."""
    (file,) = (work / "runs/case-a/latest").glob("cells/*/monitor/minutes.txt")
    found: dict[str, dict[str, Numbers]] = defaultdict(dict)
    for line in file.read_text().splitlines():
        words = line.split(",")
        if len(words) == 19:
            numbers = int(words[5]), int(words[6]), int(words[4]), int(words[17])
            own = found[words[1]]
            own[words[0]] = max(own.get(words[0], (0, 0, 0, 0)), numbers)
    return found


def metrics(numbers: list[Numbers]) -> tuple[float, float]:
    files, by_fmtp, size, blocks = (sum(column) for column in zip(*numbers, strict=True))
    return round(100 * by_fmtp / files, 2), round(100 * blocks * 1448 / size, 2)


def answers(work: Path) -> dict[str, object]:
    parameters = YAML(typ="safe").load((work / "parameters.yaml").read_text())
    every = records(work)
    own = [every[parameters["receiver"]][end] for end in sorted(every[parameters["receiver"]])]
    minute = own[parameters["minute"] - 1]
    blocks = {host: sum(n[3] for n in minutes.values()) for host, minutes in every.items()}
    counter = f"downpour_fmtp_receiver_retx_blocks_total[{parameters['window_s']}s]"
    names = ("files", "files_by_fmtp", "bytes_by_fmtp", "blocks_again")
    return {
        **dict(zip(names, minute, strict=True)),
        **dict(zip(("minute_ffdr_percent", "minute_mplr_percent"), metrics([minute]), strict=True)),
        **dict(zip(("run_ffdr_percent", "run_mplr_percent"), metrics(own), strict=True)),
        "lossy_network": NETWORKS[max(blocks, key=blocks.__getitem__)],
        "query": f"topk(1, sum by (host) (increase({counter})))",
    }


if __name__ == "__main__":
    for name, value in answers(Path(sys.argv[1])).items():
        print(f"{name}: {value!r}" if isinstance(value, str) else f"{name}: {value}")
