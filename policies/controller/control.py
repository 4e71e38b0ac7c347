"""The controller: power caps under which no budget is exceeded whatever running load does.

A GPU that is held at a cap draws no more than that. So the sum of caps, and not of what happens to
be drawn, is kept within each budget: a jump of any job, or of all at once, stays inside. Caps cost
little where they lie: each unit has at least what it draws at full speed while there is room, and
where there is not, all are slowed alike, each as far as it agreed (:mod:`.levels`).

Two things take time. A cap is in force when the GPU reports it, and until then counts with what it
was. So room is first taken, and given to others once that has shown. And what a unit draws at full
speed is learned from what it drew; until then it is what was said of it.

A GPU that gets too hot is a budget of its own: what it may draw by its heat (:mod:`.heat`) bounds
the cap of its unit, which is as fast as its slowest GPU.

What cannot be capped, and all that hosts draw beside their GPUs, is what budgets carry besides; of
that the highest of the last minutes counts. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fleet.groups import least_by, most_by, sum_by
from physics.power import gpu_power_w, throughput_under_cap
from policies.controller.filling import Cells, Filled, fill, level_at
from policies.controller.levels import FREE, LOWEST, Kind, caps_at, caps_by_level, speeds_by_level
from policies.headroom.columns import Bools, Floats, Ints
from policies.headroom.hosts import AT_WORK
from policies.headroom.reach import Reach

__all__ = ["Budgets", "Controlled", "Kind", "Memory", "Plant", "Tuning", "Units", "control"]


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """How close to a budget the controller goes, and how it learns what a unit draws."""

    #: share of each budget that is left for what the laws of power do not see
    margin: float = 0.009
    #: the same of cooling zones: what they carry off is less certain, and too much of it stays
    cooling_margin: float = 0.035
    #: shares of each budget of power, and of each cooling zone, that are kept free when jobs are
    #: admitted, so that they fit below the margins
    kept_shares: tuple[float, float] = (0.02, 0.046)
    #: on top of what a unit was seen to draw, so that its noise meets no cap; and of one that
    #: agreed to nothing
    spare: float = 0.01
    firm_spare: float = 0.015
    #: what a unit was seen to draw above what it draws now is forgotten by half in so many s
    forgets_in_s: float = 120.0
    #: the same of one that agreed to nothing
    firm_forgets_in_s: float = 300.0
    #: a unit is at work that draws this share of what it could beyond its draw at rest; and what
    #: rests is taken to draw as much
    resting_share: float = 0.3
    #: seen at work for so long, s, a unit counts with what it draws
    warm_up_s: float = 60.0
    #: what was said of a unit gives way to what is seen: it is forgotten by half in this share of
    #: the time since it began, but not in less than so many s
    learns_share: float = 0.3
    learns_in_s: float = 8.0
    #: the same of what budgets carry besides; and while what they hold rests, which says little of
    #: what its hosts draw at work
    other_forgets_in_s: float = 120.0
    other_rests_forgets_in_s: float = 1800.0
    #: a limit below a cap that stays as it is for so long is somebody else's, s: one of ours takes
    #: effect sooner. While a cap of ours hides it, it may be lifted: it counts with so many W more
    #: each s
    own_limit_after_s: float = 30.0
    own_limit_rises_w: float = 0.5
    #: a cap is raised if it rises by so much, W, and set in whole steps of so many
    least_rise_w: float = 4.0
    step_w: float = 1.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Plant:
    """The GPUs of a fleet, aligned with the inventory, and the rack of each.

    ``drawn_w`` is measured, or assumed of those that are silent; ``limit_w`` the limit that each
    reports, ``ordered_w`` the cap of ours that its agent was told last, inf for none. ``is_held``
    is whether it says that its limit holds it back, and ``clock_share`` its clock as a share of the
    highest (NaN: unknown). ``host_share``: by how much its host draws more for each W
    more. ``least_w`` and ``most_w`` bound what a limit may be, and ``heat_w`` is what each may draw
    by its heat, inf where nothing is known of that.
    """

    rack: Ints
    drawn_w: Floats
    limit_w: Floats
    ordered_w: Floats
    is_held: Bools
    clock_share: Floats
    host_share: Floats
    static_w: Floats
    exponent: Floats
    linear_share: Floats
    least_w: Floats
    most_w: Floats
    heat_w: Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class Units:
    """What is held to one level each: a job's gang, or a node with load of no known owner.

    ``gpu`` and ``unit`` have a place for each GPU that is theirs: all of them report, and their
    agents set caps. ``id`` tells a unit from others from round to round. ``told_w`` is what each of
    its GPUs draws at most by what was said of it, its rating where nothing was; ``lowest_cap_w``
    the lowest cap that it accepts, 0 where it names none. ``is_starting``: it draws nothing yet,
    and waits for room.
    """

    id: Ints
    kind: Ints
    lowest_speed: Floats
    told_w: Floats
    lowest_cap_w: Floats
    is_starting: Bools
    gpu: Ints
    unit: Ints

    def __len__(self) -> int:
        return len(self.id)


@dataclass(frozen=True, eq=False)
class Budgets:
    """Budgets in the order of a :class:`Reach`, and their present load, W. NaN: there is none."""

    reach: Reach
    budget_w: Floats
    load_w: Floats


@dataclass(frozen=True)
class Memory:
    """What one round leaves to the next. Lost, it begins with what was said of each unit.

    By id of a unit: since when it has been at work, Unix s, NaN: it has not been yet; what one of
    its GPUs draws at full speed, and the cap that was set last, W. By budget: the highest that it
    carried besides of late, W. ``held_share``: of a limit, the most that a GPU draws that it holds
    back. By GPU: ``of_units`` says whether it was some unit's; ``limit_w`` is the limit that it
    reported, ``below_for_s`` for how long it has been just that, and below its cap, and
    ``own_limit_w`` the limit that somebody else has set, inf for none.
    """

    at: float = -np.inf
    since: Mapping[int, float] = field(default_factory=dict)
    full_w: Mapping[int, float] = field(default_factory=dict)
    cap_w: Mapping[int, float] = field(default_factory=dict)
    other_w: Floats = field(default_factory=lambda: np.zeros(0))
    held_share: float = 1.0
    of_units: Bools = field(default_factory=lambda: np.zeros(0, dtype=bool))
    limit_w: Floats = field(default_factory=lambda: np.zeros(0))
    below_for_s: Floats = field(default_factory=lambda: np.zeros(0))
    own_limit_w: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, eq=False)
class Controlled:
    """The outcome of a round, aligned with units, or with budgets.

    ``cap_w`` is the cap to set on each GPU of a unit, inf for none. ``may_start``: the room for a
    unit that is starting has been made, under that cap. ``lowest_w`` is what each of its GPUs draws
    as slow as it may be made; ``full_w`` what it draws at full speed, the highest of late, and
    ``now_w`` what it would at this moment, if nothing held it; ``is_learned``: it has been seen at
    work for long enough to count on that. ``usable_w`` is what of each budget is given to GPUs and
    to what it carries besides; ``filled`` says at which level each budget is full, and which are
    exceeded at any, and ``heat_level`` at which level each unit is held by its hottest GPU.
    ``level`` is the lower one.
    """

    cap_w: Floats
    may_start: Bools
    level: Floats
    heat_level: Floats
    full_w: Floats
    now_w: Floats
    lowest_w: Floats
    is_learned: Bools
    usable_w: Floats
    other_w: Floats
    filled: Filled
    memory: Memory

    @property
    def holds(self) -> Bools:
        """Say of each budget whether caps can keep it; where not, what it lacks is ``short_w``."""
        return self.filled.short_w <= 0.0


def control(
    plant: Plant,
    units: Units,
    budgets: Budgets,
    memory: Memory,
    *,
    now: float,
    tuning: Tuning | None = None,
    still_w: Floats | None = None,
) -> Controlled:
    """Return the caps to set now, Unix s. Deterministic.

    ``still_w``: of units that come to rest by the time that counts, what each of their GPUs draws
    then, W; NaN for the others.
    """
    return _Round(plant, units, budgets, memory, now, tuning or Tuning(), still_w).done()


class _Round:
    def __init__(
        self,
        plant: Plant,
        units: Units,
        budgets: Budgets,
        memory: Memory,
        now: float,
        tuning: Tuning,
        still_w: Floats | None,
    ) -> None:
        self.plant, self.units, self.budgets = plant, units, budgets
        self.still_w = np.full(len(units), np.nan) if still_w is None else still_w
        self.memory, self.now, self.tuning = memory, now, tuning
        self.elapsed_s = max(now - memory.at, 0.0)
        count = len(units)
        # Cells: the GPUs of one unit in one rack.
        keys = units.unit * len(budgets.reach.place) + plant.rack[units.gpu]
        found, self.cell = np.unique(keys, return_inverse=True)
        self.cell_unit, self.cell_rack = np.divmod(found, len(budgets.reach.place))
        factor = 1.0 + plant.host_share[units.gpu]
        self.cell_factor = sum_by(factor, self.cell, len(found))
        self.cell_drawn_w = sum_by(factor * plant.drawn_w[units.gpu], self.cell, len(found))
        self.known_cap_w = _known(memory.cap_w, units.id, np.inf)
        gpus = np.maximum(np.bincount(units.unit, minlength=count), 1)
        self.static_w = sum_by(plant.static_w[units.gpu], units.unit, count) / gpus
        self.exponent = sum_by(plant.exponent[units.gpu], units.unit, count) / gpus
        self.linear_share = sum_by(plant.linear_share[units.gpu], units.unit, count) / gpus
        self.below_for_s = self._below_for_s()
        self.own_limit_w = self._own_limit_w()
        # A little more: so it shows when somebody lifts it, and what is drawn meets the cap then.
        above_w = self.own_limit_w + _TOLERANCE_W + tuning.least_rise_w
        most_w = np.minimum(plant.most_w, above_w)
        self.most_w = most_by(most_w[units.gpu], units.unit, count)
        self.rated_w = most_by(plant.most_w[units.gpu], units.unit, count)
        self.least_w = most_by(plant.least_w[units.gpu], units.unit, count)
        self.heat_w = least_by(plant.heat_w[units.gpu], units.unit, count)
        self.told_w = np.fmin(units.told_w, self.most_w)
        #: by how much a GPU of each could draw more than at rest, by what was said of it
        self.range_w = np.maximum(self.told_w - self.static_w, 0.0)
        firm = units.kind == Kind.FIRM
        self.spare = np.where(firm, tuning.firm_spare, tuning.spare)
        #: what its GPUs draw at most now, and what is taken for work
        self.seen_w = most_by(plant.drawn_w[units.gpu], units.unit, count)
        self.least_at_work_w = self.static_w + tuning.resting_share * self.range_w
        self.is_at_limit = sum_by(self._at_limit(), units.unit, count) > 0
        self.since = self._at_work_since()

    def done(self) -> Controlled:
        units = self.units
        self.held_share = self._held_share()
        now_w = self._now_w()
        full_w = self._full_w(now_w)
        other_w = self._other_w(full_w)
        lowest = self._lowest_speed(full_w)
        by_level = caps_by_level(
            speeds_by_level(units.kind, lowest),
            full_w=full_w,
            static_w=self.static_w,
            exponent=self.exponent,
            linear_share=self.linear_share,
            most_w=self.most_w,
        )
        heat_level = level_at(by_level, self.heat_w)
        by_level = np.minimum(by_level, self.heat_w[:, None])
        by_level = np.maximum(by_level, self.least_w[:, None])
        still = np.isfinite(self.still_w)
        by_level[still] = self.still_w[still, None]
        watts = self.held_share * self.cell_factor[:, None] * by_level[self.cell_unit]
        usable_w = self._usable_w()
        filled = self._filled(watts, usable_w - other_w)
        level = np.minimum(filled.level, heat_level)
        wanted_w = self._in_steps(caps_at(by_level, filled.level), level)
        cap_w, may_start = self._confirmed(wanted_w, filled.level, usable_w - other_w)
        return Controlled(
            cap_w=cap_w,
            may_start=may_start,
            level=level,
            heat_level=heat_level,
            full_w=full_w,
            now_w=np.minimum(now_w, full_w),
            lowest_w=np.maximum(
                np.minimum(self._power_w(lowest, full_w), self.heat_w), self.least_w
            ),
            is_learned=self._is_learned(),
            usable_w=usable_w,
            other_w=other_w,
            filled=filled,
            memory=self._remembered(full_w, cap_w, may_start, other_w),
        )

    def _filled(self, watts: Floats, room_w: Floats) -> Filled:
        """Return levels; what is to start takes nothing from what agreed to nothing."""
        reach, count = self.budgets.reach, len(self.units)
        filled = fill(Cells(self.cell_unit, self.cell_rack, watts), count, reach, room_w)
        waits = self.units.is_starting & (filled.level < LOWEST)
        if not waits.any():
            return filled
        watts = np.where(waits[self.cell_unit][:, None], 0.0, watts)
        again = fill(Cells(self.cell_unit, self.cell_rack, watts), count, reach, room_w)
        return replace(again, level=np.where(waits, filled.level, again.level))

    def _usable_w(self) -> Floats:
        zones, tuning = self.budgets.reach.zones, self.tuning
        margin = np.where(zones, tuning.cooling_margin, tuning.margin)
        return np.asarray((1.0 - margin) * self.budgets.budget_w)

    # --- What is drawn ---------------------------------------------------------------------------

    def _below_for_s(self) -> Floats:
        """Return for how long each GPU has reported one and the same limit, below its cap, s."""
        plant, memory = self.plant, self.memory
        cap_w = np.minimum(plant.most_w, plant.ordered_w)
        is_below = plant.limit_w < cap_w - _TOLERANCE_W
        if len(memory.limit_w) != len(cap_w):
            return np.where(is_below, np.inf, 0.0)
        stays = is_below & (np.abs(plant.limit_w - memory.limit_w) <= _TOLERANCE_W)
        return np.where(stays, memory.below_for_s + self.elapsed_s, 0.0)

    def _own_limit_w(self) -> Floats:
        """Return the limit of each GPU that is none of ours, W; inf: none is known.

        A cap of ours may be below it. It is gone once a higher one is reported.
        """
        limit_w, known_w = self.plant.limit_w, self.memory.own_limit_w
        if len(known_w) != len(limit_w):
            known_w = np.full(len(limit_w), np.inf)
        hidden_w = self.tuning.own_limit_rises_w * self.elapsed_s
        known_w = np.where(limit_w < known_w - _TOLERANCE_W, known_w + hidden_w, known_w)
        known_w = np.where(limit_w > known_w + _TOLERANCE_W, np.inf, known_w)
        return np.where(self.below_for_s >= self.tuning.own_limit_after_s, limit_w, known_w)

    def _at_work_since(self) -> Floats:
        """Return since when each unit has been at work, Unix s; NaN: not yet.

        What stages data or compiles draws little for minutes, and then all that it can at once. So
        what was said of it stands until it was seen.
        """
        units = self.units
        works = self.seen_w >= self.least_at_work_w
        works |= self.is_at_limit | (units.kind == Kind.UNMANAGED)
        known = _known(self.memory.since, units.id, np.nan)
        return np.where(np.isnan(known) & works & ~units.is_starting, self.now, known)

    def _at_limit(self) -> Bools:
        """Say which GPUs of units their limits hold back, and which are not about to be let go."""
        plant, gpus = self.plant, self.units.gpu
        near = plant.drawn_w[gpus] >= _NEAR_LIMIT * plant.limit_w[gpus]
        return np.asarray(self._is_held() & near)

    def _held_share(self) -> float:
        """Return the most that GPUs draw of a limit that holds them back, as seen of late."""
        plant, gpus = self.plant, self.units.gpu
        share = plant.drawn_w[gpus] / plant.limit_w[gpus]
        shown = share[plant.is_held[gpus] & (share >= _NEAR_LIMIT) & (share <= 1.0)]
        if len(shown) < _SHOWN_BY:
            return self.memory.held_share
        now, before = float(shown.max()), self.memory.held_share
        keep = 0.5 ** (min(self.elapsed_s, 60.0) / self.tuning.forgets_in_s)
        return float(max(now, now + (before - now) * keep))

    def _now_w(self) -> Floats:
        """Return what one GPU of each unit would draw now at full speed, W; inf: it is unknown."""
        return most_by(self._at_full_w(), self.units.unit, len(self.units))

    def _full_w(self, now_w: Floats) -> Floats:
        """Return what one GPU of each unit draws at full speed: the highest of late, W."""
        units, tuning, firm = self.units, self.tuning, self.units.kind == Kind.FIRM
        now_w = now_w * (1.0 + self.spare)
        now_w = np.where(np.isinf(now_w), self.told_w, now_w)
        # What rests will work again.
        now_w = np.clip(now_w, self.least_at_work_w, self.most_w)
        seen_s = np.nan_to_num(self.now - self.since)
        learns_s = np.maximum(tuning.learns_share * seen_s, tuning.learns_in_s)
        halves_s = np.where(firm, tuning.firm_forgets_in_s, tuning.forgets_in_s)
        halves_s = np.minimum(halves_s, learns_s)
        known_w = _known(self.memory.full_w, units.id, np.nan)
        kept_w = now_w + (known_w - now_w) * 0.5 ** (self.elapsed_s / halves_s)
        # A gang that waits for its slowest does less, and draws less, so what was seen before stays
        # while any of it is at its limit.
        kept_w = np.where(self.is_at_limit, known_w, kept_w)
        # What nobody said anything of runs already.
        first_w = np.where(units.kind == Kind.UNMANAGED, now_w, self.told_w)
        found_w = np.where(np.isnan(known_w), first_w, np.maximum(now_w, kept_w))
        return np.where(np.isnan(self.since), np.maximum(now_w, self.told_w), found_w)

    def _at_full_w(self) -> Floats:
        """Return what each GPU of units would draw at full speed now, W."""
        units, plant = self.units, self.plant
        drawn_w, static_w = plant.drawn_w[units.gpu], plant.static_w[units.gpu]
        # Of what is held back, what it would draw at its full clock. Far below that, or where that
        # is unknown, it could draw anything.
        clock = plant.clock_share[units.gpu]
        slowed = gpu_power_w(
            static_w=0.0,
            dynamic_w=1.0,
            relative_throughput=np.clip(np.nan_to_num(clock), _LEAST_CLOCK, 1.0),
            exponent=plant.exponent[units.gpu],
            linear_share=plant.linear_share[units.gpu],
        )
        at_full_w = drawn_w + np.maximum(drawn_w - static_w, 0.0) * (1.0 / slowed - 1.0)
        at_full_w = np.where(clock >= _LEAST_CLOCK, at_full_w, self._as_known_w(clock))
        return np.where(self._is_held(), at_full_w, drawn_w)

    def _as_known_w(self, clock: Floats) -> Floats:
        """Return what GPUs of units draw at full speed as far as it was learned, W; else inf.

        What is held far below its full clock shows no more than whether it is as fast as that lets
        it be: then it stands. Who is slower has come to draw more.
        """
        units, plant = self.units, self.plant
        known_w = _known(self.memory.full_w, units.id, np.nan)[units.unit]
        static_w = np.fmin(plant.static_w[units.gpu], known_w)
        speed = throughput_under_cap(
            cap_w=plant.drawn_w[units.gpu],
            static_w=static_w,
            dynamic_w=np.nan_to_num(known_w - static_w),
            exponent=plant.exponent[units.gpu],
            linear_share=plant.linear_share[units.gpu],
        )
        stands = self._is_learned()[units.unit] & (clock >= speed - _LAW_OFF_BY)
        # The spare is in it already.
        return np.where(stands, known_w / (1.0 + self.spare[units.unit]), np.inf)

    def _is_held(self) -> Bools:
        """Say which GPUs of units say that their limits hold them back, or draw as if so."""
        plant, gpus = self.plant, self.units.gpu
        return plant.is_held[gpus] | (plant.drawn_w[gpus] >= _AT_LIMIT * plant.limit_w[gpus])

    def _is_learned(self) -> Bools:
        """Say which units have been at work for some time: neither new nor still preparing."""
        return np.nan_to_num(self.now - self.since) >= self.tuning.warm_up_s

    def _other_w(self, full_w: Floats) -> Floats:
        """Return what each budget carries beside the GPUs of units: the highest of late, W."""
        now_w = self.budgets.load_w - self._carried(self.cell_drawn_w) + self._hosts_to_wake_w()
        before_w = self.memory.other_w
        if len(before_w) != len(now_w):
            return now_w
        tuning = self.tuning
        halves_s = np.where(
            self._works(full_w), tuning.other_forgets_in_s, tuning.other_rests_forgets_in_s
        )
        keep = 0.5 ** (self.elapsed_s / halves_s)
        return np.asarray(np.fmax(now_w, now_w + (before_w - now_w) * keep))

    def _hosts_to_wake_w(self) -> Floats:
        """Return what hosts will draw beside what counts, once units begin to work, W by budget.

        A host that works draws so much at least, however low its GPUs are held: its share of what
        GPUs at work draw (:data:`~policies.headroom.hosts.AT_WORK`). While they rest it draws
        nothing for them, though a share of what they draw is counted for it.
        """
        units, plant, gpus = self.units, self.plant, self.units.gpu
        is_quiet = (self._is_quiet() & np.isfinite(self.known_cap_w))[units.unit]
        at_work_w = AT_WORK * plant.most_w[gpus] + plant.drawn_w[gpus]
        missing_w = np.maximum(at_work_w - self.known_cap_w[units.unit], 0.0)
        missing_w = np.where(is_quiet, plant.host_share[gpus] * missing_w, 0.0)
        return self._carried(sum_by(missing_w, self.cell, len(self.cell_unit)))

    def _is_quiet(self) -> Bools:
        """Say which units rest, and have not been seen at work of late."""
        known_w = _known(self.memory.full_w, self.units.id, np.inf)
        seen = ~np.isnan(self.since) & (known_w > (1.0 + self.spare) * self.least_at_work_w)
        return np.asarray(~seen & (self.seen_w < self.least_at_work_w))

    def _of_units(self) -> Bools:
        found = np.zeros(len(self.plant.rack), dtype=bool)
        found[self.units.gpu] = True
        return found

    def _works(self, full_w: Floats) -> Bools:
        """Say of which budgets the units draw about as much as they could."""
        could_w = np.minimum(self.known_cap_w, full_w)
        could_w = np.where(self.units.is_starting, 0.0, could_w)[self.cell_unit]
        could_w = self._carried(self.cell_factor * could_w)
        return np.asarray(self._carried(self.cell_drawn_w) >= _AT_WORK_SHARE * could_w)

    def _lowest_speed(self, full_w: Floats) -> Floats:
        """Return how slow each unit may be made, by what it agreed to and the cap that it takes."""
        units, static_w = self.units, np.minimum(self.static_w, full_w)
        by_cap = throughput_under_cap(
            cap_w=units.lowest_cap_w,
            static_w=static_w,
            dynamic_w=full_w - static_w,
            exponent=self.exponent,
            linear_share=self.linear_share,
        )
        firm = units.kind == Kind.FIRM
        return np.asarray(np.where(firm, 1.0, np.maximum(units.lowest_speed, by_cap)))

    def _power_w(self, speed: Floats, full_w: Floats) -> Floats:
        static_w = np.minimum(self.static_w, full_w)
        power_w = gpu_power_w(
            static_w=static_w,
            dynamic_w=full_w - static_w,
            relative_throughput=speed,
            exponent=self.exponent,
            linear_share=self.linear_share,
        )
        return np.asarray(power_w)

    # --- What is set -----------------------------------------------------------------------------

    def _in_steps(self, watts: Floats, level: Floats) -> Floats:
        """Return caps in whole steps, no higher than ``watts``; inf for units that are free."""
        is_free = (level >= FREE) & (self.most_w >= self.rated_w)
        return np.where(is_free, np.inf, np.maximum(self._stepped(watts), self.least_w))

    def _stepped(self, watts: Floats) -> Floats:
        step_w = self.tuning.step_w
        return np.asarray(np.floor(watts / step_w + 1e-9) * step_w)

    def _confirmed(self, wanted_w: Floats, level: Floats, room_w: Floats) -> tuple[Floats, Bools]:
        """Lower at once; raise, and start, as far as what was lowered has shown."""
        units, plant = self.units, self.plant
        known_w, starting = self.known_cap_w, units.is_starting
        # Of GPUs of which a cap was taken back or raised the report may be behind.
        held_w = np.maximum(plant.limit_w[units.gpu], known_w[units.unit])
        held_w = self.held_share * np.minimum(held_w, plant.most_w[units.gpu])
        now_w = np.where(starting[units.unit], plant.drawn_w[units.gpu], held_w)
        factor = 1.0 + plant.host_share[units.gpu]
        now_w = sum_by(factor * now_w, self.cell, len(self.cell_unit))
        then_w = (
            self.held_share * self.cell_factor * np.minimum(wanted_w, self.most_w)[self.cell_unit]
        )
        rise_w = np.maximum(then_w - now_w, 0.0)
        left_w = room_w - self._carried(now_w)
        may_start = np.zeros(len(units), dtype=bool)
        for unit in np.flatnonzero(starting & (level >= LOWEST)).tolist():
            mine = np.where(self.cell_unit == unit, rise_w, 0.0)
            need_w = self._carried(mine)
            fits = (need_w <= np.where(np.isnan(left_w), np.inf, left_w)) | (need_w <= 0.0)
            if fits.all():
                may_start[unit] = True
                left_w = left_w - need_w
        rise_w = np.where(starting[self.cell_unit], 0.0, rise_w)
        share = self._share_of(rise_w, left_w)
        cap_w = np.where(wanted_w <= known_w, wanted_w, self._raised(known_w, wanted_w, share))
        return np.where(starting, wanted_w, cap_w), may_start

    def _raised(self, known_w: Floats, wanted_w: Floats, share: Floats) -> Floats:
        """Return caps raised by a share of what is wanted, or left where that is too little."""
        known_w = np.minimum(known_w, self.most_w)
        upto_w = np.minimum(wanted_w, self.most_w)
        raised_w = self._stepped(known_w + share * (upto_w - known_w))
        whole = (share >= 1.0) & np.isinf(wanted_w)
        moves = (raised_w - known_w >= self.tuning.least_rise_w) | whole
        return np.where(moves, np.where(whole, np.inf, np.maximum(raised_w, known_w)), known_w)

    def _share_of(self, rise_w: Floats, left_w: Floats) -> Floats:
        """Return for each unit the share of its rise for which all of its budgets have room."""
        asked_w = self._carried(rise_w)
        left_w = np.maximum(np.where(np.isnan(left_w), np.inf, left_w), 0.0)
        share = np.divide(left_w, asked_w, out=np.ones(len(asked_w)), where=asked_w > 0.0)
        by_rack = np.append(np.minimum(share, 1.0), 1.0)[self.budgets.reach.place].min(axis=1)
        found = np.ones(len(self.units))
        np.minimum.at(found, self.cell_unit, by_rack[self.cell_rack])
        return found

    def _carried(self, cell_w: Floats) -> Floats:
        return self.budgets.reach.of_gpus(cell_w, self.cell_rack)

    def _remembered(
        self, full_w: Floats, cap_w: Floats, may_start: Bools, other_w: Floats
    ) -> Memory:
        lasting = ~self.units.is_starting | may_start
        ids = self.units.id[lasting].tolist()

        def by_id(values: Floats) -> dict[int, float]:
            return dict(zip(ids, values[lasting].tolist(), strict=True))

        return Memory(
            at=self.now,
            since=by_id(self.since),
            full_w=by_id(full_w),
            cap_w=by_id(cap_w),
            other_w=other_w,
            held_share=self.held_share,
            of_units=self._of_units(),
            limit_w=self.plant.limit_w,
            below_for_s=self.below_for_s,
            own_limit_w=self.own_limit_w,
        )


#: Drivers may round a limit to whole units, W.
_TOLERANCE_W = 1.5
#: A GPU that draws this share of its limit is taken to be held by it.
_AT_LIMIT = 0.97
#: One that its limit holds back draws so much of it at least, or it is about to have what it wants.
_NEAR_LIMIT = 0.93
#: Units of a budget work that draw this share of what they could.
_AT_WORK_SHARE = 0.9
#: So many GPUs at their limits at once say how close to them limits hold.
_SHOWN_BY = 8
#: Below this share of its highest clock the law of power says too little of what it would draw.
_LEAST_CLOCK = 0.7
#: … and of how fast a GPU is, as a share of full speed, it is off by no more than this.
_LAW_OFF_BY = 0.03


def _known(by_id: Mapping[int, float], ids: Ints, other: float) -> Floats:
    return np.array([by_id.get(each, other) for each in ids.tolist()], dtype=np.float64)
