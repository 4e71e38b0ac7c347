"""Failures of a fleet: what belongs to one failure, what caused it, and how often they come. Pure.

What is recorded comes as signs: errors that GPUs logged, ends of jobs, drains, and what went on
around them. Signs on one node that follow each other closely are of one failure. Its cause is that
of its sign that comes first in :class:`Kind`. Times are Unix s; nodes and GPUs are rows.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from physics.reliability import estimate_mtbf, lemon_nodes

__all__ = [
    "CAUSES",
    "COMPONENTS",
    "COUNTED",
    "Cause",
    "Exposure",
    "Failure",
    "Kind",
    "Lemons",
    "Rates",
    "Sign",
    "failures_of",
    "lemons_of",
    "observed",
    "rates",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
#: Times from a start to an end, Unix s.
Times = Sequence[tuple[float, float]]


class Cause(enum.StrEnum):
    """What a failure is of."""

    HARDWARE = "hardware"
    #: power and cooling
    PLANT = "plant"
    #: between nodes, and to storage and services that they ask
    NETWORK = "network"
    #: the program itself
    SOFTWARE = "software"
    UNKNOWN = "unknown"


class Kind(enum.StrEnum):
    """Kinds of signs, in order of precedence: of several, the first says what it was."""

    #: a critical incident of a power domain or cooling zone, while a node there was lost
    POWER_OUTAGE = "power_outage"
    COOLING_OUTAGE = "cooling_outage"
    #: errors of hardware that GPUs told of
    GPU_MEMORY = "gpu_memory"
    NVLINK = "nvlink"
    GPU = "gpu"
    #: hardware slowed a GPU of the node: its power supply, or heat
    POWER_BRAKE = "power_brake"
    HEAT = "heat"
    #: a command's output tells of hardware, of which nothing was logged
    TOLD_MEMORY = "told_memory"
    TOLD_NVLINK = "told_nvlink"
    TOLD_GPU = "told_gpu"
    #: a critical incident of a link of the site, and the job was on several nodes
    LINK = "link"
    #: output tells of storage that failed
    STORAGE = "storage"
    #: an error that a program brings about, and an exception that ended it
    PROGRAM_ERROR = "program_error"
    EXCEPTION = "exception"
    #: output tells of a connection to a service
    CONNECTION = "connection"
    #: the work of a job ended by itself, and nothing says more
    EXIT = "exit"
    #: all trace of the work of a job is gone
    NODE_LOST = "node_lost"
    #: output tells of collectives: one broke, CUDA did not know why, one was not done in time
    BROKEN = "collective_broken"
    UNCLEAR = "unclear"
    HUNG = "collective_hung"
    #: a rule or a playbook drained the node
    DRAIN = "drain"


CAUSES: Mapping[Kind, Cause] = {
    Kind.POWER_OUTAGE: Cause.PLANT,
    Kind.COOLING_OUTAGE: Cause.PLANT,
    Kind.GPU_MEMORY: Cause.HARDWARE,
    Kind.NVLINK: Cause.HARDWARE,
    Kind.GPU: Cause.HARDWARE,
    Kind.POWER_BRAKE: Cause.PLANT,
    Kind.HEAT: Cause.PLANT,
    Kind.TOLD_MEMORY: Cause.HARDWARE,
    Kind.TOLD_NVLINK: Cause.HARDWARE,
    Kind.TOLD_GPU: Cause.HARDWARE,
    Kind.LINK: Cause.NETWORK,
    Kind.STORAGE: Cause.NETWORK,
    Kind.PROGRAM_ERROR: Cause.SOFTWARE,
    Kind.EXCEPTION: Cause.SOFTWARE,
    Kind.CONNECTION: Cause.NETWORK,
    Kind.EXIT: Cause.SOFTWARE,
    Kind.NODE_LOST: Cause.UNKNOWN,
    Kind.BROKEN: Cause.NETWORK,
    Kind.UNCLEAR: Cause.UNKNOWN,
    Kind.HUNG: Cause.UNKNOWN,
    Kind.DRAIN: Cause.UNKNOWN,
}
#: The component that a failure is counted for.
COMPONENTS: Mapping[Kind, str] = {
    Kind.POWER_OUTAGE: "power",
    Kind.COOLING_OUTAGE: "cooling",
    Kind.GPU_MEMORY: "gpu_memory",
    Kind.NVLINK: "nvlink",
    Kind.GPU: "gpu",
    Kind.POWER_BRAKE: "power",
    Kind.HEAT: "cooling",
    Kind.TOLD_MEMORY: "gpu_memory",
    Kind.TOLD_NVLINK: "nvlink",
    Kind.TOLD_GPU: "gpu",
    Kind.LINK: "network",
    Kind.STORAGE: "storage",
    Kind.PROGRAM_ERROR: "program",
    Kind.EXCEPTION: "program",
    Kind.CONNECTION: "service",
    Kind.EXIT: "program",
    Kind.NODE_LOST: "node",
    Kind.BROKEN: "network",
    Kind.UNCLEAR: "gpu",
    Kind.HUNG: "collective",
    Kind.DRAIN: "node",
}
#: Causes that count for rates: a program fails wherever it runs.
COUNTED = tuple(cause for cause in Cause if cause is not Cause.SOFTWARE)

_ORDER = {kind: place for place, kind in enumerate(Kind)}
#: Hardware that tells of itself: what a command says of it is its word alone.
_HARDWARE = frozenset({Kind.GPU_MEMORY, Kind.NVLINK, Kind.GPU})
_OF_NODE = _HARDWARE | {Kind.NODE_LOST, Kind.DRAIN}
#: Ends that a job has by itself: one after the other on a node are of as many failures.
_ENDS = frozenset({
    Kind.TOLD_MEMORY, Kind.TOLD_NVLINK, Kind.TOLD_GPU, Kind.STORAGE, Kind.EXCEPTION,
    Kind.CONNECTION, Kind.BROKEN, Kind.UNCLEAR, Kind.HUNG, Kind.EXIT,
})  # fmt: skip
#: So long after a sign, another on the same node is of the same failure, s: of a sign of hardware
#: (it comes again and again; a job takes its time to end; a drain waits for a rule), of a lost
#: node, and of a job's end (a log may be a little behind).
_AFTER_HARDWARE_S, _AFTER_END_S, _DRAINED_WITHIN_S = 600.0, 120.0, 3600.0
#: So long after a node was last heard, what is told of it may be how it failed, s.
_TOLD_WITHIN_S = _DRAINED_WITHIN_S
#: So long before a failure, what explains it may have been over, s.
_EXPLAINS_S = 600.0


@dataclass(frozen=True, slots=True)
class Sign:
    """Something recorded. ``begins``: it is a failure, even if it stands alone.

    It holds from ``at`` to ``until``, and had begun unseen ``before_s`` before ``at``, s. ``nodes``
    are those that it may be of; one is where it was seen. ``job`` is a key "job/phase/attempt".
    """

    kind: Kind
    at: float
    nodes: tuple[int, ...]
    text: str
    gpu: int = -1
    job: str = ""
    begins: bool = True
    until: float | None = None
    before_s: float = 0.0


@dataclass(slots=True)
class Failure:
    """One failure with all its signs, the one that says what it was first."""

    at: float
    signs: list[Sign] = field(default_factory=list)
    #: of its latest sign that does not only explain it
    latest: float = -np.inf

    @property
    def kind(self) -> Kind:
        return self.signs[0].kind

    @property
    def cause(self) -> Cause:
        return CAUSES[self.kind]

    @property
    def component(self) -> str:
        return COMPONENTS[self.kind]

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes that it may be of: of all signs that name any, the fewest."""
        named = [each.nodes for each in self.signs if each.nodes and _is_of_place(each)]
        return min(named, key=len, default=())

    @property
    def is_of_node(self) -> bool:
        """Whether it is of one node, as far as anybody knows: not of its plant or its program.

        What a command says of its node is no proof against it.
        """
        return len(self.nodes) == 1 and self.kind in _OF_NODE

    @property
    def gpu(self) -> int:
        return next((each.gpu for each in self.signs if each.gpu >= 0), -1)

    @property
    def jobs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.job for each in self.signs if each.job))

    def has(self, *kinds: Kind) -> bool:
        return any(each.kind in kinds for each in self.signs)


