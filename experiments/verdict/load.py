# SPDX-License-Identifier: Apache-2.0
"""Did the machine keep up: processors."""

from __future__ import annotations

from typing import Final

from experiments.verdict.checks import Check, Limits
from experiments.verdict.evidence import Evidence

BUSY_SHARE: Final = Limits(
    0.10, 0.50, "with less than 5 % idle time, processes wait for the CPU instead of the network"
)
BUSY_IDLE_PERCENT: Final = 5.0
STEAL_PERCENT: Final = Limits(
    2.0, 10.0, "time the hypervisor gave to others is missing in every timer"
)
NO_CPU_IN_VIRTUAL_TIME: Final = (
    "does not apply: virtual time stands still while a process computes, "
    "so none ever waits for a processor"
)


def cpu(evidence: Evidence) -> list[Check]:
    if evidence.clock == "virtual":
        return [
            Check(name, "n/a", None, None, NO_CPU_IN_VIRTUAL_TIME) for name in ("CPU", "CPU steal")
        ]
    every = [s for s in evidence.cpu if s.cpu == "all"]
    if not every:
        text = "sar gave no CPU sample while products were on their way"
        return [Check("CPU", "warn", None, None, text)]
    busy = sum(s.idle < BUSY_IDLE_PERCENT for s in every) / len(every)
    steal = sum(s.steal for s in every) / len(every)
    idle = sum(s.idle for s in every) / len(every)
    return [
        Check(
            "CPU",
            BUSY_SHARE.status(busy),
            f"saturated in at most {100 * BUSY_SHARE.warn:g} % of the samples",
            f"{100 * busy:.0f} %",
            f"less than {BUSY_IDLE_PERCENT:g} % idle in {100 * busy:.0f} % of {len(every)} "
            f"samples; idle on average {idle:.0f} %",
        ),
        Check(
            "CPU steal",
            STEAL_PERCENT.status(steal),
            f"at most {STEAL_PERCENT.warn:g} %",
            round(steal, 2),
            f"{steal:.1f} % of the time was taken by the hypervisor",
        ),
    ]
