"""A world's view of itself: readings as headroom, with reservations and trends."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from admission.core.allocation import joint, reservation
from admission.core.allocation.allocations import (
    Allocations,
    OpenAttempt,
    allocations_of,
    at_work_w,
)
from admission.core.allocation.reservation import BIN_EDGES_W, Floats, Reserved
from fleet.tables import FleetArrays
from lab.world.frame import Sensors
from lab.world.gangs import Gang, Gangs
from lab.world.lemons import Lemons
from lab.world.policy import Policy
from policies.headroom.evaluate import Headroom, evaluate
from policies.headroom.hosts import (
    HOST_EVERY_S,
    HOST_ROUNDS,
    curves_of,
    host_curve,
    host_pairs,
    ratings_of,
)
from policies.headroom.inputs import Limits, Mounts, Past
from policies.headroom.past import (
    LINK_SLOTS,
    LINKS_EVERY_S,
    LOAD_SLOTS,
    LOADS_EVERY_S,
    Window,
    link_trends,
    links_of,
    load_trends,
    loads_of,
)
from policies.limiting import limits_in
from policies.restrictions.strictest import InForce
from policies.scopes import ScopeKind

__all__ = ["Seeing"]

Array = NDArray[np.float64]

#: Attempts are looked at so often to learn what they draw, s; of a longer silence no more is known.
_LEARN_EVERY_S, _MOST_S = 20.0, 60.0


class _Profiles:
    """The draw of a project's ended gangs on one model of GPU; jobs of worlds have no image."""

    def __init__(self) -> None:
        self._running: dict[int, Gang] = {}
        #: seconds by bin, and how many gangs they come from
        self._found: dict[tuple[str, int], tuple[Floats, int]] = {}

    def learn(self, gangs: Gangs, arrays: FleetArrays) -> None:
        """Add the draws of gangs that have ended since the last call."""
        now = {gang.id: gang for gang in gangs}
        for gang in (each for key, each in self._running.items() if key not in now):
            seconds, attempts = self._known(gang, arrays)
            added = joint.PROFILE_KEEPS * seconds + gang.drawn_s.sum(axis=0)
            self._found[_labels(gang, arrays)] = added, attempts + 1
        self._running = now

    def of(self, gangs: Sequence[Gang], arrays: FleetArrays) -> tuple[Floats, Floats]:
        """Return for each gang the seconds by bin of those like it, and how many it knows."""
        known = [self._known(gang, arrays) for gang in gangs]
        seconds = np.array([each for each, _ in known])
        return seconds, np.array([joint.remembered(attempts) for _, attempts in known])

    def _known(self, gang: Gang, arrays: FleetArrays) -> tuple[Floats, int]:
        return self._found.get(_labels(gang, arrays), (np.zeros(len(BIN_EDGES_W)), 0))


def _labels(gang: Gang, arrays: FleetArrays) -> tuple[str, int]:
    return gang.request.project, int(arrays.gpus.model[gang.gpus[0]])


