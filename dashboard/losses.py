"""The page of losses: what cost most, beside its usual, and what pays first, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from accounts import visibility
from accounts.models import User
from admission.core.baselines import Metric
from admission.core.losses import OF_ALL, Loss, Order
from admission.losses import reading
from admission.losses.told import told
from dashboard import baselines, goodput, hours, units
from telemetry.spans import Span

__all__ = ["ORDERS", "Line", "Page", "page"]

#: What losses may be ranked by, in words.
ORDERS: Mapping[Order, str] = {
    Order.GPU_H: "GPU-hours",
    Order.KWH: "kWh",
    Order.MONEY: "money",
}
#: Losses whose tokens do not say enough.
_WORDS: Mapping[str, str] = {
    Loss.NETWORK: "waits for other ranks",
    Loss.CAPS: "caps and pauses of ours",
    Loss.FAILURES: "failures: made again, restarting",
    Loss.SILENT: "silent GPUs",
    Loss.DRAINED: "drained GPUs",
    Loss.OUTSIDE_STEPS: "saves and evaluation",
    Loss.IDLE: "held but idle",
}
#: Less of a difference from normal is not worth a line.
_FAR = 0.05
#: Of a loss so many sites and projects are named.
_NAMED = 3
_BASES = {
    "law": "by the failure rates of the last 30 days",
    "usual": "once it is as it was in the four weeks before",
}


@dataclass(frozen=True, slots=True)
class Gain:
    """What an intervention brings back a week. None: not known."""

    lever: str
    basis: str
    gpu_h: float
    kwh: float | None
    money: float | None
    steps: Sequence[str]


@dataclass(frozen=True, slots=True)
class Line:
    """One loss. ``reason`` is that of a wait; ``parts`` are what of it is to be told apart."""

    words: str
    reason: str
    parts: Sequence[str]
    gpu_h: float
    share: float
    #: median share of the days before, and the range of most of them; None, "": not known
    usual: float | None
    usual_range: str
    kwh: float | None
    money: float | None
    lever: str
    most: float | None
    gain: Gain | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What the page shows. ``only`` is what is asked for alone, in words; "": all."""

    answer: str
    only: str
    first: Line | None
    lines: Sequence[Line]
    not_ranked: Sequence[goodput.Line]
    cannot_tell: Sequence[str]
    is_own: bool
    newest: datetime | None
    is_late: bool
    hours: int
    missing: int
    first_missing: float | None
    currency: str
    tells_kwh: bool
    tells_money: bool
    #: parameters of what is asked for alone, and with them that of the order, behind others
    filters: str
    also: str


def page(user: User, span: Span, order: Order, only: Mapping[str, str], now: datetime) -> Page:
    """Return the page of a span. As many queries as :func:`reading.of_span`."""
    found = told(reading.of_span(user, span, only, now.timestamp()), order)
    newest = None if found["newest"] is None else datetime.fromtimestamp(found["newest"], UTC)
    lines = [_line(each) for each in found["losses"]]
    filters = "".join(f"&{urlencode({name: value})}" for name, value in only.items())
    return Page(
        answer=_answer(found),
        only=" at ".join(only[name] for name in reading.ONLY if name in only),
        first=None if found["first"] is None else _line(found["first"]),
        lines=lines,
        not_ranked=[_not_ranked(each, found["gpu_h"]) for each in found["not_ranked"]],
        cannot_tell=found["cannot_tell"],
        is_own=not visibility.sees_all(user),
        newest=newest,
        is_late=hours.is_late(newest, now),
        hours=found["hours"],
        missing=found["missing_hours"],
        first_missing=found["first_missing"],
        currency=found["currency"],
        tells_kwh=any(each.kwh is not None for each in lines),
        tells_money=any(each.money is not None for each in lines),
        filters=filters,
        also=f"{filters}&rank={order.value}",
    )


def _answer(found: Mapping[str, Any]) -> str:
    if not found["hours"]:
        return "No hour of this time has an account"
    if not found["losses"]:
        return "No lost time is known of"
    most = found["losses"][0]
    usual = most["usual"]
    usually = f", usually {units.percent(usual['p50'])}" if usual else ""
    of = "all GPU time" if most["loss"] in OF_ALL else "what was held"
    words = _words(most)
    return (
        f"{words[0].upper()}{words[1:]} cost most: {_gpu_h(most['gpu_h'])}, "
        f"{units.percent(most['share'])} of {of}{usually}"
    )


def _words(line: Mapping[str, Any]) -> str:
    loss = line["loss"]
    if loss == Loss.WAITING:
        return f"waiting: {line['reason'] or 'no reason told'}"
    kind, _, token = loss.partition("_")
    return f"throttling: {token}" if kind == "throttled" else _WORDS.get(loss, goodput.words(loss))


def _gpu_h(amount: float) -> str:
    return f"{units.number(amount, 1 if amount < 100.0 else 0)} GPU-hours"


def _line(line: Mapping[str, Any]) -> Line:
    usual, gain = line["usual"], line["gain"]
    return Line(
        words=_words(line) if line["loss"] != Loss.WAITING else "waiting",
        reason=line["reason"],
        parts=_parts(line),
        gpu_h=line["gpu_h"],
        share=line["share"],
        usual=usual["p50"] if usual else None,
        usual_range=_range(usual) if usual else "",
        kwh=line["kwh"],
        money=line["money"],
        lever=line["lever"],
        most=line["most_gpu_h_week"],
        gain=None if gain is None else Gain(
            gain["lever"], _BASES[gain["basis"]], gain["gpu_h_week"], gain["kwh_week"],
            gain["money_week"], gain["steps"],
        ),
    )  # fmt: skip


def _range(usual: Mapping[str, Any]) -> str:
    low, high = units.percent(usual["p10"]), units.percent(usual["p90"])
    return f"{low} to {high} on most of {units.count(usual['days'], 'day')}"


def _parts(line: Mapping[str, Any]) -> list[str]:
    """Return what of a loss is to be told apart, in words."""
    parts = []
    if len(line["causes"]) > 1:
        parts += [f"{goodput.words(c['cause'])} {_gpu_h(c['gpu_h'])}" for c in line["causes"]]
    for word, names in (("at", line["sites"]), ("by", line["projects"])):
        if len(names) > 1:
            shares = (f"{n['name']} {units.percent(n['gpu_h'] / line['gpu_h'])}" for n in names)
            parts.append(f"{word} {', '.join([*shares][:_NAMED])}")
    parts += [
        f"{baselines.WORDS[Metric(e['metric'])]} {units.number(e['ratio'], 2)} times its normal"
        for e in line["degraded"]
        if abs(e["ratio"] - 1.0) >= _FAR
    ]
    if line["waited_gpu_h"] is not None:
        parts.append(f"of {_gpu_h(line['waited_gpu_h'])} waited for")
    if line["across_sites_gpu_h"]:
        parts.append(f"of gangs at several sites {_gpu_h(line['across_sites_gpu_h'])}")
    return parts


def _not_ranked(each: Mapping[str, Any], total_gpu_h: float) -> goodput.Line:
    return goodput.Line(
        goodput.words(each["cause"]), each["gpu_h"], each["gpu_h"] / total_gpu_h, each["lever"],
        is_lost=False,
    )  # fmt: skip
