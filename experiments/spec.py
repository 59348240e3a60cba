# SPDX-License-Identifier: Apache-2.0
"""What an experiment file may say, and its reading with every mistake at once.

The units are those of topology files (`20Mbps`, `600MB`, `1%`). `schema.json` is generated from
the models (`python -m experiments.spec`).
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from experiments.loss_model import LossModel
from parsers.units import METRICS, canonical
from topologies.document import Document, Error, Place, TopologyErrors, read_document
from topologies.spec import Loss, RateBps, SizeBytes, Text

__all__ = [
    "Error",
    "ExperimentSpec",
    "SpecErrors",
    "UsageError",
    "bundled",
    "find",
    "load",
    "override",
]


class UsageError(Exception):
    """Bad arguments: one line per mistake, `what: found ...; valid: ...`."""


SpecErrors = TopologyErrors  # one line per mistake: `file:line: found ...; valid: ...`
HERE = Path(__file__).parent

MAX_RECEIVERS = 200
MAX_DURATION_S = 24 * 3600
Protocol = Literal["ldm7", "ldm6"]
Clocks = Literal["any", "native", "virtual"]
Receivers = Annotated[int, Field(strict=True, ge=1, le=MAX_RECEIVERS)]
Factor = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
Slots = Annotated[int, Field(strict=True, ge=1, le=10_000_000)]
Seconds = Annotated[float, Field(ge=5, le=MAX_DURATION_S, allow_inf_nan=False)]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
MetricName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
AlgorithmName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,14}$")]


class Block(BaseModel):
    """A block of the file: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Factors(Block):
    """What varies; a cell is run for each combination of levels."""

    protocol: tuple[Protocol, ...] = Field(min_length=1, description="ldm7, ldm6 or both")
    receivers: tuple[Receivers, ...] = Field(min_length=1, description="m")
    rate_bps: tuple[RateBps, ...] = Field(min_length=1, description="base rate r")
    loss: tuple[Loss, ...] = Field(min_length=1, description="p_i, the same at every receiver")


class Parameters(Block):
    """What stays fixed, by the symbols of mpup-ldm7.txt Tables I and II."""

    f_snd: Factor = Field(description="FMTP sender timeout factor, equation (1)")
    f_rcv: Factor = Field(description="FMTP receiver timeout factor, equation (2)")
    r_mc: Factor = Field(1.0, description="sender multicast rate, as a multiple of r")
    r_uc: Factor = Field(1.0, description="sender unicast rate, as a multiple of r")
    b_mc: SizeBytes = Field(description="sender traffic-control multicast buffer")
    b_uc: SizeBytes = Field(description="sender traffic-control unicast buffer")
    b_rcv: SizeBytes = Field(description="receiver UDP buffer")
    b_snd: SizeBytes | None = Field(
        None,
        description="sender UDP buffer of the multicast; left out: the system's default, and "
        "products wait in the file queue; as large as b_mc: they wait in the traffic-control "
        "queue, as in the papers, while tau_snd runs",
    )
    q_snd: SizeBytes = Field(description="sender file queue")
    n_snd: Slots = Field(description="sender limit on files in the queue")
    q_rcv: SizeBytes | None = Field(
        None, description="receivers' file queue; left out: the whole replay fits"
    )
    f_cwnd_factor: Annotated[float, Field(ge=1.0, le=100.0, allow_inf_nan=False)] = Field(
        1.2,
        description="sender CTCP congestion window f_cwnd = f_cwnd_factor x r_uc x max RTT_i",
    )
    headroom: Annotated[float, Field(ge=1.0, le=10.0, allow_inf_nan=False)] = Field(
        1.2,
        description="r_vn = headroom x (r_mc + r_uc) for LDM7, headroom x m x r for LDM6; Table II "
        "asks for at least 1",
    )
    loss_model: LossModel = Field(
        "hash",
        description="hash: which packets are lost follows from the seed, the receiver and the "
        "packet; random: drawn by the kernel",
    )
    tcp_congestion_control: tuple[AlgorithmName, ...] = Field(
        ("ctcp", "bbr"),
        min_length=1,
        description="the first of these that can be had; ctcp: the papers' CTCP, whose window is "
        "fixed at f_cwnd",
    )


class PaperValue(Block):
    """A published value, for the column beside ours."""

    metric: MetricName = Field(description="name of the metric")
    protocol: Protocol | Literal["both"]
    value: Annotated[float, Field(allow_inf_nan=False)] | None = Field(
        None, description="left out where the text gives a relation only"
    )
    unit: Text
    source: Text = Field(description="section, figure or table")
    conditions: Text = Field(description="under what the value was found")
    text: Text | None = Field(None, description="the statement, where it is not a number")