class Seeing:
    """Headroom of a world, at each cycle."""

    def __init__(
        self,
        policy: Policy,
        sensors: Sensors,
        gangs: Gangs,
        arrays: FleetArrays,
        hosts: Mapping[int, Array],
        lemons: Lemons | None = None,
    ) -> None:
        """``lemons`` compares GPUs with their peers; None: nobody does."""
        self._policy, self._sensors, self._gangs = policy, sensors, gangs
        self.arrays = arrays
        self._loads = Window(LOADS_EVERY_S, LOAD_SLOTS)
        self._links = Window(LINKS_EVERY_S, LINK_SLOTS)
        self._past = replace(
            Past.none(arrays),
            mounts=Mounts(arrays.storage.ids, np.arange(len(arrays.storage))),
        )
        self._learned_at = self._fitted_at = -np.inf
        self._profiles = _Profiles()
        self._host_pairs = {
            model: deque([pairs], maxlen=HOST_ROUNDS) for model, pairs in hosts.items()
        }
        self._fit(hosts)
        self._limits: tuple[object, FleetArrays, Limits] | None = None
        self._lemons = lemons
        self._measured: Headroom | None = None
        self._measured_under: Limits | None = None

    def look(self, now: float, in_force: InForce) -> tuple[Headroom, Allocations, Reserved]:
        """Return headroom at ``now`` (Unix s), the allocations of gangs, and their reservations."""
        measured = self.measured(now, in_force)
        self._learn(measured, now)
        self._fit_hosts(measured, now)
        if self._lemons is not None and self._lemons.note(measured, now):
            self._past = replace(self._past, lemon_gpus=self._lemons.by_node)
        held = self.held_by_all()
        rules = self._policy.reserve
        reserved = reservation.reserve(
            held.arrays, self.arrays, measured.summary, now=now, rules=rules
        )
        headroom = replace(measured, reservations=reserved.fleet)
        self._note(headroom, now)
        return headroom, held, reserved

    def measured(self, now: float, in_force: InForce) -> Headroom:
        """Return the headroom with nothing reserved; the same object for the same moment."""
        limits = self._limits_of(in_force)
        last = self._measured
        same = last is not None and last.at == now and last.fleet is self.arrays
        if last is None or not same or self._measured_under is not limits:
            self._measured_under = limits
            self._measured = last = evaluate(
                self.arrays,
                self._sensors.read(now),
                now=now,
                restrictions=limits,
                past=self._past,
                stale_after_s=self._policy.stale_after_s,
            )
        return last

    def _limits_of(self, in_force: InForce) -> Limits:
        """Return the limits that restrictions set; the same object while nothing changes."""
        known = self._limits
        if known is None or known[0] is not in_force or known[1] is not self.arrays:
            known = self._limits = in_force, self.arrays, limits_in(in_force, self.arrays)
        return known[2]

    # --- What is held ----------------------------------------------------------------------------

    def held(self) -> Allocations:
        """Return the present allocations of gangs that have begun."""
        return self._allocations(self._gangs)

    def held_by_all(self) -> Allocations:
        """Return the present allocations, also of gangs that have not begun."""
        return self._allocations([*self._gangs, *self._gangs.waiting.values()])

    def _allocations(self, gangs: Iterable[Gang]) -> Allocations:
        return allocations_of(self.arrays, [(self._open(gang), gang.place) for gang in gangs])

    def _open(self, gang: Gang) -> OpenAttempt:
        at = self._sensors.epoch_s
        return OpenAttempt(
            id=gang.id,
            key=gang.key,
            phase_id=gang.job.number,
            project_id=0,
            request=gang.request,
            placement=gang.placement,
            dispatched_at=at + gang.started_s,
            started_at=at + gang.started_s if gang.has_begun else None,
            checkpoint_at=None if gang.saved_s is None else at + gang.saved_s,
            expected_end_at=at + gang.expected_end_s,
            is_leaving=gang.leaves_s is not None,
            is_running=gang.has_begun and not gang.is_paused,
            drawn=gang.place.drawn,
            drawn_of=gang.place.drawn_of,
            p99_w=gang.p99_w,
            read_s=gang.read_s,
            kind=(0, gang.request.project),
            learned=gang.learned,
            returns_to=gang.returns_to,
        )

    def _learn(self, measured: Headroom, now: float) -> None:
        """Note the draw of gangs: reservations come down to it."""
        if now - self._learned_at < _LEARN_EVERY_S - 1e-6:
            return
        self._learned_at = now
        self._profiles.learn(self._gangs, self.arrays)
        rules = self._policy.reserve
        running = [gang for gang in self._gangs if not gang.is_paused]
        if not running:
            return
        self._gangs.note_throughput(running)
        held = self._allocations(running)
        seen = reservation.drawn(held.arrays, self.arrays, measured.summary)
        per_gpu_w = seen.watts / np.maximum(held.arrays.gpus, 1)
        at_s = now - self._sensors.epoch_s
        for_s = np.concatenate(
            [np.full(len(g.nodes), min(max(at_s - g.seen_s, 0.0), _MOST_S)) for g in running]
        )
        before = np.concatenate([gang.drawn_s for gang in running])
        after = reservation.noted(before, per_gpu_w, seen.read & (for_s > 0), for_s, rules)
        p99_w, read_s = reservation.quantile_w(after, rules.quantile), reservation.read_for_s(after)
        like, ended = self._profiles.of(running, self.arrays)
        counts = [len(gang.nodes) for gang in running]
        learned = joint.learned(
            after,
            np.repeat(like, counts, axis=0),
            np.repeat(ended, counts),
            at_work_w=at_work_w(held, measured),
            edges_w=BIN_EDGES_W,
        )
        for gang, (_, rows) in zip(running, held.each(), strict=True):
            gang.drawn_s, gang.p99_w, gang.read_s = after[rows], p99_w[rows], read_s[rows]
            gang.learned, gang.seen_s = learned.rows(rows), at_s

    def _fit_hosts(self, measured: Headroom, now: float) -> None:
        """Note what nodes draw beside their GPUs, and fit each model to it."""
        if now - self._fitted_at < HOST_EVERY_S - 1e-6:
            return
        self._fitted_at = now
        seen = host_pairs(measured)
        for model, pairs in seen.items():
            self._host_pairs.setdefault(model, deque(maxlen=HOST_ROUNDS)).append(pairs)
        self._fit(seen)

    def _fit(self, models: Iterable[int]) -> None:
        """Fit the hosts of ``models``, ids of hardware models, to all that is known of them."""
        fits: dict[int, tuple[float, float]] = {}
        ratings = ratings_of(self.arrays)
        for model in models:
            curve = host_curve(np.concatenate(self._host_pairs[model]), ratings[model])
            if curve is not None:
                fits[model] = (curve.idle_w, curve.share)
        self._past = replace(self._past, hosts=curves_of(self.arrays, fits))

    @property
    def hosts(self) -> dict[int, Array]:
        """What nodes drew beside their GPUs of late, by id of their model."""
        return {model: np.concatenate(kept) for model, kept in self._host_pairs.items()}

    # --- What was --------------------------------------------------------------------------------

    def _note(self, headroom: Headroom, now: float) -> None:
        """Keep present loads, and update their trends over the last minutes."""
        if self._loads.is_due(now):
            self._loads.note(now, loads_of(headroom))
            slopes, still_s = load_trends(self.arrays, *self._loads.stacked())
            link_slope = self._past.slopes.get(
                ScopeKind.LINK, np.full(len(self.arrays.links), np.nan)
            )
            self._past = replace(
                self._past, slopes={**slopes, ScopeKind.LINK: link_slope}, gpu_still_s=still_s
            )
        if self._links.is_due(now):
            self._links.note(now, links_of(headroom))
            slope, used = link_trends(*self._links.stacked())
            slopes = {**self._past.slopes, ScopeKind.LINK: slope}
            self._past = replace(self._past, slopes=slopes, link_bits_per_s=used)
