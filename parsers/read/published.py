# SPDX-License-Identifier: Apache-2.0
"""The `paper:`, `claims:` and `figures:` blocks of an experiment file, and their copy in
manifest.json: what the papers published, what they claim, and which figures to draw.

The models are strict: unknown keys, factors, metrics and units are errors.
`experiments.design.spec` uses them to read the file and reports the place of a mistake. Here they
read the manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    WithJsonSchema,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from common.contracts import Protocol
from common.nearest import did_you_mean
from parsers.base.factors import FACTORS, Scalar, same
from parsers.base.metric_units import METRICS, canonical, to_si

TOLERANCE = 0.10  # relative difference that is pointed out, if there are no error bars


class Block(BaseModel):
    """A block of the file. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


def _wrong(valid: str) -> PydanticCustomError:
    """Return an error that says what would be valid, as for experiment and topology files."""
    # Otherwise braces would become template fields.
    return PydanticCustomError("published", "{valid}", {"valid": valid})


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _wrong("a string that is not empty")
    return " ".join(value.split())


def _metric(value: object) -> str:
    name = canonical(value) if isinstance(value, str) else None
    if name is None:
        raise _wrong(f"{', '.join(METRICS)}{did_you_mean(str(value), METRICS)}")
    return name


def _factor(value: object) -> str:
    if not isinstance(value, str) or value not in FACTORS:
        raise _wrong(f"{', '.join(FACTORS)}{did_you_mean(str(value), FACTORS)}")
    return value