class Spec(Block):
    """What every experiment file has."""

    name: Name
    description: Text
    topology: Text = Field(description="name of a topology of Downpour, or the path of a file")
    parameters: Parameters
    repeats: Annotated[int, Field(strict=True, ge=1, le=1000)] = 1
    base_seed: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]
    trace: Text = Field("model", description="model, or the path of a trace file")
    duration_s: Annotated[float, Field(gt=0, le=MAX_DURATION_S, allow_inf_nan=False)] = Field(
        description="how much of the trace is replayed"
    )
    drain_timeout_s: Annotated[float, Field(gt=0, le=MAX_DURATION_S, allow_inf_nan=False)] = Field(
        120.0, description="how long to wait after the last insertion for the last product"
    )
    paper: tuple[PaperValue, ...] = ()


class ExperimentSpec(Spec):
    """An experiment file of Downpour: a cell for each combination of the factors' levels."""

    factors: Factors


class FeedSpec(Block):
    """A file-stream with a path of its own. Its products are the trace's, with sizes of their
    own."""

    feed: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9]{0,15}$")] = Field(
        description="LDM's feedtype, e.g. NGRID"
    )
    rate_bps: RateBps = Field(description="r of this feed: its multicast and its unicast rate")
    size_factor: Annotated[float, Field(gt=0, le=10, allow_inf_nan=False)] = Field(
        description="of the trace's sizes"
    )


class SubscriptionsSpec(Block):
    """How subscribers come and go. One of each feed stays; every other subscriber is now and then
    subscribed to each feed. Runs of less than 600 s shorten both means, to a quarter at most."""

    stay_s: Seconds = Field(description="mean length of a session in 600 s")
    away_s: Seconds = Field(description="mean time between two sessions in 600 s")
    killed: Loss = Field(description="share of sessions that end by kill -9")


class JoinLeaveSpec(Spec):
    """An experiment file of Downpour: subscribers join and leave feeds under load."""

    kind: Literal["join-leave"] = Field(description="join-leave")
    feeds: tuple[FeedSpec, ...] = Field(min_length=1, description="one lane of the topology each")
    subscriptions: SubscriptionsSpec


AnySpec = ExperimentSpec | JoinLeaveSpec
S = TypeVar("S", bound=Spec)
B = TypeVar("B", bound=BaseModel)


def json_schema() -> str:
    """The text of schema.json."""
    schema = TypeAdapter(AnySpec).json_schema()
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


def bundled() -> tuple[str, ...]:
    """Names of the experiments that come with Downpour."""
    return tuple(sorted(path.stem for path in HERE.glob("*.yaml")))


def find(name: str) -> Path:
    """The file of a bundled experiment, or `name` itself if it is a path to a YAML file.
    Raises UsageError."""
    if name in bundled():
        return HERE / f"{name}.yaml"
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    close = difflib.get_close_matches(name, bundled(), n=1)
    hint = f" (did you mean '{close[0]}'?)" if close else ""
    valid = f"{', '.join(bundled())}, or the path of a .yaml file{hint}"
    raise UsageError(f"experiment: found '{name}'; valid: {valid}")


def load(path: Path) -> AnySpec:
    """Reads and checks an experiment file. Raises SpecErrors with every mistake found."""
    return validate(read_document(path))


def load_as(kind: type[S], path: Path) -> S:
    """`load`, of a file that must be of this kind."""
    spec = load(path)
    if not isinstance(spec, kind):
        found = f"an experiment of kind '{getattr(spec, 'kind', 'factors')}'"
        raise SpecErrors([Error(str(path), 1, found, kind.__name__)])
    return spec


def validate(document: Document) -> AnySpec:
    """The checked file; raises SpecErrors with every mistake."""
    spec: AnySpec | None = None
    if not isinstance(document.data, dict):
        document.report((), _quote(document.data), "an experiment: keys such as name, factors")
    else:
        spec = read_as(document, _model_of(document.data))
    if spec is not None:
        _check_whole(document, spec)
    if document.errors or spec is None:
        raise SpecErrors(document.errors)
    return spec


def read_as(
    document: Document, model: type[B], blocks: Mapping[str, type[BaseModel]] | None = None
) -> B | None:
    """The document as `model`, whose keys `blocks` have models of their own; None, with every
    mistake reported in `document`, if it is none."""
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        details = error.errors(include_url=False)
        for detail in details:
            # A list that is too short only because its items are wrong is not reported twice.
            if detail["type"] == "too_short" and any(
                d is not detail and d["loc"][: len(detail["loc"])] == detail["loc"] for d in details
            ):
                continue
            _report(document, detail, model, _MODELS if blocks is None else blocks)
    return None


def _model_of(data: Mapping[str, Any]) -> type[ExperimentSpec] | type[JoinLeaveSpec]:
    return JoinLeaveSpec if "kind" in data else ExperimentSpec


def _check_factors(document: Document, spec: ExperimentSpec) -> None:
    for name, levels in spec.factors.model_dump().items():
        if len(set(levels)) < len(levels):
            found = f"factors.{name} with a level twice"
            document.report(("factors", name), found, "each level once")
    for index, level in enumerate(spec.factors.loss):
        if level >= 1.0:
            place: Place = ("factors", "loss", index)
            document.report(place, f"loss {level:g}", "a probability below 1, e.g. 1%")


