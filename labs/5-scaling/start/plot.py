"""Draw bandwidth.png from bandwidth.csv. Needs matplotlib, which the checkout's .venv has. The
picture says which table it was drawn from, so that an old one is noticed."""

import csv
import hashlib
import os
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

os.chdir(Path(__file__).parent)  # the work directory
with Path("bandwidth.csv").open() as file:
    rows = list(csv.DictReader(file))
for protocol in ("ldm6", "ldm7"):
    mine = [row for row in rows if row["protocol"] == protocol]
    points = sorted((int(row["receivers"]), float(row["mbit_per_s"])) for row in mine)
    plt.plot([x for x, _ in points], [y for _, y in points], marker="o", label=protocol)
plt.xlabel("receivers")
plt.ylabel("sender's bandwidth, Mbit/s")
plt.legend()
digest = hashlib.sha256(Path("bandwidth.csv").read_bytes()).hexdigest()
plt.savefig("bandwidth.png", dpi=120, metadata={"table-sha256": digest})
print("bandwidth.png")
