"""The account of a fleet of the twin, against the truth that the twin kept second by second.

``python -m bench.accounts_twin GPUS HOURS [SEED]`` plays :mod:`bench.accounts_fleet`, accounts for
it hour by hour by the code of the server, from what the server would have, and shows a table of
both, with reports of loops and without.

**What is judged.** With reports each cause is to be within 1 % of all time, without them productive
time, which is told as ``busy``, within 5 %. What of busy time is low draw goes by two figures of
:mod:`admission.goodput.draws`, the level of a gang and what stands. They were chosen from a grid on
seeds 11 and 12 of 2,048 GPUs over four hours with jobs of the kind ``train`` alone, by the sum of
bias and of mean error by minute. Judged is seed 1, which nothing was fitted to, with the kind
``finetune`` besides.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from admission.core.account import PPM, Cause, GpuSpans, Ints, Shares, Whole, throttled
from admission.core.at_work import at_work, least_at_work_w
from admission.core.fleet_account import CAUSES, Parts
from admission.goodput import draws, steps
from admission.goodput import fleet as goodput
from admission.goodput.draws import GangDraws
from admission.goodput.fleet import Readings, Records
from admission.goodput.steps import Attempts, Reports, times_us
from bench.accounts_fleet import KINDS, MINUTE_S, Played, Spell, gpus_of
from lab.fleet import GPUS_PER_NODE
from telemetry.rollups.spec import HOUR_S, MAX_GAP_S
from telemetry.throttle.rules import CAUSES as THROTTLES

__all__ = ["Compared", "compare", "played"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Compared:
    """GPU-seconds by cause, as the account has them and as they were; ``whole`` is all there is."""

    account: dict[str, float]
    truth: dict[str, float]
    whole: float

    def error(self, *causes: str) -> float:
        """Return by which share of all time the account is off in some causes together."""
        of = [sum(found.get(each, 0.0) for each in causes) for found in (self.account, self.truth)]
        return abs(of[0] - of[1]) / self.whole


def played(gpus: int, hours: float, *, seed: int = 1, kinds: Sequence[str] = KINDS) -> Played:
    """Play a fleet for so long."""
    play = Played(gpus, seed, kinds)
    play.go(round(hours * HOUR_S))
    return play


def compare(play: Played, *, are_told: bool = True) -> Compared:
    """Account for all that was played, hour by hour. ``are_told``: loops reported.

    Raises :class:`RuntimeError` where an hour does not add up, of the fleet or of a rack.
    """
    records = _Recorded(play, are_told=are_told)
    total = np.zeros(len(CAUSES), dtype=np.int64)
    for start in range(0, round(play.twin.now_s), HOUR_S):
        end = min(start + HOUR_S, round(play.twin.now_s))
        found, _ = goodput.account(records.of(float(start), float(end)))
        by_rack = np.bincount(found.scope, found.us.sum(axis=1).astype(np.float64))
        if not np.array_equal(by_rack, records.gpus_by_rack * (end - start) * 1e6):
            raise RuntimeError("the account does not add up")
        total += found.us.sum(axis=0)
    whole = play.gpus * round(play.twin.now_s)
    if int(total.sum()) != whole * 1_000_000:
        raise RuntimeError("the account does not add up")
    return Compared(
        {cause: us / 1e6 for cause, us in zip(CAUSES, total.tolist(), strict=True) if us},
        {str(cause): value for cause, value in play.truth.items() if value},
        float(whole),
    )


class _Recorded:
    """What the server would have recorded of a fleet, by hour."""

    def __init__(self, play: Played, *, are_told: bool) -> None:
        self._play, self._are_told = play, are_told
        end = play.twin.now_s + MAX_GAP_S
        attempts = play.attempts
        self._job = np.array([each.job for each in attempts], dtype=np.int64)
        self._number = np.array([each.number for each in attempts], dtype=np.int64)
        self._dispatched = np.array([each.dispatched for each in attempts])
        self._ended = np.nan_to_num(np.array([each.ended for each in attempts]), nan=end)
        self._began = np.array([each.began for each in attempts])
        self._began[self._began > self._ended] = np.nan
        self._scope = np.repeat(play.twin.fleet.rack_of_node, GPUS_PER_NODE).astype(np.int64)
        self.gpus_by_rack = np.bincount(self._scope)
        told = sorted(play.reports, key=lambda each: each[:2]) if are_told else []
        self._told_job = np.array([job for job, _, _ in told], dtype=np.int64)
        self._told_at = np.array([at for _, at, _ in told])
        self._told = np.array([each for _, _, each in told]).reshape(-1, len(steps.FIELDS))
        self._throttle = _throttle(play.told.events())

    def of(self, start: float, end: float) -> Records:
        """Return what was recorded from ``start`` up to ``end``."""
        here = np.flatnonzero((self._dispatched < end) & (self._ended > start))
        place = {int(at): number for number, at in enumerate(here)}
        job, dispatched, ended = self._job[here], self._dispatched[here], self._ended[here]
        held = [gpus_of(self._play.attempts[at].nodes) for at in here]
        gang = np.repeat(np.arange(here.size), [each.size for each in held])
        reports, before = self._reports(start, end)
        readings = self._readings(start, end)
        drained = gpus_of(np.flatnonzero(self._play.is_drained))
        attempts = Attempts(
            job, dispatched, self._began[here], ended, steps.alone(job, dispatched, ended)
        )
        held_spans = GpuSpans(
            **times_us(np.concatenate([*held, np.empty(0)]), dispatched[gang], ended[gang])
        )
        return Records(
            start=start,
            end=end,
            parts=Parts.whole(self._scope),
            attempts=attempts,
            numbers=self._number[here],
            phases=job,
            held=held_spans,
            gang=gang,
            reports=reports,
            heard=steps.told(before, attempts).reached(here.size) >= 0.0,
            reached=self._reached(here, before),
            pauses=Whole(cause=Cause.PAUSED, **self._spells("pause", place)),
            caps=GpuSpans(**self._spells("cap", place)),
            part_caps=GpuSpans(**_of_gpus(self._in_force("rack_cap"), end)),
            throttle=self._throttle,
            low_draw=_drawn(readings, held_spans, gang, here.size, start, end).shares(
                ~np.isin(job, reports.job)
            ),
            busy=readings.spans(works=True),
            idle=readings.spans(works=False),
            drained=GpuSpans(**times_us(drained, [start] * drained.size, [end] * drained.size)),
        )

    def _reports(self, start: float, end: float) -> tuple[Reports, Reports]:
        """Return the reports of an hour, and those before it."""
        at = self._told_at
        return (
            self._some((at >= start - MAX_GAP_S) & (at <= end + MAX_GAP_S)),
            self._some(at < start - MAX_GAP_S),
        )

    def _some(self, which: NDArray[np.bool_]) -> Reports:
        fields = {name: self._told[which, at] for at, name in enumerate(steps.FIELDS)}
        return Reports(self._told_job[which], self._told_at[which], None, fields)

    def _reached(self, here: Ints, before: Reports) -> Floats:
        """Return the step that earlier attempts had told of before the hour, -1: none."""
        found = np.full(here.size, -1.0)
        for at, number in enumerate(here):
            if self._number[number] > 1:
                is_before = before.at <= self._dispatched[number]
                of_job = (before.job == self._job[number]) & is_before
                found[at] = before.fields["step"][of_job].max(initial=-1.0)
        return found

    def _in_force(self, what: str) -> list[Spell]:
        return [each for each in self._play.disturbed.spells if each.what == what]

    def _spells(self, what: str, place: dict[int, int]) -> dict[str, Ints]:
        """Return the spans of spells of attempts by their place in the hour."""
        some = [each for each in self._in_force(what) if each.attempt in place]
        end = np.nan_to_num([each.end for each in some], nan=self._play.twin.now_s)
        return times_us(
            [place[each.attempt] for each in some if each.attempt is not None],
            [each.start for each in some],
            np.asarray(end),
        )

    def _readings(self, start: float, end: float) -> Readings:
        """Return the readings of an hour, as the server has them by the minute."""
        minutes = [each for each in self._play.told.minutes if start <= each.at < end]
        at = np.array([each.at for each in minutes])
        util, power_w, limit_w = (
            np.array([getattr(each, name) for each in minutes], dtype=np.float64).T.reshape(-1)
            for name in ("util", "power_w", "limit_w")
        )
        some = ~np.isnan(util)
        util, power_w, limit_w = util[some], power_w[some], limit_w[some]
        gpu = np.repeat(np.arange(self._play.gpus), at.size)[some]
        parts = self._play.twin.parts
        idle_w, rated_w = parts.idle_w[gpu], parts.rated_w[gpu]
        return Readings(
            gpu,
            np.tile(at, self._play.gpus)[some],
            float(MINUTE_S),
            at_work(util, power_w, least_at_work_w(idle_w, rated_w)),
            draws.draw(power_w, idle_w, rated_w),
            draws.is_at_limit(power_w, limit_w),
        )


def _drawn(
    readings: Readings, held: GpuSpans, gang: Ints, gangs: int, start: float, end: float
) -> GangDraws:
    drawn = GangDraws(gangs, start, MINUTE_S, round((end - start) / MINUTE_S))
    whose = draws.holders(readings.gpu, readings.middle_us, held, gang)
    drawn.add(whose, readings.at, readings.draw, readings.at_limit)
    return drawn


def _of_gpus(spells: Sequence[Spell], end: float) -> dict[str, Ints]:
    size = [each.gpus.size for each in spells]
    ends = np.nan_to_num([each.end for each in spells], nan=end)
    return times_us(
        np.concatenate([*(each.gpus for each in spells), np.empty(0)]),
        np.repeat([each.start for each in spells], size),
        np.repeat(ends, size),
    )


def _throttle(events: NDArray[Any]) -> list[Shares]:
    """Return throttle events as :func:`admission.goodput.records.throttle` has them."""
    begun, over = events["opened_us"] / 1e6, events["updated_us"] / 1e6
    lost, usual = np.nan_to_num(events["lost_mhz_s"]), np.nan_to_num(events["usual_mhz"])
    lost_s = np.divide(lost, usual, out=np.zeros(len(events)), where=usual > 0)
    ppm = np.rint(np.clip(lost_s / np.maximum(over - begun, 1e-6), 0.0, 1.0) * PPM)
    found = []
    for code in np.unique(events["cause"]):
        for expected in (False, True):
            of = (events["cause"] == code) & (events["expected"] == expected)
            name = throttled(THROTTLES[code], expected=expected)
            spans = times_us(events["gpu_id"][of], begun[of], over[of])
            found.append(Shares(cause=name, ppm=ppm[of].astype(np.int64), **spans))
    return found


def main(gpus: int, hours: float, seed: int = 1) -> None:
    """Show the account beside the truth, with reports and without."""
    play = played(gpus, hours, seed=seed)
    print(f"played in {time.process_time():.0f} CPU-s")
    for are_told in (True, False):
        found = compare(play, are_told=are_told)
        print(f"\n{gpus:,} GPUs over {hours:g} h, {'with' if are_told else 'without'} reports")
        for cause in sorted({*found.account, *found.truth}):
            account, truth = (each.get(cause, 0.0) for each in (found.account, found.truth))
            shares = f"{100 * account / found.whole:8.3f} % {100 * truth / found.whole:8.3f} %"
            print(f"  {cause:<36} {shares}  off by {100 * found.error(cause):.3f} %")
    print(f"in {time.process_time():.0f} CPU-s")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), *map(int, sys.argv[3:]))