Text = Annotated[str, BeforeValidator(_text)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
MetricName = Annotated[str, BeforeValidator(_metric)]
FactorName = Annotated[str, BeforeValidator(_factor)]


class Range(Block):
    """All levels from `at_least` to `at_most`, both included."""

    at_least: Scalar | None = None
    at_most: Scalar | None = None


Levels = tuple[Scalar, ...] | Range


def _levels(name: str) -> Callable[[object], Levels | None]:
    """Return a reader of one level, a list of levels or `{at_least, at_most}` of factor `name`."""
    factor = FACTORS[name]

    def run(value: object) -> Levels | None:
        try:
            return read(value)
        except ValueError as error:
            raise _wrong(str(error)) from None

    def read(value: object) -> Levels | None:
        if value is None:
            return None
        if isinstance(value, Range):
            return value
        if name == "set" and isinstance(value, Mapping):
            return (factor.read(value),)
        if isinstance(value, Mapping):
            ends = {key: value.get(key) for key in ("at_least", "at_most")}
            if set(value) - set(ends) or all(v is None for v in ends.values()):
                raise ValueError(f"{factor.valid}; a list of such; or {{at_least, at_most}}")
            return Range(**{k: factor.read(v) for k, v in ends.items() if v is not None})
        if isinstance(value, (list, tuple)):
            if not value:
                raise ValueError(f"at least one level: {factor.valid}")
            return tuple(factor.read(v) for v in value)
        return (factor.read(value),)

    return run


_LEVEL = {"type": ["number", "string"]}
_SCHEMA = WithJsonSchema(
    {
        "anyOf": [
            _LEVEL,
            {"type": "array", "items": _LEVEL, "minItems": 1},
            {
                "type": "object",
                "properties": {"at_least": _LEVEL, "at_most": _LEVEL},
                "additionalProperties": False,
            },
        ]
    }
)
# A list by receiver or settings are one level, or have a name.
_NAMED = WithJsonSchema({"type": ["string", "array", "object"]})


class Where(Block):
    """Conditions on factors. A factor that is not named may have any level."""

    protocol: Annotated[Levels | None, BeforeValidator(_levels("protocol")), _SCHEMA] = None
    receivers: Annotated[Levels | None, BeforeValidator(_levels("receivers")), _SCHEMA] = None
    rate_bps: Annotated[Levels | None, BeforeValidator(_levels("rate_bps")), _SCHEMA] = None
    loss: Annotated[Levels | None, BeforeValidator(_levels("loss")), _SCHEMA] = None
    f_snd: Annotated[Levels | None, BeforeValidator(_levels("f_snd")), _SCHEMA] = None
    f_rcv: Annotated[Levels | None, BeforeValidator(_levels("f_rcv")), _SCHEMA] = None
    rtt_ms: Annotated[Levels | None, BeforeValidator(_levels("rtt_ms")), _SCHEMA] = None
    loss_burst_packets: Annotated[
        Levels | None, BeforeValidator(_levels("loss_burst_packets")), _SCHEMA
    ] = None
    background_flows: Annotated[
        Levels | None, BeforeValidator(_levels("background_flows")), _SCHEMA
    ] = None
    b_snd: Annotated[Levels | None, BeforeValidator(_levels("b_snd")), _SCHEMA] = None
    r_mc: Annotated[Levels | None, BeforeValidator(_levels("r_mc")), _SCHEMA] = None
    r_uc: Annotated[Levels | None, BeforeValidator(_levels("r_uc")), _SCHEMA] = None
    b_mc: Annotated[Levels | None, BeforeValidator(_levels("b_mc")), _SCHEMA] = None
    b_uc: Annotated[Levels | None, BeforeValidator(_levels("b_uc")), _SCHEMA] = None
    b_rcv: Annotated[Levels | None, BeforeValidator(_levels("b_rcv")), _SCHEMA] = None
    f_cwnd_factor: Annotated[Levels | None, BeforeValidator(_levels("f_cwnd_factor")), _SCHEMA] = (
        None
    )
    q_snd: Annotated[Levels | None, BeforeValidator(_levels("q_snd")), _SCHEMA] = None
    n_snd: Annotated[Levels | None, BeforeValidator(_levels("n_snd")), _SCHEMA] = None
    repair: Annotated[Levels | None, BeforeValidator(_levels("repair")), _SCHEMA] = None
    mac_level: Annotated[Levels | None, BeforeValidator(_levels("mac_level")), _SCHEMA] = None
    feed: Annotated[Levels | None, BeforeValidator(_levels("feed")), _SCHEMA] = None
    trace: Annotated[Levels | None, BeforeValidator(_levels("trace")), _SCHEMA] = None
    headroom: Annotated[Levels | None, BeforeValidator(_levels("headroom")), _SCHEMA] = None
    p_i: Annotated[Levels | None, BeforeValidator(_levels("p_i")), _NAMED] = None
    rtt_i_ms: Annotated[Levels | None, BeforeValidator(_levels("rtt_i_ms")), _NAMED] = None
    rate_i_bps: Annotated[Levels | None, BeforeValidator(_levels("rate_i_bps")), _NAMED] = None
    queue_i: Annotated[Levels | None, BeforeValidator(_levels("queue_i")), _SCHEMA] = None
    b_rcv_i: Annotated[Levels | None, BeforeValidator(_levels("b_rcv_i")), _NAMED] = None
    clock_offset_i_ms: Annotated[
        Levels | None, BeforeValidator(_levels("clock_offset_i_ms")), _NAMED
    ] = None
    set: Annotated[Levels | None, BeforeValidator(_levels("set")), _NAMED] = None
    without_multicast: Annotated[
        Levels | None, BeforeValidator(_levels("without_multicast")), _SCHEMA
    ] = None
    ldm6_from: Annotated[Levels | None, BeforeValidator(_levels("ldm6_from")), _SCHEMA] = None
    sender_bps: Annotated[Levels | None, BeforeValidator(_levels("sender_bps")), _SCHEMA] = None
    pull_path: Annotated[Levels | None, BeforeValidator(_levels("pull_path")), _SCHEMA] = None
    guarantee: Annotated[Levels | None, BeforeValidator(_levels("guarantee")), _SCHEMA] = None
    cut: Annotated[Levels | None, BeforeValidator(_levels("cut")), _SCHEMA] = None
    file_bytes: Annotated[Levels | None, BeforeValidator(_levels("file_bytes")), _SCHEMA] = None
    fec: Annotated[Levels | None, BeforeValidator(_levels("fec")), _SCHEMA] = None
    k: Annotated[Levels | None, BeforeValidator(_levels("k")), _SCHEMA] = None
    order: Annotated[Levels | None, BeforeValidator(_levels("order")), _SCHEMA] = None
    tune_in_s: Annotated[Levels | None, BeforeValidator(_levels("tune_in_s")), _SCHEMA] = None
    loss_period: Annotated[Levels | None, BeforeValidator(_levels("loss_period")), _SCHEMA] = None
    storage: Annotated[Levels | None, BeforeValidator(_levels("storage")), _SCHEMA] = None
    crowd: Annotated[Levels | None, BeforeValidator(_levels("crowd")), _SCHEMA] = None
    bottleneck_bps: Annotated[
        Levels | None, BeforeValidator(_levels("bottleneck_bps")), _SCHEMA
    ] = None
    cc: Annotated[Levels | None, BeforeValidator(_levels("cc")), _SCHEMA] = None
    leave_latency_ms: Annotated[
        Levels | None, BeforeValidator(_levels("leave_latency_ms")), _SCHEMA
    ] = None
    slot_s: Annotated[Levels | None, BeforeValidator(_levels("slot_s")), _SCHEMA] = None
    max_rate_bps: Annotated[Levels | None, BeforeValidator(_levels("max_rate_bps")), _SCHEMA] = None
    rival_sessions: Annotated[
        Levels | None, BeforeValidator(_levels("rival_sessions")), _SCHEMA
    ] = None
    short_flows_per_min: Annotated[
        Levels | None, BeforeValidator(_levels("short_flows_per_min")), _SCHEMA
    ] = None
    clock_offset_ms: Annotated[
        Levels | None, BeforeValidator(_levels("clock_offset_ms")), _SCHEMA
    ] = None
    pause_ms: Annotated[Levels | None, BeforeValidator(_levels("pause_ms")), _SCHEMA] = None
    handoff_loss: Annotated[Levels | None, BeforeValidator(_levels("handoff_loss")), _SCHEMA] = None
    first_receiver: Annotated[
        Levels | None, BeforeValidator(_levels("first_receiver")), _SCHEMA
    ] = None
    aqm: Annotated[Levels | None, BeforeValidator(_levels("aqm")), _SCHEMA] = None
    ecn: Annotated[Levels | None, BeforeValidator(_levels("ecn")), _SCHEMA] = None
    sack: Annotated[Levels | None, BeforeValidator(_levels("sack")), _SCHEMA] = None
    tcp: Annotated[Levels | None, BeforeValidator(_levels("tcp")), _SCHEMA] = None
    monitor: Annotated[Levels | None, BeforeValidator(_levels("monitor")), _SCHEMA] = None
    stay_s: Annotated[Levels | None, BeforeValidator(_levels("stay_s")), _SCHEMA] = None
    away_s: Annotated[Levels | None, BeforeValidator(_levels("away_s")), _SCHEMA] = None
    killed: Annotated[Levels | None, BeforeValidator(_levels("killed")), _SCHEMA] = None
    borrow: Annotated[Levels | None, BeforeValidator(_levels("borrow")), _SCHEMA] = None
    subscriber: Annotated[Levels | None, BeforeValidator(_levels("subscriber")), _SCHEMA] = None
    file_set_bytes: Annotated[
        Levels | None, BeforeValidator(_levels("file_set_bytes")), _SCHEMA
    ] = None
    first_s: Annotated[Levels | None, BeforeValidator(_levels("first_s")), _SCHEMA] = None

    @model_serializer(mode="wrap")
    def _named(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Omit factors that are not named, so that versions with other factors can read the
        result."""
        return {name: demand for name, demand in handler(self).items() if demand is not None}

    @property
    def levels(self) -> dict[str, Levels]:
        """Return factor -> condition, for the factors that are named."""
        found = {name: getattr(self, name) for name in FACTORS}
        return {name: demand for name, demand in found.items() if demand is not None}

    def holds(self, factors: Mapping[str, Scalar]) -> bool:
        """Return whether these levels meet every condition. A condition on an unknown factor is not
        met."""
        return all(
            name in factors and meets(factors[name], demand) for name, demand in self.levels.items()
        )

    def single(self) -> dict[str, Scalar]:
        """Return factor -> level, for the factors whose condition is exactly one level."""
        return {
            name: demand[0]
            for name, demand in self.levels.items()
            if isinstance(demand, tuple) and len(demand) == 1
        }


def meets(level: Scalar, demand: Levels) -> bool:
    """Return whether the level meets the condition."""
    if isinstance(demand, tuple):
        return any(same(level, wanted) for wanted in demand)
    if isinstance(level, str):
        return False
    for end, above in ((demand.at_least, True), (demand.at_most, False)):
        if end is None or same(level, end):
            continue
        if isinstance(end, str) or (level < end) == above:
            return False
    return True


class Why(Block):
    """Why this run's value differs from the published one, as a clause after "because"."""

    above: Text | None = Field(default=None, description="where ours is above the published value")
    below: Text | None = Field(default=None, description="where ours is below it")


class PaperValue(Block):
    """A published value, for the column beside the run's; or, without a value, a statement."""

    metric: MetricName = Field(description="name of the metric")
    protocol: Protocol | Literal["both"]
    value: Finite | None = Field(None, description="left out where the text gives a relation only")
    unit: str = Field("", description="of the value, e.g. %, Mbit/s")
    source: Text = Field(description="section, figure or table")
    at: Where = Field(Where(), description="factor: level, under which the value was found")
    conditions: str = Field("", description="the same and more in words, for the reader")
    published_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        None, description="how long the published run was"
    )
    subscriber: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,31}$")] | None = Field(
        None, description="the value is of this subscriber, not of all"
    )
    tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        TOLERANCE, description="relative difference from which a report points it out"
    )
    text: Text | None = Field(None, description="the statement, where it is not a number")
    why: Why = Field(
        default=Why(), description="known reasons for a difference, clauses after 'because'"
    )

    @model_validator(mode="after")
    def _complete(self) -> PaperValue:
        if self.value is None and self.text is None:
            raise _wrong("a value or a text")
        try:
            self.value_si  # noqa: B018
        except ValueError as error:
            raise _wrong(str(error)) from None
        return self

    @property
    def value_si(self) -> float | None:
        """Return the value in the metric's own unit (bit/s, s, %)."""
        if self.value is None:
            return None
        return to_si(self.value, self.unit, METRICS[self.metric])

    @property
    def derived(self) -> bool:
        """Return whether the value was computed from published figures."""
        return self.source.lower().startswith("derived")

    @property
    def protocols(self) -> tuple[str, ...]:
        """Return the protocols that the value covers."""
        return ("ldm7", "ldm6") if self.protocol == "both" else (self.protocol,)

    @property
    def where(self) -> Where:
        """Return `at` with the subscriber added; the protocol stays separate."""
        if self.subscriber is None:
            return self.at
        return self.at.model_copy(update={"subscriber": (self.subscriber,)})


