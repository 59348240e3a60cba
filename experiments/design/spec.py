# SPDX-License-Identifier: Apache-2.0
"""What an experiment file may contain, and its reader, which reports every mistake at once.

The units are those of topology files (`20Mbps`, `600MB`, `1%`). `schema.json` is generated from
the models (`python -m experiments.design.spec`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    TypeAdapter,
    WithJsonSchema,
)

from common.nearest import did_you_mean
from common.places import EXPERIMENTS
from experiments.design.levels import LISTS
from experiments.design.parameters import (
    FEED_MODELS,
    GENERATED,
    MODEL,
    NO_TRUTH,
    PACED,
    Block,
    Duration,
    Factor,
    Factors,
    FeedName,
    Name,
    Parameters,
    Repeats,
    Seconds,
    TraceName,
    Truth,
    valid_traces,
)
from experiments.design.spec_reports import Reports, keys_by_block, quote
from experiments.design.spec_rules import check_factors, check_varied
from parsers.read.published import (
    Claim,
    Figure,
    PaperValue,
    Where,
)
from topologies.model.document import (
    Document,
    Error,
    Place,
    TopologyErrors,
    read_document,
)
from topologies.model.load import bundled as bundled_topologies
from topologies.model.spec import Loss, RateBps, Text

__all__ = [
    "FEED_MODELS",
    "GENERATED",
    "MODEL",
    "PACED",
    "Error",
    "ExperimentSpec",
    "SpecErrors",
    "UsageError",
    "at_level",
    "bundled",
    "find",
    "level_of",
    "load",
    "valid_traces",
    "option_error",
]


class UsageError(Exception):
    """Bad arguments: one line per mistake, `what: found ...; valid: ...`."""


SpecErrors = TopologyErrors  # one line per mistake: `file:line: found ...; valid: ...`


def _blocks(value: object) -> object:
    """Make `factors` a list of blocks; a single block need not be in a list."""
    return [value] if isinstance(value, (Mapping, Factors)) else value


def _some_of(model: type[BaseModel]) -> WithJsonSchema:
    """Return the schema of some of a block's keys, for editors."""
    schema = model.model_json_schema()
    schema.pop("required", None)
    return WithJsonSchema({**schema, "description": "some of them, instead of the file's"})


class Level(Block):
    """What a level of the experiment replaces in the file."""

    duration_s: Duration | None = None
    drain_timeout_s: Duration | None = None
    repeats: Repeats | None = None
    trace: TraceName | None = None
    windows: Truth | None = None
    factors: dict[str, Any] | list[dict[str, Any]] = Field(
        {}, description="levels of factors by name, in every block; a list: other blocks"
    )
    parameters: Annotated[dict[str, Any], _some_of(Parameters)] = {}
    subscriptions: dict[str, Any] = Field({}, description="of kind join-leave")


LevelName = Literal["quick", "paper"]
LEVEL_NAMES: Final[tuple[LevelName, ...]] = get_args(LevelName)


class Levels(Block):
    """How thoroughly the experiment is run: quick takes minutes, paper as long as the papers'."""

    quick: Level
    paper: Level


class Spec(Block):
    """What every experiment file has."""

    name: Name
    description: Text
    topology: Text = Field(
        description="name of a topology of Downpour, or the path of a file, relative to the "
        "experiment file"
    )
    parameters: Parameters
    repeats: Repeats = 1
    base_seed: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]
    trace: TraceName = Field(
        MODEL,
        description=f"{', '.join(GENERATED)} (generated), or the path of a trace file, relative "
        "to the experiment file",
    )
    trace_seed: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)] | None = Field(
        None,
        description="seed of a generated trace, the same for all repeats, which then differ in "
        "their losses only; without it a repeat's seed is that of its trace too",
    )
    duration_s: Duration = Field(description="how much of the trace is replayed")
    drain_timeout_s: Duration = Field(
        120.0, description="how long to wait for the last product after the last insertion"
    )
    levels: Levels | None = None
    paper: tuple[PaperValue, ...] = ()
    claims: tuple[Claim, ...] = ()
    figures: tuple[Figure, ...] = ()


class ExperimentSpec(Spec):
    """An experiment file of Downpour: a cell for each combination of the factors' levels."""

    factors: Annotated[tuple[Factors, ...], BeforeValidator(_blocks)] = Field(
        min_length=1, description="one block, or a list of blocks whose cells are combined"
    )
    windows: Truth = Field(
        False,
        description="each repeat replays another window of one trace, with its own losses; all "
        "cells of a repeat share the window. The first window is the beginning of the trace. "
        "trace_seed, else base_seed, seeds a generated trace",
    )


