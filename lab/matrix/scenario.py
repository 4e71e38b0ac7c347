"""The scenario document: a fleet and its load, faults in time, and expectations.

One language for the twin and for real runs. :mod:`lab.matrix.reading` reads it,
:mod:`lab.matrix.expect` judges a run by it. A fault is a lease: it acts from ``at`` for so
long, and is over then however the run ends. Lengths of time are texts such as ``90s`` or ``1h30m``;
other quantities are in the unit that their name ends in.
"""

from __future__ import annotations

import enum
import re
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct, field

__all__ = [
    "KILL_S",
    "LEVELS",
    "MOMENTS",
    "MOST_FAULTS",
    "QUANTITIES",
    "AtMost",
    "Expectation",
    "Fault",
    "FaultKind",
    "Fleet",
    "Level",
    "Load",
    "Never",
    "Period",
    "Recovers",
    "Runner",
    "Scenario",
    "Target",
    "Within",
    "seconds",
]

MOST_FAULTS = 200
MOST_EXPECTATIONS = 100
#: A kill or a move is a moment. What looks at faults in steps no longer than this does not miss it.
KILL_S = 10.0

NAME = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$(?!\n)"
#: of a series or a measure
SERIES = r"^[a-z][a-z0-9_]*$(?!\n)"
DURATION = r"^([0-9]+(\.[0-9]+)?[smhd])+$(?!\n)"

_Name: TypeAlias = Annotated[str, Meta(max_length=60, pattern=NAME)]
_Series: TypeAlias = Annotated[str, Meta(max_length=80, pattern=SERIES)]
_Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=2000)]
_Pattern: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]
_Duration: TypeAlias = Annotated[str, Meta(max_length=40, pattern=DURATION)]
_Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
_Positive: TypeAlias = Annotated[float, Meta(gt=0, le=1e15)]
_Kelvin: TypeAlias = Annotated[float, Meta(ge=-60, le=60)]
_Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=600)]
_Skew: TypeAlias = Annotated[float, Meta(ge=-86_400, le=86_400)]
_Count: TypeAlias = Annotated[int, Meta(ge=1, le=100_000)]

_UNITS_S = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])")


def seconds(text: str) -> float:
    """Return the seconds of a length of time that was read, such as ``1h30m``."""
    return sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(text))


class FaultKind(enum.StrEnum):
    """The kind of a fault. Each takes the quantities that :data:`QUANTITIES` names."""

    #: GPUs may draw only a share of their power limit
    POWER_LIMIT = "power_limit"
    #: a rack, a power domain or a site may draw only a share of its budget (demand response)
    POWER_BUDGET = "power_budget"
    #: a cooling zone is supplied warmer by so much
    SUPPLY_TEMPERATURE = "supply_temperature"
    #: a cooling zone carries away only a share of the heat that it could
    COOLING_LOSS = "cooling_loss"
    #: GPUs run at no more than a share of their top clock
    CLOCK_LIMIT = "clock_limit"
    #: a link carries less
    LINK_BANDWIDTH = "link_bandwidth"
    #: a link, or the way to a storage endpoint, takes longer by so much
    LINK_LATENCY = "link_latency"
    #: a share of the packets on a link, or to a storage endpoint, is lost
    LINK_LOSS = "link_loss"
    #: the time that a link takes varies by so much (standard deviation)
    LINK_JITTER = "link_jitter"
    #: nothing goes into a site or out of it; what runs there goes on
    SITE_ISOLATED = "site_isolated"
    #: shared storage serves less
    STORAGE_SLOW = "storage_slow"
    #: nodes are off
    NODE_LOSS = "node_loss"
    #: a feed of an A/B pair carries nothing: the other carries both
    FEED_LOSS = "feed_loss"
    #: nodes run on and say nothing
    STALE_TELEMETRY = "stale_telemetry"
    #: readings are off by a factor, by degrees, or do not change any more
    LYING_SENSOR = "lying_sensor"
    #: the clocks of nodes are ahead by so much
    CLOCK_SKEW = "clock_skew"
    #: the processes of a job get a share of the CPU time that they would use
    CPU_QUOTA = "cpu_quota"
    #: the processes of a job are killed; it may be started again
    KILL = "kill"
    #: a job is told to work on a share of its batch at a time
    SHRINK_BATCH = "shrink_batch"
    #: a job is told to stand still
    PAUSE = "pause"
    #: a job is told to save and to leave, and is started again at another place
    MOVE = "move"