@dataclass(frozen=True, eq=False)
class Exposure:
    """When nodes were observed in a span: the times of which their agents have readings.

    ``start`` and ``end`` are of those times, Unix s, an element for each, and ``watch`` says whose
    they are, in ascending order. ``watch_of_node`` is the row of a node's watch, -1: it has none.
    """

    start: Floats
    end: Floats
    watch: Ints
    watch_of_node: Ints

    @property
    def seconds(self) -> Floats:
        """For how long each node was observed, s."""
        return self._of_nodes(self.end - self.start)

    @property
    def silent_s(self) -> Floats:
        """For how long each node was not, between the first and the last time that it was, s."""
        goes_on = np.r_[False, self.watch[1:] == self.watch[:-1]]
        before = np.r_[0.0, self.end[:-1]]
        return self._of_nodes(np.where(goes_on, self.start - before, 0.0))

    def _of_nodes(self, seconds: Floats) -> Floats:
        # The last element is that of nodes without a watch: theirs is -1.
        watches = int(self.watch_of_node.max(initial=-1)) + 1
        added = np.bincount(self.watch, seconds, watches + 1).astype(np.float64)
        return added[self.watch_of_node]

    def holds(self, failure: Failure) -> bool:
        """Say whether one of the nodes of a failure was observed as it came.

        It may be told of after its node fell silent: the end of a job there, or a drain, within an
        hour. What a log had from before the node was observed is not in it.
        """
        watches = self.watch_of_node[np.array(failure.nodes, dtype=np.int64)]
        here = np.isin(self.watch, watches)
        is_seen = (self.start <= failure.at) & (failure.at <= self.end + _TOLD_WITHIN_S)
        return bool((here & is_seen).any())