class FeedSpec(Block):
    """A file-stream with its own path. It replays the trace with scaled sizes."""

    feed: FeedName = Field(description="LDM's feedtype, e.g. NGRID")
    rate_bps: RateBps = Field(description="r of this feed, its multicast and unicast rate")
    size_factor: Annotated[float, Field(gt=0, le=10, allow_inf_nan=False), NO_TRUTH] = Field(
        description="factor by which the sizes of the trace's products are multiplied"
    )


class SubscriptionsSpec(Block):
    """How subscribers come and go. One subscriber of each feed stays; all others join and leave.
    Runs of less than 600 s shorten both means, to a quarter at most."""

    stay_s: Seconds = Field(description="mean length of a session in 600 s")
    away_s: Seconds = Field(description="mean time between two sessions in 600 s")
    killed: Loss = Field(description="share of sessions that end by kill -9")
    visitors: Truth = Field(True, description="false: all subscribers stay with all feeds")


class JoinLeaveFactors(Block):
    """What varies. A factor replaces the key of the same name in `subscriptions`."""

    stay_s: tuple[Seconds, ...] | None = Field(default=None, min_length=1)
    away_s: tuple[Seconds, ...] | None = Field(default=None, min_length=1)
    killed: tuple[Loss, ...] | None = Field(default=None, min_length=1)
    borrow: tuple[Truth, ...] | None = Field(default=None, min_length=1)


SUBSCRIPTION_FACTORS: Final = {
    "stay_s": "stay",
    "away_s": "away",
    "killed": "killed",
    "borrow": "borrow",
}


class JoinLeaveSpec(Spec):
    """An experiment file of Downpour: subscribers join and leave feeds under load."""

    kind: Literal["join-leave"] = Field(description="join-leave")
    feeds: tuple[FeedSpec, ...] = Field(
        min_length=1, description="each uses one lane of the topology"
    )
    subscriptions: SubscriptionsSpec
    factors: JoinLeaveFactors = JoinLeaveFactors()
    lanes: Literal["nics", "vlan"] = Field(
        "nics",
        description="nics: a NIC for each feed; vlan: all feeds are VLANs of one NIC (DRFSM21 "
        "2.1.2) under one HTB that has the sum of their guarantees; needs 802.1Q",
    )
    borrow: Truth = Field(
        False,
        description="needs lanes: vlan; a feed sends at up to r_mc_ceil while others send less "
        "than their rates (DRFSM21 4)",
    )
    r_mc_ceil: Factor = Field(
        1.0, description="ceil of each of a feed's two queues, as a multiple of r; needs borrow"
    )


AnySpec = ExperimentSpec | JoinLeaveSpec
S = TypeVar("S", bound=Spec)


def json_schema() -> str:
    """Return the text of schema.json."""
    schema = TypeAdapter(AnySpec).json_schema()
    for block in ("Parameters", "SubscriptionsSpec"):  # a factor may have a required key's place
        schema["$defs"][block].pop("required")
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


def bundled() -> tuple[str, ...]:
    """Return the names of the experiments that come with Downpour."""
    return tuple(sorted(path.stem for path in EXPERIMENTS.glob("*.yaml")))


def find(name: str) -> Path:
    """Return the file of a bundled experiment, or `name` itself if it is a path to a YAML file.
    Raises UsageError."""
    if name in bundled():
        return EXPERIMENTS / f"{name}.yaml"
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    valid = f"{', '.join(bundled())}, or the path of a .yaml file{did_you_mean(name, bundled())}"
    raise UsageError(f"experiment: found '{name}'; valid: {valid}")


def load(path: Path) -> AnySpec:
    """Read and check an experiment file; make the paths that it names absolute. Raises SpecErrors
    with every mistake found."""
    return _with_paths_from(path.absolute().parent, validate(read_document(path, "an experiment")))


def is_topology_file(topology: str) -> bool:
    """Return whether an experiment's topology is its own file, not a bundled one."""
    return topology not in bundled_topologies() and topology.endswith((".yaml", ".yml"))


def _with_paths_from(folder: Path, spec: S) -> S:
    """Return the experiment with its paths, which are relative to `folder`, made absolute."""

    def trace(name: str | None) -> str | None:
        if name is None or name in GENERATED or name.startswith(f"{MODEL}:"):
            return name
        return str(folder / name)

    changes: dict[str, object] = {"trace": trace(spec.trace)}
    if isinstance(spec, ExperimentSpec):
        changes["factors"] = tuple(_with_traces(block, trace) for block in spec.factors)
    if is_topology_file(spec.topology):
        changes["topology"] = str(folder / spec.topology)
    if spec.levels is not None:
        levels = {name: getattr(spec.levels, name) for name in LEVEL_NAMES}
        changes["levels"] = Levels(
            **{
                n: v.model_copy(
                    update={"trace": trace(v.trace), "factors": _level_traces(v.factors, trace)}
                )
                for n, v in levels.items()
            }
        )
    return spec.model_copy(update=changes)