OVER_A_FACTOR = ("linear", "flat", "increases", "decreases")


class Claim(Block):
    """A qualitative claim of a paper, as `parsers.measure.claims` decides it.

    linear: over `over`, R2 >= at_least (0.98) and the slope's interval is above 0. flat: the change
    over the range is at most at_most (0.1) of the mean. increases, decreases: each step of
    `over` does, by the interval of the paired ratio; with `against`, the ratio to the other
    points does. With `compared_by: difference`, by the interval of the paired difference: for
    something that adds the same amount to values of any size. With `steps: trend`, the fitted
    change over the range or Kendall's test over the repeats shows it, and no step goes the opposite
    way: for something that levels off.

    With `against`, each point at `where` is compared with the point that has the levels of
    `against` instead, in `against_metric` if it is given. equal: the interval of the difference is
    within +-at_most (0.1) of the other value; ratio: between at_least and at_most; above: a ratio
    above 1. With `compared_by: sign`, above: it is larger in most repeats, by the sign test: for
    something that differs by 20 % in one window and tenfold in another, which Student's t takes for
    noise.

    saving: the share of `over` that the point at `where` saves, at the same value, against the line
    of the points that have the levels of `against` instead; at least at_least.
    """

    kind: Literal["linear", "flat", "increases", "decreases", "equal", "ratio", "above", "saving"]
    metric: MetricName
    over: FactorName | None = Field(None, description="the factor on the x axis")
    where: Where = Field(Where(), description="of which points")
    against: Where | None = Field(None, description="the levels that the other points have instead")
    against_metric: MetricName | None = Field(
        None, description="the other points' metric, if it is another one"
    )
    at_least: Finite | None = None
    at_most: Finite | None = None
    compared_by: Literal["ratio", "difference", "sign"] = Field(
        "ratio",
        description="of increases, decreases and above: what the interval is of; sign, of above: "
        "the sign test over the repeats",
    )
    steps: Literal["each", "trend"] = Field(
        "each", description="of increases and decreases: each step, or the range"
    )
    text: Text = Field(description="the claim in words")
    source: Text = Field(description="section, figure or table")

    @model_validator(mode="after")
    def _complete(self) -> Claim:
        compared = self.against is not None or self.against_metric is not None
        if self.kind in OVER_A_FACTOR or self.kind == "saving":
            if self.over is None or isinstance(FACTORS[self.over].names, tuple):
                raise _wrong(f"kind {self.kind}: over: a factor with numbers, e.g. receivers")
            if compared and self.kind in ("linear", "flat"):
                raise _wrong(f"kind {self.kind}: no against: it is about one line of points")
        else:
            if not compared:
                raise _wrong(f"kind {self.kind}: against or against_metric: what it is set to")
            if self.over is not None:
                raise _wrong(f"kind {self.kind}: no over: it compares points one by one")
        if self.against is not None:
            several = sorted(set(self.against.levels) - set(self.against.single()))
            if several:
                raise _wrong(f"kind {self.kind}: against: one level of {several[0]}")
        fits = self.kind == "above" or (self.kind in ("increases", "decreases") and not compared)
        if self.compared_by == "difference" and not fits:
            raise _wrong(
                f"kind {self.kind}: compared_by: ratio; difference with above, or with increases "
                "or decreases without against"
            )
        if self.compared_by == "sign" and self.kind != "above":
            raise _wrong(f"kind {self.kind}: compared_by: ratio; sign is of above")
        if self.steps == "trend" and self.kind not in ("increases", "decreases"):
            raise _wrong(f"kind {self.kind}: no steps: trend is of increases and decreases")
        if self.kind == "saving" and (self.against is None or self.at_least is None):
            raise _wrong("kind saving: against and at_least")
        if self.kind == "ratio" and self.at_least is None and self.at_most is None:
            raise _wrong("kind ratio: at_least or at_most")
        return self


