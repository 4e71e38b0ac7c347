"""The page of goodput: where the time of all GPUs went, in words and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Max

from accounts.models import User
from admission.core.fleet_account import Unheld
from admission.goodput.models import AccountedHour
from admission.goodput.summing import Asked, By, add_up
from admission.goodput.told import NOT_TOLD, told_of_fleet
from admission.jobs.models import Project
from dashboard import exports, goodput, hours, units
from telemetry.spans import ParameterError, Span

__all__ = ["Group", "Page", "Wait", "Weekly", "page", "waited"]

_MOST_LINES = 100
#: The page of a project tells of so long a wait, s.
_WAITED_S = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Group:
    """One site or project. ``held``: the share of its GPU time that jobs held.

    ``mfu`` is its program goodput, None: not known. ``loss`` took the most of what was held and is
    known to be lost; empty: nothing was.
    """

    name: str
    held_gpu_h: float
    held: float | None
    least: float | None
    most: float | None
    mfu: float | None
    loss: str
    loss_share: float | None


@dataclass(frozen=True, slots=True)
class Wait:
    """Demand that waited for one reason, GPU-hours, and what of it stood against free GPUs.

    ``money`` is what it comes to; None: nobody has stated that.
    """

    reason: str
    demand_gpu_h: float
    wanted_gpu_h: float
    money: float | None


@dataclass(frozen=True, slots=True)
class Weekly:
    """Iterations of one project in the week of a Monday; ``index`` None: there were none."""

    project: str
    week: str
    moved: float
    repeated: float
    missed: float
    index: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What the page shows. ``others`` are lines that are left out, by their table."""

    answer: str
    is_empty: bool
    is_own: bool
    newest: datetime | None
    is_late: bool
    hours: int
    missing: int
    first_missing: float | None
    most: float | None
    program: str
    currency: str
    price_known: float | None
    causes: Sequence[goodput.Line]
    sites: Sequence[Group]
    projects: Sequence[Group]
    other_projects: int
    waits: Sequence[Wait]
    free_gpu_h: float
    wanted_gpu_h: float
    weeks: Sequence[Weekly]
    other_weeks: int
    tells_hours: bool


def page(user: User, span: Span, now: datetime) -> Page:
    """Return the page of a span. Up to 15 queries."""
    by_project = Asked.of(user, span, By.PROJECT, {})
    is_own = by_project.projects is not None
    projects = told_of_fleet(add_up(by_project, now.timestamp()))
    whole = projects
    if not is_own:
        whole = told_of_fleet(add_up(Asked.of(user, span, By.SITE, {}), now.timestamp()))
    newest = AccountedHour.objects.aggregate(newest=Max("hour"))["newest"]
    # Time that nobody held is no project's.
    named = [_group(each, "project") for each in projects["groups"] if each["key"]["project"]]
    waits = [_wait(each) for each in whole["waiting"]]
    weeks = [Weekly(**each) for each in whole["iterations"]]
    return Page(
        answer=_answer(whole, is_own=is_own),
        is_empty=newest is None,
        is_own=is_own,
        newest=newest,
        is_late=hours.is_late(newest, now),
        hours=whole["hours"],
        missing=whole["missing_hours"],
        first_missing=whole["first_missing"],
        most=whole["goodput_at_most"] if _is_bounded(whole) else None,
        program=goodput.program(whole),
        currency=whole["currency"],
        price_known=whole["price_known"] or None,
        causes=[goodput.line(each) for each in whole["causes"]],
        sites=[] if is_own else [_group(each, "site") for each in whole["groups"]],
        projects=named[: exports.most(_MOST_LINES)],
        other_projects=max(len(named) - _MOST_LINES, 0),
        waits=waits,
        free_gpu_h=sum(_hours(c["gpu_s"]) for c in whole["causes"] if c["cause"] == Unheld.FREE),
        wanted_gpu_h=sum(each.wanted_gpu_h for each in waits),
        weeks=weeks[: exports.most(_MOST_LINES)],
        other_weeks=max(len(weeks) - _MOST_LINES, 0),
        tells_hours=_tells_hours(user, span),
    )


def _tells_hours(user: User, span: Span) -> bool:
    """Say whether sums by rack, hour and attempt may be asked for of so long a span."""
    try:
        Asked.of(user, span, By.RACK, {})
    except ParameterError:
        return False
    return True


def _answer(whole: Mapping[str, Any], *, is_own: bool) -> str:
    if not whole["hours"]:
        return "No hour of this time has an account"
    if not whole["held_gpu_s"]:
        return "No job of your projects held a GPU" if is_own else "No job held a GPU"
    least = "at least " if _is_bounded(whole) else ""
    held_gpu_h = _hours(whole["held_gpu_s"])
    held = units.number(held_gpu_h, 1 if held_gpu_h < 100.0 else 0)
    of = "what was asked for" if is_own else "all GPU time"
    return (
        f"Goodput {least}{units.percent(whole['goodput'])} of {held} GPU-hours held"
        f" · {units.percent(whole['scheduling_goodput'])} of {of} was held"
    )


def _is_bounded(sums: Mapping[str, Any]) -> bool:
    """Say whether goodput is known by its bounds alone: of some of the time no loop tells."""
    return bool(sums["goodput"] != sums["goodput_at_most"])


def _hours(seconds: float) -> float:
    return seconds / 3600.0


def _group(sums: Mapping[str, Any], name: str) -> Group:
    held_gpu_s = sums["held_gpu_s"]
    # Causes come with the greatest first.
    lost = next((each for each in sums["causes"] if _is_known_loss(each)), None)
    return Group(
        name=sums["key"][name],
        held_gpu_h=_hours(held_gpu_s),
        held=held_gpu_s / sums["gpu_s"] if sums["gpu_s"] else None,
        least=sums["goodput"],
        most=sums["goodput_at_most"],
        mfu=sums["program_goodput"],
        loss=goodput.words(lost["cause"]) if lost else "",
        loss_share=lost["gpu_s"] / held_gpu_s if lost else None,
    )


def _is_known_loss(cause: Mapping[str, Any]) -> bool:
    """Say whether time was held, and known to be lost."""
    return bool(cause["lever"]) and cause["cause"] not in {*NOT_TOLD, *Unheld}


def _wait(each: Mapping[str, Any]) -> Wait:
    demand_gpu_h, wanted_gpu_h = _hours(each["demand_gpu_s"]), _hours(each["wanted_gpu_s"])
    return Wait(each["reason"], demand_gpu_h, wanted_gpu_h, each["money"])


def waited(project: Project, user: User, now: datetime) -> str:
    """Return for what a project waited in the last seven days, and what that cost; "": for nothing.

    Seven queries, and more where prices change meanwhile.
    """
    span = Span(now.timestamp() - _WAITED_S, now.timestamp())
    asked = Asked.of(user, span, By.CAUSE, {"project": project.name})
    return goodput.waited(told_of_fleet(add_up(asked, now.timestamp())))
