# SPDX-License-Identifier: Apache-2.0
"""The report's section on FMTP at each subscriber, as in DRFSM21 Tables 4 and 5."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from common.counting import counted
from parsers.base.metric_units import Value
from parsers.measure.repaired import (
    LISTED,
    Repaired,
    matrix,
    sharing,
)
from parsers.measure.summary import CellMetrics, ReceiverMetrics
from parsers.report.document import Section, Table

HEADER = (
    "Subscriber",
    "files",
    "by FMTP",
    "FFDR %",
    "FFDR size %",
    "MPLR %",
    "Mbit/s all",
    "no retx",
    "retx",
    "retx blocks",
    "retx files",
)
LISTED_INDEXES = 20


def fmtp_section(cells: Iterable[CellMetrics]) -> Section | None:
    """Return the section; None if no cell has LDM7, or if no subscriber left a log."""
    tables: list[Table] = []
    sentences: list[str] = []
    for cell in cells:
        about = [r for r in cell.receivers if r.fmtp is not None]
        if not about:
            continue
        name = cell.cell.cell
        left = frozenset({"Subscriber"})
        tables.append(Table(f"{name}: as in Table 4", HEADER, tuple(_row(r) for r in about), left))
        repaired = {r.host: r.repaired for r in about}
        if (found := matrix(repaired)) is not None:
            title = f"{name}: retransmitted blocks per file, as in Table 5"
            tables.append(Table(title, found[0], tuple(found[1]), frozenset()))
        sentences.append(f"{name}: {_shared(repaired)}")
    if not tables:
        return None
    return Section("FMTP at each subscriber (DRFSM21 3.2)", tuple(sentences), tuple(tables))


def _row(receiver: ReceiverMetrics) -> tuple[str, ...]:
    fmtp = receiver.fmtp
    assert fmtp is not None
    return (
        receiver.host,
        str(sum(receiver.by.values())),
        str(receiver.by.get("fmtp", 0)),
        _show(fmtp.ffdr_count, 1.0),
        _show(fmtp.ffdr_size, 1.0),
        _show(fmtp.mplr, 1.0, 4),
        _show(fmtp.throughput_fmtp, 1e6),
        _show(fmtp.throughput_mc, 1e6),
        _show(fmtp.throughput_retx, 1e6),
        str(fmtp.retx_blocks),
        str(receiver.repaired.count),
    )


def _show(value: Value, scale: float, digits: int = 2) -> str:
    return "n/a" if value.value is None else f"{value.value / scale:.{digits}f}"


def _shared(repaired: Mapping[str, Repaired]) -> str:
    """Say which files needed retransmission at all subscribers, at several, or at only one."""
    if not any(r.count for r in repaired.values()):
        return "no file needed a retransmission."
    found = sharing(repaired)
    if found is None:
        most = max(r.count for r in repaired.values())
        return (
            f"up to {counted(most, 'file')} needed "
            f"retransmissions; runs list at most {LISTED} of them"
            " for each subscriber."
        )
    kinds = (
        (found.everywhere, "at all subscribers alike (lost before the tree branches)"),
        (found.somewhere, "at several subscribers, not all"),
        (found.alone, "at one subscriber only"),
    )
    texts = [f"{_files(indexes)} {where}" for indexes, where in kinds if indexes]
    return f"retransmissions were needed for {'; '.join(texts)}."


def _files(indexes: tuple[int, ...]) -> str:
    shown = ", ".join(str(i) for i in indexes[:LISTED_INDEXES])
    more = f" and {len(indexes) - LISTED_INDEXES} more" if len(indexes) > LISTED_INDEXES else ""
    return f"{'file' if len(indexes) == 1 else 'files'} {shown}{more}"