# Metrics of DRFSM21 3.2, over all files of an interval.
TAU_METRICS = (
    *("throughput_fmtp", "throughput_mc", "throughput_retx"),
    *("ffdr_count", "ffdr_size", "mplr"),
)


class Figure(Block):
    """A figure of the report; the paper's rows that match metric and `where` are drawn into it.

    lines: `metric` over `x`, with a line for each combination of the levels of `by`, and error
    bars. bars: the same as bars. boxes: the distribution over file-sets against G; `x` is
    file_set_bytes. minutes: the per-minute series of the first repeat of the cells at `where`, with
    a line for each level of `by` (the protocols). subscribers: a metric of DRFSM21 3.2 in each
    interval tau, with a line for each subscriber of the first cell at `where`. arrivals: size and
    time of each file of that cell's trace. latency: the components of DRFSM21 eq. 7, with a bar for
    each subscriber of that cell.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")]
    title: Text
    source: str = Field("", description="the paper's figure, or what else it shows")
    kind: Literal["lines", "bars", "boxes", "minutes", "subscribers", "arrivals", "latency"]
    x: FactorName | None = None
    metric: MetricName | None = None
    second: MetricName | None = Field(None, description="dashed, with its own axis")
    by: tuple[FactorName, ...] = ()
    where: Where = Where()
    log: tuple[Literal["x", "y"], ...] = Field((), description="logarithmic axes")
    caption: str = ""

    @model_validator(mode="after")
    def _complete(self) -> Figure:
        if self.kind in ("minutes", "arrivals", "latency"):
            if self.x is not None:
                axis = "subscribers are" if self.kind == "latency" else "time is"
                raise _wrong(f"kind {self.kind}: no x: {axis}")
            return self
        if self.kind == "subscribers":
            if self.x is not None or self.metric not in TAU_METRICS:
                names = ", ".join(TAU_METRICS)
                raise _wrong(f"kind subscribers: no x, and metric: one of {names}")
            return self
        if self.x is None:
            raise _wrong(f"kind {self.kind}: x: the factor on the axis")
        if self.metric is None:
            raise _wrong(f"kind {self.kind}: metric: what is drawn over x")
        if (self.kind == "boxes") != (self.x == "file_set_bytes"):
            raise _wrong("x: file_set_bytes with kind boxes, and with no other")
        return self


class Published(Block):
    """The three blocks together."""

    paper: tuple[PaperValue, ...] = ()
    claims: tuple[Claim, ...] = ()
    figures: tuple[Figure, ...] = ()

    @property
    def file_set_bytes(self) -> tuple[int, ...]:
        """Return the file-set sizes G that any block names."""
        demands = [row.at for row in self.paper] + [figure.where for figure in self.figures]
        for claim in self.claims:
            demands += [claim.where, *([claim.against] if claim.against is not None else [])]
        found = {
            int(level)
            for demand in demands
            if isinstance(demand.file_set_bytes, tuple)
            for level in demand.file_set_bytes
        }
        return tuple(sorted(found))

    @property
    def by_length(self) -> bool:
        """Return whether any block asks for a run's first seconds."""
        return (
            any("first_s" in (*figure.by, figure.x) for figure in self.figures)
            or any(claim.over == "first_s" for claim in self.claims)
            or any(claim.where.first_s is not None for claim in self.claims)
        )

    @property
    def per_subscriber(self) -> bool:
        """Return whether any block asks for values at single subscribers."""
        named = [row.where for row in self.paper] + [claim.where for claim in self.claims]
        named += [figure.where for figure in self.figures]
        return any(w.subscriber is not None for w in named) or any(
            "subscriber" in (*figure.by, figure.x) for figure in self.figures
        )


