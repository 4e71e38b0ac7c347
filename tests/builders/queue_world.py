"""A fleet with a queue in a process: jobs come, cycles decide, jobs run and end, on a clock.

The fleet is idle but for the jobs of this world, and read without a gap. Time jumps from one event
to the next.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import statistics
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from admission.core.cycle.backfill import Ending
from admission.core.cycle.change import Counterfactual
from admission.core.cycle.decide import Decisions, decide
from admission.core.cycle.ends import Like, Ran
from admission.core.grants import Grants
from admission.core.moving import MovingPolicy, within_the_hour
from admission.core.placement.cluster import Cluster
from admission.core.preempting import PreemptionPolicy, disrupted
from admission.core.request import Locality, Request
from admission.core.sharing import PastUse
from admission.core.snapshot import (
    ClassRules,
    ConcurrencyCap,
    Draws,
    Pending,
    ProjectShare,
    Running,
    Snapshot,
    Tuning,
)
from admission.core.throughput import Curve
from fleet.snapshot import FleetArrays
from policies.headroom.evaluate import evaluate
from policies.headroom.reach import Room
from policies.restrictions.strictest import ActiveRestriction, InForce
from tests.builders.arrays import GPU_IDLE_W, HOST_IDLE_W, make_arrays, make_frame

NOW = 1_000_000.0


def make_request(key: str = "job/train", **values: Any) -> Request:
    """Return a request for one GPU for an hour, but for ``values``."""
    job, _, phase = key.partition("/")
    given: dict[str, Any] = {
        "project": "vision",
        "job_class": "training",
        "priority": 0,
        "submitted_at": NOW,
        "gpus": 1,
        "walltime_s": 3600.0,
        **values,
    }
    given.setdefault("min_gpus", given["gpus"])
    return Request(key=key, job=job, phase=phase or "train", **given)


def idle_cluster(
    fleet: FleetArrays, *, now: float = NOW, restrictions: Sequence[ActiveRestriction] = ()
) -> Cluster:
    """Return a fleet on which nothing runs."""
    frame = make_frame(
        fleet,
        now=now,
        gpu={"power_w": GPU_IDLE_W, "temp_c": 30.0, "temp_mem_c": 30.0, "throttle": 0},
        host={"power_w": HOST_IDLE_W},
        link={"tx_bytes_per_s": 0.0, "rx_bytes_per_s": 0.0},
    )
    in_force = InForce(datetime.fromtimestamp(now, UTC), tuple(restrictions))
    return Cluster.of(evaluate(fleet, frame, now=now), in_force, now=now)


@dataclass(frozen=True)
class Arrival:
    """A job of a trace: when it is submitted (s after the start), and how long it really runs."""

    at_s: float
    request: Request
    runs_s: float


@dataclass(frozen=True)
class Started:
    """A job that began: when it was submitted and when it began, Unix s."""

    request: Request
    submitted_at: float
    started_at: float


class World:
    """The queue and the fleet of one moment, ``now`` (Unix s), and what happens to them."""

    def __init__(
        self,
        fleet: FleetArrays,
        *,
        projects: Mapping[str, ProjectShare] | None = None,
        classes: Mapping[str, ClassRules] | None = None,
        caps: tuple[ConcurrencyCap, ...] = (),
        tuning: Tuning | None = None,
        grants: Grants | None = None,
        restrictions: Sequence[ActiveRestriction] = (),
        past_use: PastUse | None = None,
        preemption: PreemptionPolicy | None = None,
        moving: MovingPolicy | None = None,
        scales: bool = False,
    ) -> None:
        """``past_use``: counts what projects use; None: it stays as ``projects`` say.

        ``scales``: a job takes longer with fewer GPUs than it asks for.
        """
        self.now = NOW
        #: what elastic jobs did at each size, and what they draw, by key; and what budgets have
        #: left by what is drawn
        self.curves: dict[str, Curve] = {}
        self.draws: dict[str, Draws] = {}
        self.room: Room | None = None
        self.cluster = idle_cluster(fleet, restrictions=restrictions)
        self.projects = projects or {}
        self.classes = classes or {}
        self.caps = caps
        self.tuning = tuning or Tuning()
        self.grants = grants or Grants()
        self.past_use = past_use
        self.preemption = preemption or PreemptionPolicy()
        self.moving = moving or MovingPolicy()
        self._scales = scales
        self._preempted: list[tuple[float, str]] = []
        self._moved_at: list[float] = []
        #: by key of a job that moves: what it had left to do when it was told, s on all its GPUs
        self._left_s: dict[str, float] = {}
        self.pending: dict[str, Pending] = {}
        self.running: dict[str, Running] = {}
        self.started: list[Started] = []
        self._ends: dict[str, float] = {}
        self._runs_s: dict[str, float] = {}
        self._ratios: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=50))
        #: for what shares of their walltimes the last jobs ran
        self.ended: deque[Ran] = deque(maxlen=2_000)

    def submit(self, request: Request, *, runs_s: float | None = None, **values: Any) -> None:
        """Queue a job that really runs for ``runs_s``, or as long as it asks for."""
        self.pending[request.key] = Pending(request, **values)
        self._runs_s[request.key] = request.walltime_s if runs_s is None else runs_s

    def snapshot(self) -> Snapshot:
        self.cluster.now = self.now
        return Snapshot(
            now=self.now,
            cluster=self.cluster.copy(),
            pending=tuple(self.pending.values()),
            running=tuple(self.running.values()),
            projects=self._shares(),
            classes=self.classes,
            caps=self.caps,
            grants=self.grants,
            tuning=self.tuning,
            preemption=self.preemption,
            disrupted=disrupted(self._preempted, self.now),
            moving=self.moving,
            moved=within_the_hour(self._moved_at, self.now),
            curves=self.curves,
            draws=self.draws,
            room=self.room,
            run_shares={
                name: statistics.median(each) for name, each in self._ratios.items() if each
            },
        )

    def _shares(self) -> Mapping[str, ProjectShare]:
        past_use = self.past_use
        return self.projects if past_use is None else past_use.of(self.projects, self.now)

    def _use(self, running: Running, gpus: int) -> None:
        if self.past_use is not None:
            self.past_use.change(running.request.project, running.user, gpus, self.now)

    def snapshot_at(self, at: float, endings: Mapping[str, Ending]) -> Snapshot:
        """Return the snapshot at ``at`` (Unix s) if nothing happens but that jobs end by then."""
        cluster, running = self.cluster.copy(), []
        cluster.now = at
        for key, each in self.running.items():
            if endings[key].at <= at:
                cluster.free(each.placement, each.request)
            else:
                running.append(each)
        return replace(self.snapshot(), now=at, cluster=cluster, running=tuple(running))

    def applied(
        self, key: str, found: Counterfactual, decisions: Decisions, *, after_s: float = 0.0
    ) -> Decisions:
        """Return what a cycle decides once a change is applied, or at the time that it tells.

        ``after_s``: the cycle is so much later, and nothing else has happened.
        """
        at = found.change.begin_at
        if at is not None:
            return decide(self.snapshot_at(at + after_s, decisions.after.endings))
        request = found.change.apply(self.pending[key].request, self.classes)
        pending = {**self.pending, key: replace(self.pending[key], request=request)}
        snapshot = self.snapshot()
        snapshot.cluster.now += after_s
        return decide(replace(snapshot, now=self.now + after_s, pending=tuple(pending.values())))

    def cycle(self) -> Decisions:
        """Decide, and do what was decided: start jobs, and tell those that give way."""
        decisions = decide(self.snapshot())
        for each in decisions.admitted:
            pending = self.pending.pop(each.request.key)
            request = pending.request
            # The real run takes every budget anew: what does not fit raises here.
            assert self.cluster.admits(each.placement, request), each
            self.cluster.allocate(each.placement, request)
            expected_s = decisions.snapshot.expected_s(request, each.placement.slowdown)
            running = Running(
                request, each.placement, self.now, self.now + expected_s, user=pending.user
            )
            self.running[request.key] = running
            self._use(running, len(running.placement.gpus))
            slower = request.gpus / len(running.placement.gpus) if self._scales else 1.0
            self._ends[request.key] = self.now + slower * self._runs_s[request.key]
            self.started.append(Started(request, request.submitted_at, self.now))
        for leaving in decisions.preempt:
            project = self.running[leaving.key].request.project
            self._preempted.append((self.now, project))
            self.running[leaving.key] = replace(self.running[leaving.key], preempting=True)
            soon = self.now + self.tuning.preemption_grace_s
            self._ends[leaving.key] = min(self._ends[leaving.key], soon)
        for move in decisions.moves.chosen:
            self._moved_at.append(self.now)
            running = self.running[move.key]
            self.running[move.key] = replace(running, preempting=True, returns_to=move.placement)
            self._left_s[move.key] = self._left_at(running, self.now)
            soon = self.now + self.tuning.preemption_grace_s
            self._ends[move.key] = min(self._ends[move.key], soon)
        return decisions

    def _left_at(self, running: Running, at: float) -> float:
        """Return what a job has left to do at ``at``, s on all the GPUs that it asks for."""
        speed = len(running.placement.gpus) / running.request.gpus if self._scales else 1.0
        return (self._ends[running.request.key] - at) * speed

    def end_due(self) -> int:
        """End the jobs whose time has come; return how many."""
        due = [key for key, at in self._ends.items() if at <= self.now]
        for key in due:
            self.end(key)
        return len(due)

    def end(self, key: str) -> None:
        """End a running job."""
        del self._ends[key]
        ended = self.running.pop(key)
        self._use(ended, -len(ended.placement.gpus))
        ran_s = self.now - ended.started_at
        request = ended.request
        share = min(ran_s / request.walltime_s, 1.0)
        self._ratios[request.project].append(share)
        like = Like(request.project, ended.user, request.gpus, request.walltime_s)
        self.ended.append(Ran(like, share, is_over=not ended.preempting))
        self.cluster.free(ended.placement, ended.request)
        left_s = self._left_s.pop(key, 0.0)
        if ended.returns_to is not None and left_s > 0.0:
            # It has saved when it was told: what it did while it ended is done again.
            self.submit(ended.request, runs_s=left_s, user=ended.user, returns_to=ended.returns_to)

    @property
    def next_end(self) -> float:
        """When the next job ends, Unix s; inf where none runs."""
        return min(self._ends.values(), default=float("inf"))

    def play(
        self, arrivals: Iterable[Arrival], *, cycle_s: float, until_all_began: bool = False
    ) -> Iterator[Decisions]:
        """Yield the decisions of each cycle until the last of ``arrivals`` has come, or begun.

        There is a cycle, at a whole multiple of ``cycle_s``, whenever something came or ended.
        """
        begun = self.now
        to_come = sorted(arrivals, key=lambda each: each.at_s)
        place, again_at = 0, float("inf")
        while place < len(to_come) or (until_all_began and self.pending):
            comes_at = begun + to_come[place].at_s if place < len(to_come) else float("inf")
            at = min(comes_at, self.next_end, again_at)
            self.now = begun + cycle_s * float(np.ceil(round((at - begun) / cycle_s, 6)))
            self.end_due()
            while place < len(to_come) and begun + to_come[place].at_s <= self.now:
                one = to_come[place]
                request = replace(one.request, submitted_at=begun + one.at_s)
                self.submit(request, runs_s=one.runs_s)
                place += 1
            decisions = self.cycle()
            # Who waits for others' heat starts though nothing comes or ends.
            waits = decisions.after.staggered
            again_at = self.now + max(self.tuning.stagger_s, cycle_s) if waits else float("inf")
            yield decisions


# --- The Philly trace -----------------------------------------------------------------------------

#: Users ask for the next of these, as batch systems offer them, s.
_WALLTIMES_S = tuple(3600.0 * hours for hours in (0.5, 1, 2, 4, 8, 24, 72, 168, 720, 2160))


def philly(folder: Path, *, first_day: float, days: float) -> list[Arrival]:
    """Return the jobs of the published trace that came within ``days`` from ``first_day`` on.

    Times, sizes, durations and virtual clusters are the trace's; what it does not say (draw, caps,
    locality, class) is made of a digest of the row, so that it is the same each time.
    """
    with gzip.open(folder / "jobs.csv.gz", "rt") as lines:
        rows = list(csv.DictReader(lines))
    begun = datetime.fromisoformat(rows[0]["time"])
    found = []
    for number, row in enumerate(rows):
        at_s = (datetime.fromisoformat(row["time"]) - begun).total_seconds()
        at_s -= 86400.0 * first_day
        if 0.0 <= at_s < 86400.0 * days:
            request = _philly_request(number, row)
            found.append(Arrival(at_s, request, float(row["duration_s"])))
    return found


def _philly_request(number: int, row: dict[str, str]) -> Request:
    gpus = int(row["num_gpus"])
    dice = hashlib.blake2b(f"{number}".encode(), digest_size=4).digest()
    runs_s = float(row["duration_s"])
    peak_w = 350.0 + 25.0 * (dice[0] % 15)
    is_capped = dice[1] % 4 == 0
    return make_request(
        f"p{number}/train",
        project=row["vc"],
        job_class="training" if gpus > 1 else "experiment",
        priority=10 if gpus > 1 else 0,
        gpus=gpus,
        min_gpus=max(gpus // 2, 1) if dice[2] % 8 == 0 else gpus,
        gpu_peak_w=peak_w,
        lowest_cap_w=0.8 * peak_w if is_capped else None,
        max_slowdown=0.1 if is_capped else 0.0,
        required=_PHILLY_LOCALITIES[dice[3] % len(_PHILLY_LOCALITIES)],
        walltime_s=next((each for each in _WALLTIMES_S if each >= runs_s), runs_s),
        checkpoint_interval_s=1800.0,
    )


_PHILLY_LOCALITIES = (Locality.RACK, Locality.ZONE, Locality.SITE, Locality.SITE, Locality.FLEET)


def philly_fleet(*, racks: int) -> FleetArrays:
    """Return a fleet of two sites, which cannot feed all of its GPUs at once."""
    return make_arrays(
        sites=2, racks=racks, nodes=2, gpus=8, budget_w=13_500.0, zone_w=53_000.0, pdu_w=53_000.0
    )