def _level_traces(factors: Any, absolute: Callable[[str | None], str | None]) -> Any:
    """Return a level's factors, in one block or several, with absolute traces."""
    if isinstance(factors, list):
        return [_level_traces(block, absolute) for block in factors]
    if not isinstance(factors.get("trace"), list):
        return factors
    return {**factors, "trace": [absolute(str(name)) for name in factors["trace"]]}


def _with_traces(block: Factors, absolute: Callable[[str | None], str | None]) -> Factors:
    if block.trace is None:
        return block
    return block.model_copy(update={"trace": tuple(absolute(name) for name in block.trace)})


def load_as(kind: type[S], path: Path) -> S:
    """Load a file that must be of this kind; see `load`."""
    spec = load(path)
    if not isinstance(spec, kind):
        found = f"an experiment of kind '{getattr(spec, 'kind', 'factors')}'"
        raise SpecErrors([Error(str(path), 1, found, kind.__name__)])
    return spec


def validate(document: Document) -> AnySpec:
    """Check a file. Raises SpecErrors with every mistake, those of its levels included."""
    spec: AnySpec | None = None
    if not isinstance(document.data, dict):
        document.report((), quote(document.data), "an experiment: keys such as name, factors")
    else:
        spec = _checked(document, _model_of(document.data), document.data, None)
    if spec is not None and spec.levels is not None and not document.errors:
        for name in LEVEL_NAMES:
            _checked(document, type(spec), _merged(spec, name), name)
    if document.errors or spec is None:
        raise SpecErrors(document.errors)
    return spec


def _checked(
    document: Document,
    model: type[ExperimentSpec] | type[JoinLeaveSpec],
    data: Mapping[str, object],
    level: str | None,
) -> AnySpec | None:
    """Check the document's `data`, as it is or at a level; mistakes go to the document."""
    reports = Reports(document, level, _keys_of(model))
    varied = _varied(data)
    whole = {**data, **{block: {**values, **_mapping(data, block)} for block, values in varied}}
    spec = reports.read(
        model, whole, {(block, name) for block, values in varied for name in values}
    )
    if spec is not None:
        _check_whole(reports, spec)
    return spec


def _mapping(data: Mapping[str, object], key: str) -> Mapping[str, Any]:
    found = data.get(key)
    return found if isinstance(found, Mapping) else {}


def _varied(data: Mapping[str, object]) -> list[tuple[str, dict[str, object]]]:
    """Return, by block of the file, the first level of each required key that all blocks of factors
    vary: the file need not give the key itself."""
    factors = data.get("factors")
    blocks: list[Any] = factors if isinstance(factors, list) else [factors]
    if not blocks or not all(isinstance(block, Mapping) for block in blocks):
        return []
    found = []
    for key, model in (("parameters", Parameters), ("subscriptions", SubscriptionsSpec)):
        values = {
            name: blocks[0][name][0]
            for name, field in model.model_fields.items()
            if field.is_required()
            and name not in _mapping(data, key)
            and all(isinstance(b.get(name), list) and b[name] for b in blocks)
        }
        if values and isinstance(data.get(key), Mapping):
            found.append((key, values))
    return found


def _model_of(data: Mapping[str, object]) -> type[ExperimentSpec] | type[JoinLeaveSpec]:
    return JoinLeaveSpec if "kind" in data else ExperimentSpec


def _keys_of(whole: type[BaseModel]) -> Callable[[Place], list[str]]:
    """Return a function that gives the keys that are valid at a place of the file."""
    blocks: dict[str, type[BaseModel]] = {
        "factors": JoinLeaveFactors if whole is JoinLeaveSpec else Factors,
        "parameters": Parameters,
        "levels": Levels,
        "paper": PaperValue,
        "claims": Claim,
        "figures": Figure,
        "feeds": FeedSpec,
        "subscriptions": SubscriptionsSpec,
    }

    plain = keys_by_block(whole, blocks)

    def keys(place: Place) -> list[str]:
        if place[0] == "levels" and len(place) == 3:
            return list(Level.model_fields)
        if {"at", "where", "against"} & set(place[1:-1]):
            return list(Where.model_fields)
        return plain(place)

    return keys


def _check_timeouts(reports: Reports, spec: AnySpec) -> None:
    """Check that f_snd is above f_rcv in every cell."""
    fixed = spec.parameters
    cases: list[tuple[Place, float, float]] = []
    if isinstance(spec, JoinLeaveSpec):
        cases.append((("parameters", "f_snd"), fixed.f_snd, fixed.f_rcv))
    else:
        for number, block in enumerate(spec.factors):
            place: Place = ("factors", number, "f_snd") if block.f_snd else ("parameters", "f_snd")
            f_rcv = max(block.f_rcv or (fixed.f_rcv,))
            cases.append((place, min(block.f_snd or (fixed.f_snd,)), f_rcv))
    for place, f_snd, f_rcv in cases:
        if f_snd <= f_rcv:
            reports.add(place, f"f_snd {f_snd:g}", f"above f_rcv, {f_rcv:g} (MPUP16 II)")


