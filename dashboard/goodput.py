"""Where the time of a job's GPUs went, in words for its page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from admission.core.account import Cause
from admission.goodput import queue, reading
from admission.goodput.told import told
from admission.jobs.models import Job
from dashboard import units
from telemetry.spans import ParameterError, Span

__all__ = ["Account", "Line", "line", "of", "program", "words"]

#: An account that is looked at goes back so far at most, s.
_MOST_S = 86_400.0
#: So many causes are named in the sentence.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Line:
    """The time that went to one cause. ``is_lost``: something could bring it back."""

    cause: str
    gpu_h: float
    share: float
    lever: str
    is_lost: bool
    #: what it comes to; None: not known, or not told
    money: float | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """An account as its page shows it. ``cannot_tell``: causes that lie in unknown time.

    ``program``: what its models took of what its GPUs can compute; empty: nothing to say.
    ``waited``: for what it waited since it was submitted, and what that cost; empty: for nothing.
    """

    answer: str
    lines: list[Line]
    cannot_tell: str
    is_cut: bool
    program: str = ""
    waited: str = ""


def of(job: Job, now: datetime) -> Account:
    """Return the account of the last day in which a job held GPUs, and of all its waiting.

    Some queries, and up to a second of a core for hundreds of GPUs.
    """
    lived, waits = reading.lived(job, now.timestamp()), queue.of_job(job, now)
    if lived is None:
        return Account(
            "It has held no GPU yet.", [], "", is_cut=False,
            waited=waited(told(job.name, None, waits)),
        )  # fmt: skip
    span = Span(max(lived.start, lived.end - _MOST_S), lived.end)
    try:
        found = told(job.name, reading.of_job(job, span, now.timestamp()), waits)
    except ParameterError as error:
        return Account(
            f"Its account is too much to add up here: {error}", [], "", is_cut=True,
            waited=waited(told(job.name, None, waits)),
        )  # fmt: skip
    return Account(
        _answer(found),
        [line(each) for each in found["causes"]],
        ", ".join(words(each) for each in found["cannot_tell"]) if _has_unknown(found) else "",
        is_cut=span.start > lived.start,
        program=program(found),
        waited=waited(found),
    )


def waited(found: Mapping[str, Any]) -> str:
    """Return for what was waited in words, and what that cost; "" for nothing."""
    waits = found["waiting"]
    demand_s = sum(each["demand_gpu_s"] for each in waits)
    if not demand_s:
        return ""
    reasons = ", ".join(
        f"{units.percent(each['demand_gpu_s'] / demand_s)} {each['reason'] or 'no reason told'}"
        for each in waits[:_NAMED]
    )
    said = f"Waited for {_gpu_hours(demand_s)}: {reasons}"
    if any(each["money"] is None for each in waits):
        return f"{said}. What that costs is not known: ENERGY_WAITING_GPU_HOUR is not stated"
    money = sum(each["money"] for each in waits)
    return f"{said}. That comes to {units.number(money, 2)} {found['currency']}"


def _gpu_hours(seconds: float) -> str:
    hours = seconds / 3600.0
    return f"{units.number(hours, 1 if hours >= 10.0 else 2)} GPU-hours"


def program(found: Mapping[str, Any]) -> str:
    """Return program goodput in words; "" where nothing is productive."""
    share, known = found["program_goodput"], found["program_known"]
    if not found["goodput"]:
        return ""
    if share is None or known is None:
        return "Program goodput is not known: no specification or loop states flops_per_step"
    part = "" if known > 0.995 else f", known for {units.percent(known)} of it"
    verdict = f": {found['program_verdict']}" if found["program_verdict"] else ""
    return f"Program goodput {units.percent(share)} MFU of productive time{part}{verdict}"


def _has_unknown(found: Mapping[str, Any]) -> bool:
    return any(each["cause"] == Cause.UNKNOWN for each in found["causes"])


def line(each: Mapping[str, Any]) -> Line:
    """Return a cause as :mod:`admission.goodput.told` tells of it."""
    hours = each["gpu_s"] / 3600.0
    return Line(
        words(each["cause"]), hours, each["share"], each["lever"], bool(each["lever"]),
        each.get("money"),
    )  # fmt: skip


def words(cause: str) -> str:
    """Return a cause in words; that of throttling by its token: ``throttled: sw_thermal``."""
    kind, _, rest = cause.partition("_")
    if kind != "throttled":
        return cause.replace("_", " ")
    token, _, how = rest.rpartition("_")
    return f"throttled: {token}, {how}"


def _answer(found: Mapping[str, Any]) -> str:
    hours = _gpu_hours(found["gpu_s"])
    if found["goodput"] is None:
        return f"{hours} held; its loop has reported no steps, so that its goodput is not known"
    lost = [
        f"{units.percent(each['share'])} {words(each['cause'])}"
        for each in found["causes"]
        if each["lever"] and each["cause"] != Cause.UNKNOWN and each["share"] >= 0.005
    ]
    least = "at least " if _has_unknown(found) else ""
    said = f"{least}{units.percent(found['goodput'])} goodput of {hours}"
    return f"{said}; lost: {', '.join(lost[:_NAMED])}" if lost else said
