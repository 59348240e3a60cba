# SPDX-License-Identifier: Apache-2.0
"""Read cell.json, verdict.json, manifest.json, and the parts of network.json that the report
needs."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, model_validator

from common.contracts import PROTOCOL_PATTERN, VerdictWord
from parsers.base.jsonfiles import BadFile, describe

NO_CPU = "virtual time: the processor is infinitely fast there"

Clock = Literal["native", "virtual"]
Finite = Annotated[float, Field(allow_inf_nan=False)]
ProtocolName = Annotated[str, Field(pattern=PROTOCOL_PATTERN)]


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class ModelCheck(_File):
    """One published statistic of the trace, and its value in the generated trace."""

    statistic: str = Field(validation_alias=AliasChoices("statistic", "name"))
    unit: str = ""
    published: float | str | None = None
    model: float | str | None = None
    difference: float | str | None = None


class CellTrace(_File):
    source: str
    products: int | None = None
    bytes: int | None = None
    model_check: tuple[ModelCheck, ...] = ()


class Cell(_File):
    """Parameters of one cell (docs/reference/contracts.md)."""

    cell: str
    experiment: str
    protocol: ProtocolName
    m: int = Field(ge=1)
    r_bps: float = Field(gt=0)
    loss: float = Field(ge=0, le=1)
    duration_s: Finite
    seed: int | str | None = None
    repeat: int = Field(0, ge=0)
    level: str | None = None  # of the experiment: quick, paper; none if it has no levels
    factors: dict[str, float | int | str] = {}  # levels; see `_from_the_old_fields`
    publisher: str
    subscribers: tuple[str, ...] = Field(min_length=1)
    site_of: dict[str, str] = {}
    rtt_ms: dict[str, float] = {}
    nic1: str
    nics: tuple[str, ...] = ()  # all NICs of the publisher, NIC1 first
    parameters: dict[str, object] = {}
    trace: CellTrace
    started: Finite | None = None
    insertion_started: Finite
    insertion_ended: Finite
    drained: Finite | None = None
    cores: int = Field(ge=1)
    clock: Clock = "native"  # runs older than virtual time do not say
    rtt_measured_ms: dict[str, float] = {}
    topology: str = ""
    loss_model: str = ""
    ldm6_subscribers: tuple[str, ...] = ()  # without multicast, in a cell of protocol ldm7
    # "<host>/<interface>" of NIC1 and of the second lane's NIC, if traffic competes
    path_interfaces: dict[str, tuple[str, ...]] = {}
    clock_offset_ms: dict[str, float] = {}  # of subscribers whose programs' clocks are off

    def protocol_of(self, host: str) -> str:
        """Return the protocol by which a subscriber gets products."""
        return "ldm6" if host in self.ldm6_subscribers else self.protocol

    @model_validator(mode="after")
    def _from_the_old_fields(self) -> Cell:
        """Give cells older than named factors their four factors."""
        if not self.factors:
            self.factors.update(
                protocol=self.protocol, receivers=self.m, rate_bps=self.r_bps, loss=self.loss
            )
        return self


class VirtualRun(_File):
    """virtual.json, which the launcher writes beside a cell in virtual time: its cost."""

    kernel: str
    kernel_digest: str = ""
    mode: str = ""
    seed: int | None = None
    real_s: float = Field(gt=0)
    virtual_s: float | None = None
    boot_real_s: float | None = None
    ready_real_s: float | None = None
    packets_delivered: int | None = None


class ProtocolAbout(_File):
    """protocol.json: what a protocol's adapter says about it, and what its programs counted."""

    name: str
    title: str
    repairs: str = ""
    settings: str = ""
    limits: tuple[str, ...] = ()
    counts: dict[str, float] = {}


class Check(_File):
    name: str
    status: Literal["pass", "warn", "fail", "n/a"]
    asked: object = None
    found: object = None
    text: str = ""


class Verdict(_File):
    verdict: VerdictWord
    checks: tuple[Check, ...] = ()


class Manifest(_File):
    experiment: object = None
    raw: dict[str, object] = {}

    @property
    def name(self) -> str:
        """Return the experiment's name; empty if the manifest does not say."""
        if isinstance(self.experiment, dict):
            return str(self.experiment.get("name", ""))
        return str(self.experiment or "")


def parse_cell(text: str, file: str) -> Cell:
    """Parse cell.json. Raises BadFile."""
    try:
        return Cell.model_validate_json(text)
    except ValidationError as error:
        raise BadFile(describe(error, file)) from None


def parse_verdict(text: str, file: str) -> Verdict:
    """Parse verdict.json. Raises BadFile."""
    try:
        return Verdict.model_validate_json(text)
    except ValidationError as error:
        raise BadFile(describe(error, file)) from None


def parse_about(text: str, file: str) -> ProtocolAbout:
    """Parse protocol.json. Raises BadFile."""
    try:
        return ProtocolAbout.model_validate_json(text)
    except ValidationError as error:
        raise BadFile(describe(error, file)) from None


def parse_virtual(text: str, file: str) -> VirtualRun:
    """Parse virtual.json. Raises BadFile."""
    try:
        return VirtualRun.model_validate_json(text)
    except ValidationError as error:
        raise BadFile(describe(error, file)) from None


def parse_manifest(text: str, file: str) -> Manifest:
    """Parse manifest.json. Raises BadFile."""
    try:
        raw = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadFile(f"{file}:{error.lineno}: not JSON: {error.msg}") from None
    if not isinstance(raw, dict):
        raise BadFile(f"{file}: expected an object, found {type(raw).__name__}")
    return Manifest(experiment=raw.get("experiment"), raw=raw)


def lossy_link_directions(network_text: str, file: str) -> frozenset[str]:
    """Return where network.json asks for loss, by the names of counters: "<link>/forward" and
    "<link>/backward" of relays, "wire/w<n>b" and "wire/w<n>a" of netem, where n is the number of
    the link among those that impair frames (topologies/model/wire_plan.py)."""
    try:
        links = json.loads(network_text)["links"]
        found: set[str] = set()
        impaired = [k for k in links if any(_impairs(k[d]) for d in ("forward", "backward"))]
        for number, link in enumerate(impaired):
            for direction, egress in (("forward", "b"), ("backward", "a")):
                if link[direction]["loss"] > 0:
                    found |= {f"{link['name']}/{direction}", f"wire/w{number}{egress}"}
        return frozenset(found)
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise BadFile(f"{file}: not a network: {error!r}") from None


def _impairs(direction: dict[str, object]) -> bool:
    return any(value for value in direction.values())
