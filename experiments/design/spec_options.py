# SPDX-License-Identifier: Apache-2.0
"""Put the command line's values in the place of an experiment file's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from experiments.design.levels import LISTS
from experiments.design.overrides import Overrides
from experiments.design.parameters import (
    MAX_DURATION_S,
    MAX_RECEIVERS,
    MAX_REPEATS,
    MIN_DURATION_S,
    Factors,
)
from experiments.design.spec import ExperimentSpec, S, Spec, UsageError, option_error

WITH_QUEUES: Final = frozenset({"ldm6", "ldm7"})  # protocols whose sender has a product queue


def override(spec: S, given: Overrides) -> S:
    """Return `spec` with the command line's values. Raises UsageError, which names the options."""
    parameters = spec.parameters
    changes: dict[str, object] = {}
    errors: list[str] = []
    if (m := given.get("receivers")) is not None:
        if not isinstance(spec, ExperimentSpec):
            errors.append(option_error("--receivers", m, "without it: the topology gives them"))
        elif not 1 <= m <= MAX_RECEIVERS:
            errors.append(option_error("--receivers", m, f"1 to {MAX_RECEIVERS} receivers"))
        else:
            blocks = [block.model_copy(update={"receivers": (m,)}) for block in spec.factors]
            changes["factors"] = tuple(blocks)
            errors += _short_lists(spec, m)
    if (duration := given.get("duration_s")) is not None:
        if not MIN_DURATION_S <= duration <= MAX_DURATION_S:  # also refuses NaN
            valid = f"above 0 to {MAX_DURATION_S} seconds, at least {MIN_DURATION_S:g}"
            errors.append(option_error("--duration", duration, valid))
        changes["duration_s"] = float(duration)
    if (repeats := given.get("repeats")) is not None:
        if not 1 <= repeats <= MAX_REPEATS:
            errors.append(option_error("--repeats", repeats, f"1 to {MAX_REPEATS}"))
        changes["repeats"] = repeats
    if (seed := given.get("seed")) is not None:
        if not 0 <= seed < 2**31:
            errors.append(option_error("--seed", seed, "0 to 2147483647"))
        changes["base_seed"] = seed
    if (size := given.get("queue_bytes")) is not None:
        if size < 1_000_000:
            errors.append(option_error("--queue-bytes", size, "at least 1000000 bytes"))
        if not _any(spec, lambda block: bool(WITH_QUEUES & set(block.protocol))):
            valid = "without it: no cell has a product queue"
            errors.append(option_error("--queue-bytes", size, valid))
        parameters = parameters.model_copy(update={"q_snd": size})
        errors += _varied(spec, "q_snd", "--queue-bytes", size)
    if given.get("monitor"):
        parameters = parameters.model_copy(update={"monitor": "on"})
        errors += _varied(spec, "monitor", "--monitor", "factor monitor")
    changes["parameters"] = parameters
    if given.get("trace") is not None:
        if not _any(spec, lambda block: not (block.file_bytes or spec.parameters.file_bytes)):
            valid = "without it: every cell sends a file of file_bytes"
            errors.append(option_error("--trace", given["trace"], valid))
        changes["trace"] = str(given["trace"])
        errors += _varied(spec, "trace", "--trace", given["trace"])
    if errors:
        raise UsageError("\n".join(errors))
    return spec.model_copy(update=changes)


def _any(spec: Spec, uses: Callable[[Factors], bool]) -> bool:
    """Return whether any cells use what an option sets."""
    return not isinstance(spec, ExperimentSpec) or any(uses(block) for block in spec.factors)


def _varied(spec: Spec, name: str, option: str, found: object) -> list[str]:
    """Return the error if cells vary what the option would set."""
    blocks = spec.factors if isinstance(spec, ExperimentSpec) else ()
    if any(getattr(block, name) for block in blocks):
        return [option_error(option, found, f"without it: cells vary {name}")]
    return []


def _short_lists(spec: ExperimentSpec, m: int) -> list[str]:
    """Return the error if a list by receiver is shorter than m."""
    lists = {
        name: levels
        for block in spec.factors
        for name in LISTS
        for levels in (*(getattr(block, name) or ()), getattr(spec.parameters, name))
        if levels is not None and len(levels) < m
    }
    return [
        option_error("--receivers", m, f"at most {len(values)}, the length of {name}")
        for name, values in lists.items()
    ]
