"""The instructor's `bandwidth.py`: complete, as a student might have written it."""

import csv
import json
import os
from pathlib import Path

DURATION_S = 10
os.chdir(Path(__file__).parent)


def sent_bytes(sar_log: Path, interface: str) -> float:
    total = 0.0
    for line in sar_log.read_text().splitlines():
        words = line.split()
        if len(words) > 5 and words[1] == interface and words[0] != "Average:":
            total += float(words[5]) * 1024
    return total


def main() -> None:
    rows = {}
    for cell in sorted(Path("runs/scaling").glob("[0-9]*/cells/*/cell.json")):
        described = json.loads(cell.read_text())
        log, interface = cell.parent / "logs/sar.log", described["nic1"]
        megabits = sent_bytes(log, interface) * 8 / 1e6
        rows[described["protocol"], described["m"]] = megabits / DURATION_S
    with Path("bandwidth.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["protocol", "receivers", "mbit_per_s"])
        for (protocol, receivers), value in sorted(rows.items()):
            table.writerow([protocol, receivers, f"{value:.3f}"])
            print(f"{protocol} with {receivers} receivers: {value:.3f} Mbit/s")


main()