@dataclass(frozen=True, eq=False)
class Rates:
    """How often devices of groups fail, an element for each group. Rates are per device-second.

    NaN where nothing was observed. Without a failure ``rate`` is 0 and ``upper`` a one-sided bound.
    """

    #: counts
    failures: Floats
    exposure_s: Floats
    rate: Floats
    lower: Floats
    upper: Floats


@dataclass(frozen=True, slots=True)
class Lemons:
    """Nodes that fail more than the rest, and their share of the failures of nodes, 0 to 1.

    ``share`` is None where no node failed.
    """

    nodes: tuple[int, ...]
    failures: int
    share: float | None


def failures_of(signs: Iterable[Sign]) -> list[Failure]:
    """Return the failures that signs tell of, in order of time, each with its cause.

    Signs that do not begin a failure are left out unless they explain one.
    """
    ordered = sorted(signs, key=_when)
    found: list[Failure] = []
    by_node: dict[int, list[Failure]] = defaultdict(list)
    explaining = [each for each in ordered if each.kind in _EXPLAIN]
    for sign in ordered:
        if sign.kind in _EXPLAIN:
            continue
        failure = _joined(sign, by_node)
        if failure is None:
            if not sign.begins:
                continue
            failure = Failure(sign.at)
            found.append(failure)
        failure.signs.append(sign)
        failure.latest = sign.at
        for node in sign.nodes:
            if not by_node[node] or by_node[node][-1] is not failure:
                by_node[node].append(failure)
    _explain(found, explaining)
    for failure in found:
        failure.signs.sort(key=lambda each: (_ORDER[each.kind], each.at))
    return found


def observed(agents: Iterable[tuple[float, float, Times]], within: tuple[float, float]) -> Times:
    """Return the times in which one at least of some agents was heard, in order and apart.

    Of each agent the first and the last moment at which it was heard at all, Unix s, and its
    silences. ``within`` are the ends of what is asked for.
    """
    heard = [
        (max(start, within[0]), min(end, within[1]))
        for first, last, silences in agents
        for start, end in _without(first, last, silences)
    ]
    return _together(heard)


def rates(failures: Floats, exposure_s: Floats, confidence: float = 0.95) -> Rates:
    """Return the failure rate of each group, with the exact interval of a Poisson count (χ²)."""
    seen = exposure_s > 0.0
    mtbf = estimate_mtbf(
        failures=failures, exposure_s=np.where(seen, exposure_s, 1.0), confidence=confidence
    )

    def per_s(each_s: Floats | float) -> Floats:
        return np.where(seen, 1.0 / np.asarray(each_s, dtype=np.float64), np.nan)

    return Rates(failures, exposure_s, per_s(mtbf.mtbf_s), per_s(mtbf.upper_s), per_s(mtbf.lower_s))