class Level(enum.StrEnum):
    """The kind of thing that a fault acts on."""

    SITE = "site"
    ZONE = "zone"
    DOMAIN = "domain"
    RACK = "rack"
    NODE = "node"
    LINK = "link"
    STORAGE = "storage"


class Period(enum.StrEnum):
    """A part of a run, in its judged time."""

    RUN = "run"
    #: before the first fault
    BEFORE = "before"
    #: from the first fault's start to the last one's end
    FAULTS = "faults"
    #: after the last fault
    AFTER = "after"


class Runner(enum.StrEnum):
    """Who plays a scenario: the twin, or a real command."""

    #: the twin of a fleet
    TWIN = "twin"
    #: a real command on this machine
    COMMAND = "command"


#: The quantities of each kind of fault: of the first tuple exactly one has to be given, of the
#: second any. A kind with none is on or off.
QUANTITIES: dict[FaultKind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    FaultKind.POWER_LIMIT: (("share", "limit_w"), ()),
    FaultKind.POWER_BUDGET: (("share",), ()),
    FaultKind.SUPPLY_TEMPERATURE: (("offset_c",), ()),
    FaultKind.COOLING_LOSS: (("share",), ()),
    FaultKind.CLOCK_LIMIT: (("share", "limit_mhz"), ()),
    FaultKind.LINK_BANDWIDTH: (("share", "bits_per_s"), ()),
    FaultKind.LINK_LATENCY: (("latency_s",), ()),
    FaultKind.LINK_LOSS: (("loss_share",), ()),
    FaultKind.LINK_JITTER: (("jitter_s",), ()),
    FaultKind.SITE_ISOLATED: ((), ()),
    FaultKind.STORAGE_SLOW: (("share", "bytes_per_s"), ()),
    FaultKind.NODE_LOSS: ((), ()),
    FaultKind.FEED_LOSS: ((), ()),
    FaultKind.STALE_TELEMETRY: ((), ()),
    FaultKind.LYING_SENSOR: (("factor", "offset_c", "stuck"), ()),
    FaultKind.CLOCK_SKEW: (("skew_s",), ()),
    FaultKind.CPU_QUOTA: (("share",), ()),
    FaultKind.KILL: ((), ("resumes",)),
    FaultKind.SHRINK_BATCH: (("share",), ()),
    FaultKind.PAUSE: ((), ()),
    FaultKind.MOVE: ((), ()),
}

#: What each kind may be on; the first one is what it is on if nothing is said.
LEVELS: dict[FaultKind, tuple[Level, ...]] = {
    FaultKind.POWER_LIMIT: (Level.NODE, Level.RACK, Level.ZONE, Level.SITE),
    FaultKind.POWER_BUDGET: (Level.DOMAIN, Level.RACK),
    FaultKind.SUPPLY_TEMPERATURE: (Level.ZONE, Level.SITE),
    FaultKind.COOLING_LOSS: (Level.ZONE, Level.SITE),
    FaultKind.CLOCK_LIMIT: (Level.NODE, Level.RACK, Level.ZONE, Level.SITE),
    FaultKind.LINK_BANDWIDTH: (Level.LINK,),
    FaultKind.LINK_LATENCY: (Level.LINK, Level.STORAGE),
    FaultKind.LINK_LOSS: (Level.LINK, Level.STORAGE),
    FaultKind.LINK_JITTER: (Level.LINK,),
    FaultKind.SITE_ISOLATED: (Level.SITE,),
    FaultKind.STORAGE_SLOW: (Level.STORAGE,),
    FaultKind.NODE_LOSS: (Level.NODE, Level.RACK, Level.ZONE, Level.SITE),
    FaultKind.FEED_LOSS: (Level.DOMAIN,),
    FaultKind.STALE_TELEMETRY: (Level.NODE, Level.RACK, Level.ZONE, Level.SITE),
    FaultKind.LYING_SENSOR: (Level.NODE, Level.RACK, Level.ZONE, Level.SITE),
    FaultKind.CLOCK_SKEW: (Level.NODE, Level.RACK, Level.ZONE, Level.SITE),
    FaultKind.CPU_QUOTA: (Level.NODE, Level.RACK, Level.ZONE, Level.SITE),
    FaultKind.KILL: (Level.NODE, Level.RACK, Level.ZONE, Level.SITE),
    FaultKind.SHRINK_BATCH: (Level.NODE, Level.RACK, Level.ZONE, Level.SITE),
    FaultKind.PAUSE: (Level.NODE, Level.RACK, Level.ZONE, Level.SITE),
    FaultKind.MOVE: (Level.NODE, Level.RACK, Level.ZONE, Level.SITE),
}

