"""The worlds of ``bench.scaling``: two scenes and windows of traces, under four ways of scaling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from admission.core.cycle.decide import Decisions, decide
from admission.core.cycle.move import Move, Moves
from admission.core.cycle.queue import moved_to
from admission.core.moving import MoveKind, MovingPolicy
from admission.core.placement.place import place
from admission.core.request import Locality, Refusal, Request
from admission.core.snapshot import Running, Snapshot
from lab.approaches import windows
from lab.approaches.deciding import by_free_gpus
from lab.fleet import make_even_fleet
from lab.spread import Work
from lab.traces.arrivals import arrivals
from lab.twin import NO_FAILURES, Conditions
from lab.world import Arrival, Policy, World
from lab.world.policy import Headroom
from lab.world.record import Record
from tests.unit.lab.world.builders import make_arrival

__all__ = [
    "RUN",
    "SCENES",
    "WAYS",
    "Outcome",
    "Played",
    "development_parts",
    "scene_parts",
    "trace_parts",
]

WAYS = ("ours", "fixed", "queue", "blind")
#: What a rigid and an elastic job draw together, as a share of the budget of their rack.
SCENES = {"tight": 0.85, "roomy": 0.5}
SEEDS = (1, 2, 3)
#: Percentile of demand of the windows that are judged, and of those to develop on, with their seed.
_JUDGED_RANK, _DEVELOPMENT_RANKS, _DEVELOPMENT_SEED = 50, (35, 65), 11
_FORMS = ("philly", "openb", "helios")
_GPUS, _DEMAND, _POWER_SHARE, _HOURS = 48, 0.7, 0.75, 2.0
_CONTENTION = (0.0, 0.02, 0.1, 0.4)
_MOST_GPUS = 32
#: From the start of a command until it goes on from what it saved, s: with what saving and ending
#: takes that is about what the policy takes a move to cost.
_STARTS_S = 150.0
#: How long a job of a scene runs at least, and a scene lasts, and when its jobs have begun, s.
_LONG_S, _SCENE_S, _BEGUN_S = 20_000.0, 3_600.0, 300.0
#: Scaling by the queue leaves a job alone for so long, as usual autoscalers do, s.
_STABLE_S = 300.0
_STILL = MovingPolicy(grows=False, shrinks=False)


@dataclass(frozen=True)
class Played:
    """One run: a scene or the form of a trace, a way of scaling and a seed."""

    scene: str
    way: str
    seed: int
    traces: Path = field(default=Path())
    #: percentile of the window of a trace, among all by their demand
    rank: float = _JUDGED_RANK

    @property
    def name(self) -> str:
        return self.scene if self.rank == _JUDGED_RANK else f"{self.scene} {self.rank:g}"


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    scene: str
    way: str
    seed: int
    work_gpu_h: float
    over_s: float
    #: all of it, and what nobody has capped
    throttled_gpu_s: float
    unexpected_gpu_s: float
    kwh: float
    moves: int

    @property
    def order(self) -> tuple[str, int, str]:
        return self.scene, self.seed, self.way

    def told(self) -> str:
        return (
            f"{self.scene:9} {self.seed} {self.way:6} work {self.work_gpu_h:8.2f} GPU h"
            f"  over {self.over_s:6.0f} s  throttled {self.throttled_gpu_s:8.0f} GPU s"
            f" ({self.unexpected_gpu_s:.0f} unexpected)"
            f"  {self.kwh:7.1f} kWh  {self.moves:3d} moves"
        )


def scene_parts() -> list[Played]:
    return [Played(scene, way, 1) for scene in SCENES for way in WAYS]


def trace_parts(traces: Path) -> list[Played]:
    return [Played(form, way, seed, traces) for form in _FORMS for seed in SEEDS for way in WAYS]


def development_parts(traces: Path) -> list[Played]:
    return [
        Played(form, way, _DEVELOPMENT_SEED, traces, rank)
        for form in _FORMS
        for rank in _DEVELOPMENT_RANKS
        for way in WAYS
    ]


# --- Ways of scaling ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _ByQueue(Headroom):
    """Jobs grow to all that they may while nobody waits, and shrink to what they asked for else."""

    name: str = "queue"

    def decide(self, snapshot: Snapshot) -> Decisions:
        still = self.starts(replace(snapshot, moving=_STILL, curves={}))
        moved = _back(snapshot) if still.waiting else _forth(still)
        return replace(still, moves=Moves(tuple(moved)))

    def starts(self, snapshot: Snapshot) -> Decisions:
        return decide(snapshot)


@dataclass(frozen=True, kw_only=True)
class _Blind(_ByQueue):
    """The same by free GPUs alone."""

    name: str = "blind"
    enforces_budgets: bool = False
    follows_rules: bool = False
    caps: bool = False
    responds: bool = False
    controls: bool = False
    sheds: bool = False
    moves: bool = False

    def starts(self, snapshot: Snapshot) -> Decisions:
        return by_free_gpus(snapshot)


def _is_scaled(snapshot: Snapshot, running: Running) -> bool:
    """Say whether scaling by the queue looks at a job."""
    is_new = snapshot.now - running.started_at < _STABLE_S
    return running.request.preemptible and not running.preempting and not is_new


def _forth(decisions: Decisions) -> Iterator[Move]:
    """Yield the jobs that grow as far as they may: those first that have longest to go."""
    snapshot, cluster = decisions.snapshot, decisions.after.cluster.copy()
    for each in sorted(snapshot.running, key=lambda one: -one.expected_end_at):
        have, request = len(each.placement.gpus), each.request
        if have >= request.most_gpus or not _is_scaled(snapshot, each):
            continue
        without = cluster.copy()
        without.free(each.placement, request)
        wanted = replace(request, gpus=request.most_gpus, min_gpus=have + 1, lowest_cap_w=None)
        found = place(without, wanted)
        if isinstance(found, Refusal):
            continue
        moved = moved_to(cluster.fleet, each, found)
        if cluster.admits(moved.more, moved.request):
            cluster.allocate(moved.more, moved.request)
            yield Move(request.key, MoveKind.GROWTH, found, "", 0.0, 0.0, "nobody waits")


def _back(snapshot: Snapshot) -> Iterator[Move]:
    """Yield the jobs that give back what they have beyond what they asked for."""
    for each in snapshot.running:
        if len(each.placement.gpus) > each.request.gpus and _is_scaled(snapshot, each):
            yield from _smaller(snapshot, each)


def _smaller(snapshot: Snapshot, running: Running) -> Iterator[Move]:
    cluster, request = snapshot.cluster.copy(), running.request
    cluster.free(running.placement, request)
    found = place(cluster, replace(request, min_gpus=request.gpus))
    if not isinstance(found, Refusal):
        yield Move(request.key, MoveKind.SHRINKING, found, "", 0.0, 0.0, "somebody waits")


def _policy(way: str) -> Policy:
    if way == "queue":
        return Policy(name=way, approach=_ByQueue())
    if way == "blind":
        return Policy(name=way, approach=_Blind(), rules=(), playbooks={})
    return Policy(name=way, moving=MovingPolicy() if way == "ours" else _STILL)


# --- Scenes ---------------------------------------------------------------------------------------


def _scene_jobs() -> list[Arrival]:
    """Return a rigid job, an elastic one, and one that fills the rack until the two have begun."""
    return [
        make_arrival("rigid", gpus=16, runs_s=_LONG_S, walltime_s=10 * _LONG_S),
        make_arrival("filling", gpus=12, runs_s=0.6 * _BEGUN_S, walltime_s=_BEGUN_S),
        make_arrival(
            "sweep", gpus=4, min_gpus=2, max_gpus=16, runs_s=_LONG_S, walltime_s=10 * _LONG_S,
            preemptible=True, checkpoint_interval_s=120.0, contention=0.02, starts_s=_STARTS_S,
        ),
    ]  # fmt: skip


def _scene(way: str, seed: int, budget_share: float) -> World:
    """Return a rack of four nodes whose budget is lowered to a share once its jobs have begun."""

    def lowered(at_s: float, stated: Conditions) -> None:
        if at_s >= _BEGUN_S:
            stated.rack_budget_share[:] = budget_share

    fleet = make_even_fleet(gpus=32, nodes_per_rack=4, power_share=2.0, cooling_share=1.2)
    return World(
        fleet, _scene_jobs(), _policy(way), seed=seed, failures=NO_FAILURES, conditions_at=lowered
    )


def _play_scene(part: Played) -> Outcome:
    drawn = _scene("fixed", part.seed, 1.0).run(_BEGUN_S)
    share = float(np.median(drawn.series.rack_use[-10:])) / SCENES[part.scene]
    return _outcome(part, _scene(part.way, part.seed, share).run(_SCENE_S))


# --- Traces ---------------------------------------------------------------------------------------


def _play_trace(part: Played) -> Outcome:
    window = windows.Window(
        name=part.scene, form=part.scene, rank=part.rank, demand=_DEMAND, gpus=_GPUS,  # type: ignore[arg-type]
        given=(("power_share", _POWER_SHARE),),
    )  # fmt: skip
    setup = windows.setup_of(window, part.traces)
    jobs = [_scaled(each, part.seed) for each in arrivals(setup.jobs(), seed=part.seed)]
    world = World(setup.fleet(), jobs, _policy(part.way), seed=part.seed)
    return _outcome(part, world.run(_HOURS * 3600.0))


def _scaled(arrival: Arrival, seed: int) -> Arrival:
    """Return a job of a trace as a plain load; of an even line as one that is elastic."""
    request, line = arrival.request, int(arrival.request.job[1:])
    request = replace(request, preemptible=True, checkpoint_interval_s=600.0)
    plain = replace(arrival, training=None, request=request, starts_s=_STARTS_S)
    if line % 2 or request.gpus > _MOST_GPUS:
        return plain
    drawn = np.random.default_rng([seed, line]).integers(len(_CONTENTION))
    return replace(plain, request=_elastic(request), contention=_CONTENTION[drawn])


def _elastic(request: Request) -> Request:
    return replace(
        request,
        min_gpus=max(request.gpus // 2, 1),
        max_gpus=min(4 * request.gpus, _MOST_GPUS),
        required=Locality.SITE,
    )


def _outcome(part: Played, record: Record) -> Outcome:
    return Outcome(
        scene=part.name,
        way=part.way,
        seed=part.seed,
        work_gpu_h=record.work_gpu_s / 3600.0,
        over_s=float(sum(record.over_budget_s.values())),
        throttled_gpu_s=float(sum(record.throttle_gpu_s.values())),
        unexpected_gpu_s=record.unexpected_throttle_gpu_s,
        kwh=record.energy_j / 3.6e6,
        moves=_moves(record),
    )


def _moves(record: Record) -> int:
    kinds = {each.value for each in MoveKind}
    return sum(each.what == "stop" and each.how.split(":")[0] in kinds for each in record.decisions)


def _run(part: Played) -> Outcome:
    return _play_scene(part) if part.scene in SCENES else _play_trace(part)


RUN = Work(f"{__name__}:RUN", _run, Played, Outcome)
