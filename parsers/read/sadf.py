# SPDX-License-Identifier: Apache-2.0
"""Parse `sadf -j` (of sar's binary file, with `-- -u -n DEV`) into the same records as sar's
text."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from parsers.base.jsonfiles import (
    BadFile,
    complete_elements,
    describe,
    is_cut_off,
    malformed,
)
from parsers.base.problems import Problem, cut_off_document
from parsers.base.times import utc_seconds
from parsers.read.sar_log import (
    KILOBYTE,
    CpuSample,
    InterfaceSample,
    SarLog,
)

EXPECTED = "the JSON of sadf -j"


class _Sadf(BaseModel):
    model_config = ConfigDict(extra="ignore", defer_build=True)


class _Stamp(_Sadf):
    date: str = Field(pattern=r"^\d{4}-\d\d-\d\d$")
    time: str = Field(pattern=r"^\d\d:\d\d:\d\d$")
    interval: float = Field(gt=0)

    @property
    def seconds(self) -> float:
        return float(utc_seconds(self.date.replace("-", "") + self.time.replace(":", "")))


class _Cpu(_Sadf):
    cpu: str
    user: float
    nice: float
    system: float
    iowait: float
    steal: float
    idle: float


class _Device(_Sadf):
    iface: str
    rx: float = Field(alias="rxkB")
    tx: float = Field(alias="txkB")


class _Network(_Sadf):
    devices: list[_Device] = Field(default=[], alias="net-dev")


class _Statistics(_Sadf):
    timestamp: _Stamp | None = None
    cpus: list[_Cpu] = Field(default=[], alias="cpu-load")
    network: _Network = _Network()


def parse_sadf(text: str, file: str) -> SarLog:
    """Parse the document. Raises `BadFile` (file:line) if the text is not sadf's. A truncated
    document gives its complete samples, and a problem. It may cover several hosts or files."""
    problems: tuple[Problem, ...] = ()
    try:
        statistics = _statistics(json.loads(text), file)
    except json.JSONDecodeError as error:
        if not is_cut_off(text, error) or not text.lstrip().startswith("{"):
            raise BadFile(malformed(text, file, error, EXPECTED)) from None
        statistics = complete_elements(text, "statistics")[0]
        problems = (cut_off_document(text, file),)
    interfaces: list[InterfaceSample] = []
    cpus: list[CpuSample] = []
    for entry in statistics:
        try:
            found = _Statistics.model_validate(entry)
            if found.timestamp is None:  # a sample without anything requested
                continue
            time_s, interval_s = found.timestamp.seconds, found.timestamp.interval
        except ValidationError as error:
            raise BadFile(describe(error, file)) from None
        except ValueError as error:
            raise BadFile(f"{file}: timestamp: {error}") from None
        for device in found.network.devices:
            rx, tx = device.rx * KILOBYTE, device.tx * KILOBYTE
            interfaces.append(InterfaceSample(time_s, interval_s, device.iface, rx, tx))
        for cpu in found.cpus:
            shares = (cpu.user, cpu.nice, cpu.system, cpu.iowait, cpu.steal, cpu.idle)
            cpus.append(CpuSample(time_s, interval_s, cpu.cpu, *shares))
    return SarLog(file, tuple(interfaces), tuple(cpus), problems)


def _statistics(document: Any, file: str) -> list[Any]:
    try:
        return [entry for host in document["sysstat"]["hosts"] for entry in host["statistics"]]
    except (KeyError, TypeError):
        raise BadFile(f"{file}: expected {EXPECTED}: sysstat, hosts, statistics") from None
