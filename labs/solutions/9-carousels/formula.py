"""The instructor's `formula.py`: complete, as a student might have written it."""

import sys
from math import ceil, comb

SYMBOL_BYTES = 1024


def group_complete(k: int, x: int, loss: float) -> float:
    return sum(comb(k + x, i) * loss**i * (1 - loss) ** (k + x - i) for i in range(x + 1))


def expected_files(k: int, groups: int, loss: float) -> float:
    mean, before, x = 0.0, 0.0, 0
    while before < 1 - 1e-9:
        whole = group_complete(k, x, loss) ** groups
        mean += (whole - before) * (k + x) / k
        before, x = whole, x + 1
    return mean


def main() -> None:
    file_bytes, loss = int(sys.argv[1]), float(sys.argv[2]) / 100
    symbols = ceil(file_bytes / SYMBOL_BYTES)
    for k in (8, 32, 128, 200):
        groups = ceil(symbols / k)
        print(f"k = {k:3}: {expected_files(ceil(symbols / groups), groups, loss):.3f} files")


main()