#: These have no length.
MOMENTS = (FaultKind.KILL, FaultKind.MOVE)


class Fleet(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fleet that the twin builds. A real run has its machine."""

    gpus: Annotated[_Count, Meta(description="GPUs, rounded up to whole nodes of 8")] = 256
    sites: Annotated[int, Meta(ge=1, le=20, description="sites that they stand in")] = 2
    power_share: Annotated[
        float,
        Meta(gt=0, le=2, description="budgets of racks, over what their nodes may draw at most"),
    ] = 1.0
    feed_share: Annotated[
        float,
        Meta(gt=0, le=2, description="what feeds and sites may draw, over what their racks may"),
    ] = 1.0
    cooling_share: Annotated[
        float,
        Meta(gt=0, le=2, description="heat that zones carry away, over the budgets of their racks"),
    ] = 1.05


class Load(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The jobs that the twin is given. A real run has its command."""

    demand: Annotated[
        float,
        Meta(gt=0, le=10, description="GPU time that is asked for, as a share of the fleet's"),
    ] = 1.0
    gpus: Annotated[
        tuple[_Count, ...],
        Meta(min_length=1, max_length=20, description="sizes of jobs, drawn evenly"),
    ] = (8, 16, 32)
    runs: Annotated[_Duration, Meta(description="median length of a job at full speed")] = "20m"
    spread: Annotated[
        float, Meta(ge=0, le=3, description="sigma of the lengths' log-normal distribution")
    ] = 0.4
    at_once: Annotated[
        float, Meta(ge=0, le=1, description="share of the jobs that wait at the start")
    ] = 0.5
    checkpoint: Annotated[_Duration, Meta(description="time between checkpoints")] = "5m"
    elastic: Annotated[_Share, Meta(description="share of jobs that may shrink their batch")] = 0.5
    pausable: Annotated[_Share, Meta(description="share of jobs that may be paused")] = 0.5
    cross_site: Annotated[
        _Share, Meta(description="share of jobs whose checkpoints may go to another site")
    ] = 0.3


class Target(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The target of a fault: all of a level, those whose names match, or some drawn by the seed."""

    level: Annotated[
        Level | None, Meta(description="what it is on; without it, what the kind is about")
    ] = None
    names: Annotated[
        tuple[_Pattern, ...],
        Meta(max_length=100, description="names, * for any characters; none: all of the level"),
    ] = ()
    count: Annotated[
        _Count | None, Meta(description="so many of them, drawn by the seed; none: all")
    ] = None


class Fault(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fault that acts for a time. Its severity is given by the kind's quantity."""

    kind: Annotated[FaultKind, Meta(description="what is wrong")]
    at: Annotated[_Duration, Meta(description="when it begins, from the start of the run")]
    lasts: Annotated[
        _Duration | None, Meta(description="how long it acts; without it, to the end of the run")
    ] = field(name="for", default=None)
    target: Annotated[Target, Meta(description="what it is on")] = Target()
    share: Annotated[_Share | None, Meta(description="what is left, as a share of normal")] = None
    limit_w: Annotated[_Positive | None, Meta(description="W per GPU that are left")] = None
    limit_mhz: Annotated[_Positive | None, Meta(description="MHz that are left")] = None
    bits_per_s: Annotated[_Positive | None, Meta(description="bit/s that are left")] = None
    bytes_per_s: Annotated[_Positive | None, Meta(description="bytes/s that are left")] = None
    offset_c: Annotated[
        _Kelvin | None, Meta(description="°C warmer; of a sensor, °C that it reads too much")
    ] = None
    latency_s: Annotated[_Seconds | None, Meta(description="seconds more, one way")] = None
    jitter_s: Annotated[_Seconds | None, Meta(description="standard deviation of the delay")] = None
    loss_share: Annotated[_Share | None, Meta(description="share of packets that are lost")] = None
    factor: Annotated[
        Annotated[float, Meta(ge=0, le=10)] | None,
        Meta(description="power that a sensor reads, as a multiple of the true one"),
    ] = None
    stuck: Annotated[bool | None, Meta(description="readings stay as they were")] = None
    skew_s: Annotated[_Skew | None, Meta(description="seconds that a clock is ahead")] = None
    resumes: Annotated[bool, Meta(description="of a kill: the job is started again")] = True

    @property
    def at_s(self) -> float:
        return seconds(self.at)

    @property
    def until_s(self) -> float:
        """When the fault ends, s; infinity: with the run."""
        if self.kind in MOMENTS:
            return self.at_s + KILL_S
        return float("inf") if self.lasts is None else self.at_s + seconds(self.lasts)

    @property
    def level(self) -> Level:
        return self.target.level or LEVELS[self.kind][0]

    def acts(self, now_s: float) -> bool:
        """Say whether it acts at a moment of the run."""
        return self.at_s <= now_s < self.until_s


class Never(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A series is never above or below a value, or not for so long at a time."""

    series: _Series
    above: float | None = None
    below: float | None = None
    lasting: Annotated[
        _Duration, Meta(description="shorter than this does not count; 0s: a moment does")
    ] = field(name="for", default="0s")
    during: Annotated[Period, Meta(description="the part of the run that is looked at")] = (
        Period.RUN
    )


class Within(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A series gets above or below a value within a time after a fault began or ended."""

    series: _Series
    above: float | None = None
    below: float | None = None
    time: Annotated[_Duration, Meta(description="how soon")]
    fault: Annotated[
        Annotated[int, Meta(ge=0, lt=MOST_FAULTS)] | None,
        Meta(description="place of the fault in the list, from 0; without it, the first one"),
    ] = None
    after: Annotated[str, Meta(pattern="^(start|end)$", description="of the fault")] = "start"


class AtMost(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A measure of the whole run is no higher than a value."""

    measure: _Series
    value: float


class Recovers(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """After the last fault a series comes back within a time, and stays for ``hold``.

    Back is ``share`` of its mean before the first fault, or a value to be above or below.
    """

    series: _Series
    share: Annotated[float, Meta(gt=0, le=10)] | None = None
    above: float | None = None
    below: float | None = None
    time: Annotated[_Duration, Meta(description="how soon after the end of the last fault")]
    hold: Annotated[_Duration, Meta(description="how long it has to stay so")] = "60s"


class Expectation(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One expectation of a run: exactly one of these."""

    never: Never | None = None
    within: Within | None = None
    at_most: AtMost | None = None
    recovers: Recovers | None = None


class Scenario(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A timed list of faults on a fleet and the expectations that must hold."""

    name: Annotated[_Name, Meta(description="unique among the scenarios of a matrix")]
    title: Annotated[_Text, Meta(description="one line for people")]
    about: Annotated[
        str, Meta(max_length=4000, description="what it is for, and what good looks like")
    ] = ""
    runs_on: Annotated[
        tuple[Runner, ...], Meta(min_length=1, max_length=2, description="what plays it")
    ] = (Runner.TWIN,)
    fleet: Fleet = Fleet()
    load: Load = Load()
    warm_up: Annotated[
        _Duration, Meta(description="the start of the run, which is not judged or measured")
    ] = "0s"
    duration: Annotated[_Duration, Meta(description="length of the run, with its warm-up")]
    faults: Annotated[tuple[Fault, ...], Meta(max_length=MOST_FAULTS)] = ()
    expect: Annotated[tuple[Expectation, ...], Meta(max_length=MOST_EXPECTATIONS)] = ()

    @property
    def warm_up_s(self) -> float:
        return seconds(self.warm_up)

    @property
    def duration_s(self) -> float:
        return seconds(self.duration)

    @property
    def first_fault_s(self) -> float | None:
        """When the first fault begins; None: there is none."""
        return min((each.at_s for each in self.faults), default=None)

    @property
    def last_fault_s(self) -> float | None:
        """When the last fault is over, at the latest with the run; None: there is none."""
        ends = [min(each.until_s, self.duration_s) for each in self.faults]
        return max(ends, default=None)
