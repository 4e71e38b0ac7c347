"""A queue in a random world, and the checks of all that it promises."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pytest

from admission.core.cycle.change import Counterfactual
from admission.core.cycle.decide import Decisions, decide
from admission.core.cycle.order import order
from admission.core.cycle.whatif import dry_run, explain
from admission.core.grants import Grants
from admission.core.preempting import PreemptionPolicy
from admission.core.reasons import ReasonToken, dominant
from admission.core.request import Locality, Request
from admission.core.snapshot import ClassRules, ConcurrencyCap, Pending, ProjectShare, Tuning
from fleet.tables import FleetArrays
from policies.scopes import Scope, ScopeKind
from tests.builders.arrays import make_arrays
from tests.builders.queue_world import World, make_request

CLASSES = {
    "training": ClassRules("training", kind_of_work="training"),
    "urgent": ClassRules(
        "urgent", priority=20, preempts=True, max_running=3, kind_of_work="training"
    ),
    "small": ClassRules("small", priority=-5, max_gpus=12, kind_of_work="training"),
    "serving": ClassRules("serving", priority=5, max_running=2, kind_of_work="serving"),
}
GRANTS = [
    Grants(),
    Grants(granted={"vision": frozenset({"urgent"}), "speech": frozenset({"urgent"})}),
    Grants(open_classes=frozenset({"training", "serving"})),
    Grants(confined={"vision": frozenset({"training", "urgent"})}),
]
PROJECTS = {
    "vision": ProjectShare("vision", gpu_quota=16, power_quota_w=14_000.0),
    "speech": ProjectShare("speech", weight=3.0),
}
#: The next cycle comes so long after one.
CYCLE_S = 2.0
CAP = ConcurrencyCap(Scope(ScopeKind.RACK, "s1/A01"), 2, restriction_id=3, reason="hot")

#: What jobs ask for, …
JOBS: dict[str, Sequence[Any]] = {
    "gpus": [1, 1, 2, 4, 8, 12, 16],
    "project": sorted(PROJECTS),
    "job_class": sorted(CLASSES),
    "walltime_s": [300.0, 1800.0, 7200.0, 1e5],
    "gpu_peak_w": [350.0, 500.0, 700.0],
    "required": list(Locality),
    "sites": [(), ("s1",)],
    "preemptible": [False, True],
    "checkpoint_interval_s": [None, 600.0],
    "is_elastic": [False, True],
    "is_capped": [False, True],
}
#: … and on which fleets, under which rules.
WORLDS: dict[str, Sequence[Any]] = {
    "sites": [1, 2],
    "racks": [2, 4],
    "budget_w": [9_000.0, 13_000.0, 44_000.0],
    "zone_w": [30_000.0, 176_000.0],
    "capped": [False, True],
    "reservations": [1, 4],
    "stagger_above": [0.3, 0.8, 2.0],
    "grants": GRANTS,
    "least_runtime_s": [0.0, 600.0],
}
WAITS_S = [2.0, 60.0, 600.0, 4000.0]


@cache
def _fleet(sites: int, racks: int, budget_w: float, zone_w: float) -> FleetArrays:
    return make_arrays(sites=sites, racks=racks, nodes=1, budget_w=budget_w, zone_w=zone_w)


class RandomQueue:
    """A fleet that is short of power, with a queue, on a clock, and what it promises."""

    world: World

    def begin(self, **values: Any) -> None:
        """Begin anew with a fleet and rules that are one of ``WORLDS``."""
        self.world = World(
            _fleet(values["sites"], values["racks"], values["budget_w"], values["zone_w"]),
            classes=CLASSES,
            projects=PROJECTS,
            caps=(CAP,) if values["capped"] else (),
            grants=values["grants"],
            preemption=PreemptionPolicy(least_runtime_s=values.get("least_runtime_s", 0.0)),
            tuning=Tuning(
                reservations=values["reservations"], stagger_above=values["stagger_above"]
            ),
        )
        self.jobs = 0

    def submit(self, some: list[dict[str, Any]]) -> None:
        """Queue jobs, each of which is one of ``JOBS``."""
        for one in some:
            self.jobs += 1
            self.world.submit(self._request(f"j{self.jobs}/train", one))

    def _request(self, key: str, one: dict[str, Any]) -> Request:
        is_elastic, is_capped = one["is_elastic"], one["is_capped"]
        values = {k: v for k, v in one.items() if k not in ("is_elastic", "is_capped")}
        return make_request(
            key,
            # Since the last cycle: who waited is told from who came after a start.
            submitted_at=self.world.now - 1.0,
            priority=CLASSES[one["job_class"]].priority,
            min_gpus=max(one["gpus"] // 2, 1) if is_elastic else one["gpus"],
            lowest_cap_w=0.8 * one["gpu_peak_w"] if is_capped else None,
            max_slowdown=0.1 if is_capped else 0.0,
            **values,
        )

    def hold(self, pick: int, *, is_held: bool) -> None:
        """Hold one that waits, or release it."""
        key = sorted(self.world.pending)[pick % len(self.world.pending)]
        held_by = "operator ann" if is_held else ""
        self.world.pending[key] = replace(self.world.pending[key], held_by=held_by)

    def fail(self, pick: int) -> None:
        """End one that runs before its time."""
        self.world.end(sorted(self.world.running)[pick % len(self.world.running)])

    def wait(self, seconds: float) -> None:
        """Let time pass, and end what is over by then."""
        self.world.now += seconds
        self.world.end_due()

    def cycle(self) -> None:
        """Decide, do what was decided, and check all that is told of it."""
        decisions = self.world.cycle()
        assert set(decisions.waiting) == set(self.world.pending)
        for each in decisions.admitted:
            gpus = len(each.placement.gpus)
            assert each.request.min_gpus <= gpus <= each.request.gpus
        for waiting in decisions.waiting.values():
            assert waiting.dominant == dominant(waiting.reasons)
            assert waiting.dominant.sentence
            assert not waiting.trace[-1].passed or is_next(waiting.dominant.token)
        if self.is_quiet(decisions):
            self.changes_are_true(decisions)

    def is_quiet(self, decisions: Decisions) -> bool:
        """Check that a repeated cycle does nothing. False where the first said who is next."""
        if any(is_next(each.dominant.token) for each in decisions.waiting.values()):
            return False
        again = decide(self.world.snapshot())
        assert again.admitted == (), [each.request.key for each in again.admitted]
        assert again.preempt == (), again.preempt
        return True

    def is_still(self) -> bool:
        """Say whether nobody starts or gives way in the next cycle, when only time has passed."""
        later = self.world.snapshot()
        later.cluster.now += CYCLE_S
        then = decide(replace(later, now=later.now + CYCLE_S))
        return not (then.admitted or then.preempt)

    def dry_runs_are_decisions(self, decisions: Decisions, some: list[dict[str, Any]]) -> int:
        """Check that jobs fare in a dry run as in the next cycle. Return how many were asked."""
        for one in some:
            asked = Pending(self._request("new/train", one))
            told = dry_run(decisions, asked)
            snapshot = self.world.snapshot()
            then = decide(replace(snapshot, pending=(*snapshot.pending, asked)))
            started = {each.request.key: each.placement for each in then.admitted}
            assert started.get("new/train") == told.placement, (asked, told)
        return len(some)

    def changes_are_true(
        self, decisions: Decisions, delays_s: Sequence[float] = (0.0, CYCLE_S)
    ) -> int:
        """Check all that is told of the queue as a cycle left it; return how many changes are.

        Each is tried so much later as ``delays_s`` say.
        """
        told = 0
        for key in decisions.waiting:
            explanation = explain(decisions, key)
            self._names_nobody_else(key, [each.sentence for each in explanation.reasons])
            for each in explanation.counterfactuals:
                for after_s in delays_s if each.starts_now else (0.0,):
                    then = self.world.applied(key, each, decisions, after_s=after_s)
                    started = {one.request.key: one.placement for one in then.admitted}
                    assert started.get(key) == each.placement, (key, each, after_s)
                self._price_is_right(key, each)
                self._is_within_its_rights(key, each)
                self._names_nobody_else(key, [each.sentence])
            told += len(explanation.counterfactuals)
        return told

    def _price_is_right(self, key: str, found: Counterfactual) -> None:
        old = self.world.pending[key].request
        new = found.change.apply(old, CLASSES)
        work = (1.0 - found.placement.slowdown) * min(new.gpus / old.gpus, 1.0)
        assert found.price.slower == pytest.approx(1.0 - work)
        assert found.price.less_work == pytest.approx(1.0 - new.walltime_s / old.walltime_s)
        later_s = 0.0 if found.starts_now else (found.change.begin_at or 0.0) - self.world.now
        assert found.price.later_s == later_s
        assert found.starts_now or new == old
        cap_w = found.placement.power_cap_w
        assert (
            cap_w is None
            or found.change.lowest_cap_w is None
            or (cap_w >= found.change.lowest_cap_w)
        )
        assert found.change.gpus in (None, len(found.placement.gpus))
        passed = self._passed(key, new.priority)
        assert passed == set(found.burden.passed if found.burden else ())

    def _passed(self, key: str, priority: int) -> set[str]:
        """Return whom a job goes ahead of with another priority, by the order anew."""
        snapshot, ahead = self.world.snapshot(), []
        for given in (self.world.pending[key].request.priority, priority):
            job = self.world.pending[key]
            changed = replace(job, request=replace(job.request, priority=given))
            pending = tuple({**self.world.pending, key: changed}.values())
            found = order(
                pending,
                snapshot.running,
                snapshot.projects,
                now=snapshot.now,
                tuning=snapshot.tuning,
            )
            keys = [each.request.key for each in found.pending]
            ahead.append(set(keys[: keys.index(key)]))
        return ahead[0] - ahead[1]

    def _is_within_its_rights(self, key: str, found: Counterfactual) -> None:
        name, request = found.change.job_class, self.world.pending[key].request
        if name is not None:
            assert self.world.grants.allows(request.project, CLASSES[name])
            assert CLASSES[name].kind_of_work == CLASSES[request.job_class].kind_of_work

    def _names_nobody_else(self, key: str, sentences: Iterable[str]) -> None:
        """No other job, and no other project, stands in what is told of a job."""
        everybody = {**self.world.pending, **self.world.running}
        hidden = {
            one for other in everybody if other != key for one in (other, other.split("/")[0])
        }
        hidden |= set(PROJECTS) - {self.world.pending[key].request.project}
        for sentence in sentences:
            assert hidden.isdisjoint(re.findall(r"[\w/-]+", sentence)), sentence


def is_next(token: ReasonToken) -> bool:
    """Say whether a job was found to fit in the last round, and starts with the next cycle."""
    return token is ReasonToken.BEHIND_HIGHER_PRIORITY


# --- Many worlds, by seed -------------------------------------------------------------------------


@dataclass
class Tally:
    """What was checked in random worlds, and what was found to be broken, with its seed."""

    #: worlds, cycles, changes that were applied at once and in the next cycle, dry runs
    counts: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)

    @contextmanager
    def noting(self, seed: int, what: str) -> Iterator[None]:
        """Note a promise that is found to be broken, or cannot be checked, and go on."""
        try:
            yield
        except (AssertionError, ValueError) as exc:
            self.broken.append(f"seed {seed}: {what}: {type(exc).__name__}: {str(exc)[:300]}")


def play(seed: int, tally: Tally, *, steps: int = 4) -> None:
    """Have the queue of a random world grow, and check all that is told of it after each cycle."""
    dice, queue = random.Random(seed), RandomQueue()

    def chosen(of: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        return {name: dice.choice(each) for name, each in of.items()}

    queue.begin(**chosen(WORLDS))
    tally.counts["worlds"] += 1
    for _ in range(steps):
        queue.submit([chosen(JOBS) for _ in range(dice.randint(1, 4))])
        decisions, asked = queue.world.cycle(), [chosen(JOBS)]
        tally.counts["cycles"] += 1
        is_quiet = False
        with tally.noting(seed, "a repeated cycle acts"):
            is_quiet = queue.is_quiet(decisions)
        if is_quiet:
            # Where others start or are to give way in the next cycle, more than time has passed.
            delays_s = (0.0, CYCLE_S) if queue.is_still() else (0.0,)
            with tally.noting(seed, "a change is false"):
                found = queue.changes_are_true(decisions, delays_s)
                tally.counts["changes"] += found
                tally.counts["changes later"] += found * (len(delays_s) - 1)
            with tally.noting(seed, "a dry run is not the decision"):
                tally.counts["dry runs"] += queue.dry_runs_are_decisions(decisions, asked)
        queue.wait(dice.choice(WAITS_S))