def _check_feeds(reports: Reports, spec: JoinLeaveSpec) -> None:
    names = [feed.feed for feed in spec.feeds]
    for index, name in enumerate(names):
        if name in names[:index]:
            reports.add(("feeds", index, "feed"), f"feed '{name}' twice", "each feed once")
    if spec.borrow or True in (spec.factors.borrow or ()):
        if spec.lanes != "vlan":
            reports.add(("lanes",), f"borrow with lanes {spec.lanes}", "lanes: vlan")
        if (ceil := spec.r_mc_ceil) <= max(1.0, spec.parameters.r_mc, spec.parameters.r_uc):
            reports.add(("r_mc_ceil",), f"borrow with r_mc_ceil {ceil:g}", "above r_mc and r_uc")


def _check_whole(reports: Reports, spec: AnySpec) -> None:
    """Check what must hold between blocks."""
    check_varied(reports, spec.factors)
    if isinstance(spec, JoinLeaveSpec):
        _check_feeds(reports, spec)
        for name in (*LISTS, "queue_i", "sender_bps"):
            if getattr(spec.parameters, name) is not None:
                reports.add(("parameters", name), name, "nothing: not with kind join-leave")
        for name in ("clock_offset_ms", "pause_ms"):
            if value := getattr(spec.parameters, name):
                valid = "0: not with kind join-leave"
                reports.add(("parameters", name), f"{name} {value:g}", valid)
        if spec.parameters.pull_path != "nic2":
            reports.add(("parameters", "pull_path"), "pull_path nic1", "nic2 with kind join-leave")
        if spec.parameters.shaped_by != "cell":
            reports.add(("parameters", "shaped_by"), "shaped_by: ldmd", "cell with kind join-leave")
        if spec.parameters.vlans_by != "network":
            valid = "network with kind join-leave"
            reports.add(("parameters", "vlans_by"), "vlans_by: ldmd", valid)
        for name in ("background_flows", "rival_sessions", "short_flows_per_min"):
            if flows := getattr(spec.parameters, name):
                place: Place = ("parameters", name)
                reports.add(place, f"{name} {flows:g}", "0: not with kind join-leave")
        if spec.parameters.bottleneck_bps:
            place = ("parameters", "bottleneck_bps")
            reports.add(place, "bottleneck_bps", "nothing: not with kind join-leave")
    else:
        check_factors(reports, spec.parameters, spec.factors)
    _check_timeouts(reports, spec)
    if (loss := spec.parameters.handoff_loss) >= 1.0:
        found = f"handoff_loss {loss:g}"
        reports.add(("parameters", "handoff_loss"), found, "a probability below 1, e.g. 0.01%")


# -- levels and options -----------------------------------------------------------------------
def at_level(spec: S, level: str | None) -> S:
    """Return a checked experiment at a level, without its levels. None: at its quick level, or
    itself if it has no levels. Raises UsageError."""
    name = level_of(spec, level)
    return spec if name is None else type(spec).model_validate(_merged(spec, name))


def level_of(spec: Spec, level: str | None) -> str | None:
    """Return the level that `at_level` uses. Raises UsageError."""
    if level is not None and level not in LEVEL_NAMES:
        raise UsageError(option_error("--level", level, " or ".join(LEVEL_NAMES)))
    if spec.levels is None and level is not None:
        raise UsageError(option_error("--level", level, f"without it: {spec.name} has no levels"))
    return None if spec.levels is None else level or LEVEL_NAMES[0]


def _merged(spec: Spec, level: str) -> dict[str, Any]:
    """Return the experiment's data with the level's values in place."""
    chosen: Level = getattr(spec.levels, level)
    data = spec.model_dump(mode="json", exclude={"levels"}, exclude_none=True)
    given = chosen.model_dump(mode="json", exclude_none=True)
    factors = given.pop("factors")
    if isinstance(factors, list):
        data["factors"] = factors
    elif isinstance(spec, ExperimentSpec):
        data["factors"] = [{**block, **factors} for block in data["factors"]]
    elif factors:
        data["factors"] = {**data.get("factors", {}), **factors}
    for block in ("parameters", "subscriptions"):
        if changes := given.pop(block):
            data[block] = {**data.get(block, {}), **changes}
    return {**data, **given}


def option_error(option: str, found: object, valid: str) -> str:
    """Return the error of a command line's option."""
    return f"{option}: found '{found}'; valid: {valid}"


if __name__ == "__main__":
    EXPERIMENTS.joinpath("schema.json").write_text(json_schema())
