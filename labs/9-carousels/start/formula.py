"""Fcast's formula: the mean listening time to a carousel, in files. Run it with

python3 ~/downpour-labs/9/formula.py FILE_BYTES LOSS_PERCENT
"""

import sys
from math import ceil, comb

SYMBOL_BYTES = 1024


def group_complete(k: int, x: int, loss: float) -> float:
    """Return pg(k + x): the probability that at least k of the k + x symbols of a group that were
    sent arrive."""
    return sum(comb(k + x, i) * loss**i * (1 - loss) ** (k + x - i) for i in range(x + 1))


def expected_files(k: int, groups: int, loss: float) -> float:
    """Return the mean of (k + x) / k, when the file is complete as soon as all its groups are."""
    raise NotImplementedError("yours to write, about six lines (step 2)")


def main() -> None:
    """Print the formula's value for each k of carousel.yaml."""
    file_bytes, loss = int(sys.argv[1]), float(sys.argv[2]) / 100
    symbols = ceil(file_bytes / SYMBOL_BYTES)
    for k in (8, 32, 128, 200):
        groups = ceil(symbols / k)
        # Groups differ by at most one symbol: with k = 200 they are smaller than that.
        print(f"k = {k:3}: {expected_files(ceil(symbols / groups), groups, loss):.3f} files")


main()