def lemons_of(found: Sequence[Failure], exposure_s: Floats) -> Lemons:
    """Return which nodes fail more than the rest; ``exposure_s`` by node.

    Failures of hardware and of unknown cause count, where their node is known and was observed.
    """
    rows = np.array([each.nodes[0] for each in found if each.is_of_node], dtype=np.int64)
    rows = rows[exposure_s[rows] > 0.0]
    if not rows.size:
        return Lemons((), 0, None)
    counts = np.bincount(rows, minlength=exposure_s.size).astype(np.float64)
    flagged = lemon_nodes(failures=counts, exposure_s=exposure_s).flagged
    failures = int(counts[flagged].sum())
    return Lemons(tuple(np.flatnonzero(flagged).tolist()), failures, failures / rows.size)


def _without(start: float, end: float, silences: Times) -> Iterator[tuple[float, float]]:
    """Yield what is left of a time without ``silences``."""
    for since, until in _together(silences):
        yield start, min(since, end)
        start = max(start, until)
    yield start, end


def _together(times: Times) -> Times:
    """Return ``times`` in order, as one where they touch, without empty ones."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(times):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif start < end:
            found.append((start, end))
    return found


_OF_COLLECTIVES = (Kind.BROKEN, Kind.UNCLEAR, Kind.HUNG)
#: What only explains a failure, and which signs the failure has to have for it.
_EXPLAIN: Mapping[Kind, tuple[Kind, ...]] = {
    Kind.POWER_OUTAGE: (Kind.NODE_LOST,),
    Kind.COOLING_OUTAGE: (Kind.NODE_LOST,),
    Kind.POWER_BRAKE: (Kind.NODE_LOST, *_HARDWARE),
    Kind.HEAT: (Kind.NODE_LOST, *_HARDWARE),
    Kind.LINK: (Kind.NODE_LOST, Kind.EXIT, Kind.CONNECTION, *_OF_COLLECTIVES),
    Kind.PROGRAM_ERROR: (Kind.EXIT, Kind.EXCEPTION, Kind.UNCLEAR),
}


def _when(sign: Sign) -> tuple[float, int, tuple[int, ...], str]:
    """Return the place of a sign in time; those of one moment are in an order of their own."""
    return sign.at, _ORDER[sign.kind], sign.nodes, sign.text


def _is_of_place(sign: Sign) -> bool:
    """Say whether a sign tells where a failure was; what explains it may be of many places."""
    return sign.kind not in _EXPLAIN


def _joined(sign: Sign, by_node: Mapping[int, list[Failure]]) -> Failure | None:
    """Return the failure that a sign is of, the latest on one of its nodes; None: of none."""
    latest = [by_node[node][-1] for node in sign.nodes if by_node.get(node)]
    near = [each for each in latest if _is_near(sign, each)]
    return max(near, key=lambda each: each.at, default=None)


def _is_near(sign: Sign, failure: Failure) -> bool:
    within_s = _within_s(sign, failure)
    return within_s >= 0.0 and sign.at - sign.before_s - failure.latest <= within_s


def _within_s(sign: Sign, failure: Failure) -> float:
    """Return how long after the latest sign of a failure this one is of it, s; below 0: never."""
    is_hard, is_lost = failure.has(*_HARDWARE), failure.has(Kind.NODE_LOST)
    if sign.kind is Kind.DRAIN:
        return _DRAINED_WITHIN_S if is_hard or is_lost else -1.0
    if is_hard:
        return _AFTER_HARDWARE_S
    if failure.has(Kind.DRAIN) and not is_lost:
        return -1.0
    if sign.kind in _ENDS or (sign.kind is Kind.NODE_LOST and not is_lost):
        return -1.0
    return _AFTER_END_S


def _explain(found: Sequence[Failure], signs: Sequence[Sign]) -> None:
    """Add to each failure what explains it."""
    if not found or not signs:
        return
    starts = np.array([each.at for each in signs])
    ends = np.array([each.at if each.until is None else each.until for each in signs])
    covered = [frozenset(each.nodes) for each in signs]
    for failure in found:
        near = (starts <= failure.at + _AFTER_END_S) & (ends >= failure.at - _EXPLAINS_S)
        nodes = {node for each in failure.signs for node in each.nodes}
        kinds = {each.kind for each in failure.signs}
        for place in np.flatnonzero(near).tolist():
            sign = signs[place]
            is_of_gang = sign.kind is not Kind.LINK or len(nodes) > 1
            if is_of_gang and kinds.intersection(_EXPLAIN[sign.kind]) and nodes & covered[place]:
                failure.signs.append(sign)