T = TypeVar("T", bound=Block)


def parse_published(manifest: Mapping[str, object]) -> tuple[Published, tuple[str, ...]]:
    """Return (blocks, complaints) from a manifest, whose `spec` is the experiment file. A complaint
    names each item that cannot be used. Never raises."""
    spec = manifest.get("spec")
    blocks = {**manifest, **(spec if isinstance(spec, Mapping) else {})}
    complaints: list[str] = []
    return (
        Published(
            paper=_items(PaperValue, "paper", _dated(blocks.get("paper"), complaints), complaints),
            claims=_items(Claim, "claims", blocks.get("claims"), complaints),
            figures=_items(Figure, "figures", blocks.get("figures"), complaints),
        ),
        tuple(complaints),
    )


def _dated(block: object, complaints: list[str]) -> object:
    """Drop rows that do not name their levels. Manifests have `at` in every row, except old
    manifests."""
    if not isinstance(block, list):
        return block
    found = []
    for number, raw in enumerate(block, start=1):
        if isinstance(raw, Mapping) and "at" not in raw:
            complaints.append(
                f"paper {number}: no 'at': the conditions of the published value are unknown"
            )
        else:
            found.append(raw)
    return found


def _items(model: type[T], name: str, block: object, complaints: list[str]) -> tuple[T, ...]:
    if block is None:
        return ()
    if not isinstance(block, Sequence) or isinstance(block, str):
        complaints.append(f"{name}: expected a list, found {type(block).__name__}")
        return ()
    found = []
    for number, raw in enumerate(block, start=1):
        try:
            found.append(model.model_validate(raw))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(p) for p in first["loc"])
            text = str(first["msg"]).removeprefix("Value error, ")
            where = f" {place}:" if place else ""
            complaints.append(f"{name} {number}:{where} found {first['input']!r}; valid: {text}")
    return tuple(found)
