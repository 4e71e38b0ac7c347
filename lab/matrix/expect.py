"""Whether the expectations of a scenario held in a run. Pure.

A series holds each value until its next one. What a run does not tell is never passed: a check
whose series or measure is missing, or whose time the run did not reach, was *not run*.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lab.matrix.result import Check, Measure, Series, Verdict
from lab.matrix.scenario import (
    AtMost,
    Expectation,
    Never,
    Period,
    Recovers,
    Scenario,
    Within,
    seconds,
)

__all__ = [
    "Condition",
    "Told",
    "judge",
    "mean_between",
    "moment_of",
    "recovered_after_s",
    "window_of",
]


@dataclass(frozen=True)
class Told:
    """The series and measures of a run, by name."""

    series: Mapping[str, Series]
    measures: Mapping[str, Measure]


def judge(scenario: Scenario, told: Told) -> list[Check]:
    """Return a check for each expectation of ``scenario``, in its order."""
    return [_judged(each, scenario, told) for each in scenario.expect]


def _judged(expectation: Expectation, scenario: Scenario, told: Told) -> Check:
    if expectation.never is not None:
        return _never(expectation.never, scenario, told)
    if expectation.within is not None:
        return _within(expectation.within, scenario, told)
    if expectation.at_most is not None:
        return _at_most(expectation.at_most, told)
    if expectation.recovers is not None:
        return _recovers(expectation.recovers, scenario, told)
    raise ValueError("an expectation says nothing: read it with lab.matrix.reading")


def window_of(scenario: Scenario, period: Period) -> tuple[float, float]:
    """Return the start and the end of a part of the judged time, in seconds of the run."""
    begins, ends = scenario.warm_up_s, scenario.duration_s
    first, last = scenario.first_fault_s, scenario.last_fault_s
    if period is Period.BEFORE:
        return begins, ends if first is None else first
    if period is Period.FAULTS:
        return (ends, ends) if first is None or last is None else (first, last)
    if period is Period.AFTER:
        return (ends if last is None else last), ends
    return begins, ends


@dataclass(frozen=True)
class Condition:
    """A value is above, or else below, another one."""

    above: float | None
    below: float | None

    def __str__(self) -> str:
        word, value = ("below", self.below) if self.above is None else ("above", self.above)
        return f"{word} {_number(value)}"

    def holds(self, value: float) -> bool:
        """Say whether a value meets it; one that is missing (NaN) does not."""
        if self.above is not None:
            return value > self.above
        return self.below is not None and value < self.below

    def extreme(self, values: list[float]) -> str:
        """Return the most extreme of ``values`` on the side of the condition, in words."""
        known = [value for value in values if not math.isnan(value)]
        if not known:
            return "it was never read"
        if self.above is not None:
            return f"{_number(max(known))} at most"
        return f"{_number(min(known))} at least"


@dataclass(frozen=True)
class _Stretch:
    """A part of a series through which a condition held without a break."""

    from_s: float
    until_s: float
    values: list[float]

    @property
    def lasted_s(self) -> float:
        return self.until_s - self.from_s


def _values_between(series: Series, from_s: float, until_s: float) -> Iterator[tuple[float, float]]:
    for at_s, value in zip(series.t_s, series.values, strict=True):
        if from_s <= at_s < until_s:
            yield at_s, math.nan if value is None else value


def _stretches(
    series: Series, condition: Condition, from_s: float, until_s: float
) -> Iterator[_Stretch]:
    begun: float | None = None
    values: list[float] = []
    for at_s, value in _values_between(series, from_s, until_s):
        if condition.holds(value):
            begun = at_s if begun is None else begun
            values.append(value)
        elif begun is not None:
            yield _Stretch(begun, at_s, values)
            begun, values = None, []
    if begun is not None:
        yield _Stretch(begun, until_s, values)


def _never(what: Never, scenario: Scenario, told: Told) -> Check:
    condition = Condition(what.above, what.below)
    lasting_s = seconds(what.lasting)
    text = f"{what.series} is never {condition}"
    text += f" for {_time(lasting_s)}" if lasting_s else ""
    text += "" if what.during is Period.RUN else f" ({_PERIODS[what.during]})"
    series = told.series.get(what.series)
    if series is None:
        return _untold(text, what.series)
    from_s, until_s = window_of(scenario, what.during)
    values = [value for _, value in _values_between(series, from_s, until_s)]
    if all(map(math.isnan, values)):
        return Check(
            text=text, verdict=Verdict.NOT_MEASURED, said=f"{what.series} was not read in this time"
        )
    worst = max(
        _stretches(series, condition, from_s, until_s),
        key=lambda each: each.lasted_s,
        default=None,
    )
    if worst is None or worst.lasted_s < lasting_s:
        return Check(text=text, verdict=Verdict.PASSED, said=condition.extreme(values))
    return Check(
        text=text,
        verdict=Verdict.FAILED,
        said=f"{condition} for {_time(worst.lasted_s)} from {_time(worst.from_s)} on,"
        f" {condition.extreme(worst.values)}",
    )


def _within(what: Within, scenario: Scenario, told: Told) -> Check:
    condition = Condition(what.above, what.below)
    fault = _fault_of(what, scenario)
    text = (
        f"{what.series} gets {condition} within {what.time} of the {what.after}"
        f" of {scenario.faults[fault].kind}"
    )
    series = told.series.get(what.series)
    if series is None:
        return _untold(text, what.series)
    begun_s = moment_of(what, scenario)
    deadline_s = begun_s + seconds(what.time)
    looked_at = list(_values_between(series, begun_s, math.nextafter(deadline_s, math.inf)))
    met = next((at_s for at_s, value in looked_at if condition.holds(value)), None)
    if met is not None:
        return Check(text=text, verdict=Verdict.PASSED, said=f"after {_time(met - begun_s)}")
    if _ended_before(series, deadline_s):
        return Check(
            text=text, verdict=Verdict.NOT_MEASURED, said="the run ended before that time was over"
        )
    reached = condition.extreme([value for _, value in looked_at])
    return Check(text=text, verdict=Verdict.FAILED, said=f"it did not: {reached}")


def _fault_of(what: Within, scenario: Scenario) -> int:
    """Return the place of the fault that is meant: without one, of that which begins first."""
    if what.fault is not None:
        return what.fault
    return min(range(len(scenario.faults)), key=lambda place: scenario.faults[place].at_s)


def moment_of(what: Within, scenario: Scenario) -> float:
    """Return when the time of an expectation begins, in seconds of the run."""
    fault = scenario.faults[_fault_of(what, scenario)]
    return fault.at_s if what.after == "start" else min(fault.until_s, scenario.duration_s)


def _at_most(what: AtMost, told: Told) -> Check:
    text = f"{what.measure} is at most {_number(what.value)}"
    measure = told.measures.get(what.measure)
    if measure is None:
        return _untold(text, what.measure)
    if measure.value is None or math.isnan(measure.value):
        return Check(
            text=text, verdict=Verdict.NOT_MEASURED, said=measure.said or "it could not be measured"
        )
    verdict = Verdict.PASSED if measure.value <= what.value else Verdict.FAILED
    said = f"{_number(measure.value)} {measure.unit}".strip()
    return Check(text=text, verdict=verdict, said=f"{said}: {measure.said}".rstrip(": "))


def _recovers(what: Recovers, scenario: Scenario, told: Told) -> Check:
    series = told.series.get(what.series)
    back = f"{_number(what.share)} of its mean before" if what.share is not None else ""
    text = (
        f"{what.series} is back {back or Condition(what.above, what.below)} within {what.time}"
        f" of the last fault's end, for {what.hold}"
    )
    if series is None:
        return _untold(text, what.series)
    condition = _back(what, series, scenario)
    if condition is None:
        said = f"{what.series} was not read before the first fault"
        return Check(text=text, verdict=Verdict.NOT_MEASURED, said=said)
    took_s = recovered_after_s(series, scenario, condition, hold_s=seconds(what.hold))
    end_s = scenario.last_fault_s or 0.0
    if took_s is not None and took_s <= seconds(what.time):
        return Check(text=text, verdict=Verdict.PASSED, said=f"{condition} after {_time(took_s)}")
    if _ended_before(series, end_s + seconds(what.time)):
        return Check(
            text=text, verdict=Verdict.NOT_MEASURED, said="the run ended before that time was over"
        )
    late = "not in the run" if took_s is None else f"only after {_time(took_s)}"
    after = [value for _, value in _values_between(series, end_s, math.inf)]
    return Check(
        text=text, verdict=Verdict.FAILED, said=f"{condition} {late}; {condition.extreme(after)}"
    )


def _back(what: Recovers, series: Series, scenario: Scenario) -> Condition | None:
    if what.share is None:
        return Condition(what.above, what.below)
    before = mean_between(series, *window_of(scenario, Period.BEFORE))
    # As good as before is back: the mean itself is not above the mean.
    return None if before is None else Condition(math.nextafter(what.share * before, -1e300), None)


def mean_between(series: Series, from_s: float, until_s: float) -> float | None:
    """Return the mean of the values read in a time; None: there were none."""
    known = [v for _, v in _values_between(series, from_s, until_s) if not math.isnan(v)]
    return math.fsum(known) / len(known) if known else None


def recovered_after_s(
    series: Series, scenario: Scenario, condition: Condition, *, hold_s: float
) -> float | None:
    """Return how long after the last fault ``condition`` held and did so for ``hold_s``; or None.

    At the end of the run what is left of it is enough.
    """
    from_s, until_s = window_of(scenario, Period.AFTER)
    for stretch in _stretches(series, condition, from_s, until_s):
        if stretch.lasted_s >= hold_s:
            return stretch.from_s - from_s
    return None


def _ended_before(series: Series, at_s: float) -> bool:
    """Say whether the last value came before ``at_s`` by more than the time between values."""
    times = series.t_s
    if not times:
        return True
    step_s = times[-1] - times[-2] if len(times) > 1 else 0.0
    return times[-1] + step_s < at_s


def _untold(text: str, name: str) -> Check:
    return Check(text=text, verdict=Verdict.NOT_MEASURED, said=f"this run does not tell {name}")


_PERIODS = {
    Period.RUN: "in the run",
    Period.BEFORE: "before the faults",
    Period.FAULTS: "during the faults",
    Period.AFTER: "after the faults",
}


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def _time(value_s: float) -> str:
    """Write a length of time as scenarios do: ``1h02m``, ``10m30s``, ``4.5s``."""
    if value_s < 60:
        return f"{value_s:.3g}s"
    minutes, rest = divmod(round(value_s), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if rest else f"{minutes}m"