def _check_feeds(document: Document, spec: JoinLeaveSpec) -> None:
    names = [feed.feed for feed in spec.feeds]
    for index, name in enumerate(names):
        if name in names[:index]:
            document.report(("feeds", index, "feed"), f"feed '{name}' twice", "each feed once")


def _check_whole(document: Document, spec: AnySpec) -> None:
    """What must hold between blocks."""
    if isinstance(spec, JoinLeaveSpec):
        _check_feeds(document, spec)
    else:
        _check_factors(document, spec)
    if spec.parameters.f_snd <= spec.parameters.f_rcv:
        found = f"f_snd {spec.parameters.f_snd:g}"
        valid = f"above f_rcv, {spec.parameters.f_rcv:g} (mpup-ldm7.txt II)"
        document.report(("parameters", "f_snd"), found, valid)
    for index, value in enumerate(spec.paper):
        if value.value is None and value.text is None:
            document.report(("paper", index), "neither value nor text", "one of both")
    named = [(("paper", i), row.metric) for i, row in enumerate(spec.paper)]
    for at, metric in named:
        if canonical(metric) is None:
            close = difflib.get_close_matches(metric, METRICS, n=1)
            hint = f" (did you mean '{close[0]}'?)" if close else ""
            document.report((*at, "metric"), f"metric '{metric}'", ", ".join(METRICS) + hint)


def override(spec: S, given: Mapping[str, Any]) -> S:
    """`spec` with what the command line says: duration_s, receivers, trace, seed, queue_bytes
    (None: as in the file). Raises UsageError that names the options."""
    parameters = spec.parameters
    factors: Factors | None = getattr(spec, "factors", None)
    changes: dict[str, Any] = {}
    errors: list[str] = []
    if (m := given.get("receivers")) is not None:
        if factors is None:
            errors.append(_option("--receivers", m, "without it: the topology gives them"))
        elif not 1 <= m <= MAX_RECEIVERS:
            errors.append(_option("--receivers", m, f"1 to {MAX_RECEIVERS} receivers"))
        else:
            changes["factors"] = factors.model_copy(update={"receivers": (m,)})
    if (duration := given.get("duration_s")) is not None:
        if not 0 < duration <= MAX_DURATION_S:  # also refuses NaN
            errors.append(_option("--duration", duration, f"above 0 to {MAX_DURATION_S} seconds"))
        changes["duration_s"] = float(duration)
    if (seed := given.get("seed")) is not None:
        if not 0 <= seed < 2**31:
            errors.append(_option("--seed", seed, "0 to 2147483647"))
        changes["base_seed"] = seed
    if (size := given.get("queue_bytes")) is not None:
        if size < 1_000_000:
            errors.append(_option("--queue-bytes", size, "at least 1000000 bytes"))
        changes["parameters"] = parameters.model_copy(update={"q_snd": size})
    if given.get("trace") is not None:
        changes["trace"] = str(given["trace"])
    if errors:
        raise UsageError("\n".join(errors))
    return spec.model_copy(update=changes)


def _option(option: str, found: object, valid: str) -> str:
    return f"{option}: found '{found}'; valid: {valid}"


def _report(
    document: Document,
    detail: ErrorDetails,
    whole: type[BaseModel],
    blocks: Mapping[str, type[BaseModel]],
) -> None:
    place: Place = tuple(detail["loc"])
    names = [str(p) if isinstance(p, str) else f"[{p}]" for p in place[:-1]]
    where = f" in {'.'.join(names).replace('.[', '[')}" if names else ""
    key = place[-1] if place else ""
    kind = detail["type"]
    if kind == "extra_forbidden":
        keys = _keys_at(place, whole, blocks)
        close = difflib.get_close_matches(str(key), keys, n=1)
        hint = f" (did you mean '{close[0]}'?)" if close else ""
        document.report(place, f"unknown key '{key}'{where}", ", ".join(keys) + hint)
    elif kind == "missing":
        document.report(place[:-1], f"no '{key}'{where}", f"a value for '{key}'")
    else:
        context = detail.get("ctx", {})
        valid = str(context["valid"]) if kind == "topology" else _uncapitalized(detail["msg"])
        if kind == "literal_error":
            valid = str(context["expected"])
        name = f"{key} " if isinstance(key, str) else ""
        document.report(place, f"{name}{_quote(detail['input'])}{where}", valid)


def _uncapitalized(text: str) -> str:
    return text[:1].lower() + text[1:]


_MODELS: dict[str, type[BaseModel]] = {
    "factors": Factors,
    "parameters": Parameters,
    "paper": PaperValue,
    "feeds": FeedSpec,
    "subscriptions": SubscriptionsSpec,
}


def _keys_at(
    place: Place, whole: type[BaseModel], blocks: Mapping[str, type[BaseModel]]
) -> list[str]:
    model = blocks.get(str(place[0]), whole) if len(place) > 1 else whole
    return list(model.model_fields)


def _quote(value: object) -> str:
    text = "nothing" if value is None else "a mapping" if isinstance(value, dict) else str(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    return f"'{text}'" if isinstance(value, str) else text


if __name__ == "__main__":
    HERE.joinpath("schema.json").write_text(json_schema())
