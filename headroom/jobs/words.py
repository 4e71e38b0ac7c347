"""Jobs and reasons in plain words, from the API's answers. Pure: the clock is an argument."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

__all__ = [
    "AT_ONCE",
    "artifacts",
    "behind",
    "between",
    "booked",
    "bookings",
    "budgets",
    "clipped",
    "diagnosis",
    "dry_run",
    "estimated",
    "event",
    "explained",
    "fleet_goodput",
    "goodput",
    "harmless",
    "in_bytes",
    "in_cells",
    "lasting",
    "likely",
    "limits",
    "listed",
    "losses",
    "never",
    "queue",
    "said",
    "state",
    "submitted",
]

Answer = Mapping[str, Any]

_OVER = ("succeeded", "failed", "cancelled")
#: Of a job that waits, and all of whose drawn futures have it start in the next cycle: it has not
#: started, so that "now" would be untrue; futures are drawn each minute.
AT_ONCE = "under 1 min"
#: In the table of the queue, characters; ``explain`` has the whole.
_LONGEST_WHY = 120
_LIKELY = "likely to start "
_DAY_S = 86_400.0
#: Below so many seconds a range is said in this unit, of so many seconds.
_STEPS = ((120.0, 1.0, "s"), (7200.0, 60.0, "min"), (math.inf, 3600.0, "h"))


def lasting(seconds: float) -> str:
    """Return a length of time: ``8 s``, ``12 min``, ``3 h 5 min``, ``2 d 4 h``."""
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def since(at: str | None, now: float) -> float:
    """Return the time since ``at``, s; 0 for none."""
    return 0.0 if at is None else max(0.0, now - datetime.fromisoformat(at).timestamp())


def counted(amount: float, one: str) -> str:
    return f"{amount:,} {one}{'' if amount == 1 else 's'}"


# --- What waits ----------------------------------------------------------------------------------


def in_bytes(count: float) -> str:
    """Return a size: ``7 bytes``, ``1.2 kB``, ``3.4 GB``."""
    scales = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
    scale, unit = next(((each, name) for each, name in scales if count >= each), (0.0, ""))
    return f"{count / scale:.3g} {unit}" if unit else counted(count, "byte")


#: How cells of a matrix that was run can end, other than passed.
_NOT_PASSED = {
    "failed": "failed", "error": "broke", "not_measured": "could not be measured",
}  # fmt: skip


def in_cells(cells: Mapping[str, int]) -> str:
    """Return how a matrix ended: ``5 of 7 cells passed, 1 failed, 1 broke``.

    What could not be run says nothing, and is told only where nothing was run.
    """
    run = cells["passed"] + sum(cells[each] for each in _NOT_PASSED)
    if not run:
        return f"none of {counted(cells['not_run'], 'cell')} could be run"
    parts = [f"{cells[each]} {told}" for each, told in _NOT_PASSED.items() if cells[each]]
    return ", ".join([f"{cells['passed']} of {counted(run, 'cell')} passed", *parts])


def between(low_s: float | None, high_s: float | None) -> str:
    """Return when something is to start, from now: ``up to 4 min``, ``over a day``.

    Empty where it is not known. A range is rounded outwards: it holds what was estimated.
    """
    if low_s is None or high_s is None or math.isnan(low_s) or math.isnan(high_s):
        return ""
    if low_s >= _DAY_S or math.isinf(low_s):
        return "over a day"
    if math.isinf(high_s) or high_s >= 2 * _DAY_S:
        return f"over {lasting(low_s)}"
    factor, unit = next((size, unit) for below, size, unit in _STEPS if high_s < below)
    low, high = math.floor(low_s / factor), math.ceil(high_s / factor)
    if high <= 0:
        return AT_ONCE
    if low <= 0:
        return f"up to {high} {unit}"
    return f"{low} {unit}" if low == high else f"{low}\N{EN DASH}{high} {unit}"


def estimated(estimate: Answer | None) -> str:
    """Return the likely wait until a start, as a range; empty where that is unknown."""
    return between(estimate["p10_s"], estimate["p90_s"]) if estimate else ""


def likely(span: str, basis: str = "") -> str:
    """Return when something is likely to start, in words; ``span``: by :func:`between`.

    ``basis`` says why nobody knows, where the reason that it waits for does not.
    """
    if not span:
        return "when it will start cannot be said" + (f": {basis}" if basis else "")
    return f"{_LIKELY}in {span}"


def never(why: str) -> str:
    """Return that something cannot start, though there were nobody else, in words."""
    return f"never starts as it is, were the fleet all its own: {why}"


def queue(answer: Answer, now: float) -> Iterator[str]:
    """Yield the queue as lines of a table, with a summary on top."""
    yield _queue_head(answer, now)
    rows = [_queued(row, now) for row in answer["queue"]]
    if not rows:
        return
    header = ("", "phase", "class", "GPUs", "waits", "starts in", "why")
    yield ""
    yield from table([header, *rows], right={0, 3, 4})
    left = answer["waiting"] - sum(row.get("elements", 1) for row in answer["queue"])
    if left > 0:
        yield f"… and {left:,} more: --count {min(answer['waiting'], 1000)}"


def _queue_head(answer: Answer, now: float) -> str:
    if answer["at"] is None:
        return "No cycle has decided yet: is the worker running?"
    if not answer["waiting"]:
        return f"Nothing waits; {counted(answer['running'], 'phase')} run."
    reasons: dict[str, int] = {}
    for each in answer["counts"]:
        reasons[each["reason"]] = reasons.get(each["reason"], 0) + each["count"]
    ordered = sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0]))
    why = ", ".join(f"{count} {reason}" for reason, count in ordered)
    oldest = lasting(max(each["oldest_s"] for each in answer["counts"]))
    age_s = since(answer["at"], now)
    old = f" As of {lasting(age_s)} ago." if age_s > 15 else ""
    return f"{answer['waiting']:,} wait, {answer['running']:,} run; oldest {oldest}: {why}.{old}"


def _queued(row: Answer, now: float) -> tuple[str, ...]:
    return (
        str(row["position"]),
        _with_elements(row["what"], row.get("elements", 1)),
        row["job_class"],
        f"{row['gpus']:,}",
        lasting(since(row["queued_at"], now)) if row["queued_at"] else "",
        "never" if row.get("never") else estimated(row["estimate"]),
        clipped(
            f"{row['reason']}: {row['sentence']}" if row["sentence"] else row["reason"],
            _LONGEST_WHY,
        ),
    )


def _with_elements(what: str, elements: int) -> str:
    """Return a line's name; of an array that many of its elements share."""
    return what if elements == 1 else f"{what} and {elements - 1:,} like it"


def clipped(text: str, most: int) -> str:
    """Return a text that ``most`` characters are room for."""
    return text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def table(rows: Sequence[Sequence[str]], *, right: set[int]) -> Iterator[str]:
    """Yield rows as lines with columns below each other; those in ``right`` end together."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if at in right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def listed(jobs: Sequence[Answer], now: float) -> Iterator[str]:
    """Yield jobs as lines of a table."""
    if not jobs:
        yield "No such jobs."
        return
    header = ("job", "project", "class", "state", "priority", "GPUs", "submitted", "by")
    yield from table([header, *(_listed(job, now) for job in jobs)], right={4, 5})


def _gpus(job: Answer) -> int:
    """Return how many GPUs the largest phase of a job asks for; of an array, one element."""
    if job.get("array") is not None:
        return int(job["array"]["gpus"])
    return max((phase["gpus"] for phase in job["phases"]), default=0)


_ELEMENTS = ("running", "waiting", "succeeded", "failed", "cancelled")


def array(found: Answer) -> str:
    """Return the elements of an array in numbers: ``3 running, 95 behind them of 98``."""
    parts = [f"{found[state]:,} {state}" for state in _ELEMENTS if found[state]]
    if found["left"]:
        parts.append(f"{found['left']:,} behind them" if parts else f"{found['left']:,} left")
    return f"{', '.join(parts)} of {found['elements']:,}"


def _listed(job: Answer, now: float) -> tuple[str, ...]:
    return (
        job["name"],
        job["project"],
        job["job_class"],
        job["state"] if job.get("array") is None else f"{job['state']}: {array(job['array'])}",
        str(job["priority"]),
        f"{_gpus(job):,}",
        f"{lasting(since(job['submitted_at'], now))} ago",
        job["submitted_by"],
    )


# --- What one may have ----------------------------------------------------------------------------

_LIMITS = (
    ("gpus", "GPUs at once"),
    ("running", "phases that run at once"),
    ("pending_jobs", "jobs that wait"),
    ("pending_phases", "phases that wait"),
)


def limits(project: Answer) -> Iterator[str]:
    """Yield what whoever asks may have of a project at once, and has, as lines of a table."""
    mine = project["per_user"]["mine"]
    rows = [
        (words, f"{_plain(mine['use'][name]):,}", _limit(mine["limits"][name]))
        for name, words in _LIMITS
    ]
    yield f"In project {project['name']}, you have:"
    yield from table([("", "now", "at most"), *rows], right={1, 2})
    rate = mine["limits"]["submissions_per_s"]
    if rate is not None:
        yield f"You may submit {rate:g} jobs a second there."
    quota = project["share"]["gpu_quota"]
    whole = "no quota" if quota is None else f"{counted(quota, 'GPU')} at once"
    held = counted(_plain(project["gpus_held"]), "GPU")
    yield f"All of it together holds {held}, and has {whole}."


def _plain(number: float) -> float:
    """Return a whole number without its fraction: slices of GPUs make some of them others."""
    return int(number) if number == int(number) else number


def _limit(limit: int | None) -> str:
    return "no limit" if limit is None else f"{limit:,}"


# --- What is booked -------------------------------------------------------------------------------


def bookings(found: Sequence[Answer]) -> Iterator[str]:
    """Yield bookings as lines of a table."""
    if not found:
        yield "Nothing is booked."
        return
    header = ("", "what", "for", "from", "until", "GPUs", "why")
    yield from table([header, *map(_booking, found)], right={0, 5})


def _booking(row: Answer) -> tuple[str, ...]:
    return (
        str(row["id"]),
        row["what"],
        _for_whom(row) + (", now" if row["state"] == "running" else ""),
        _moment(row["starts_at"]),
        _moment(row["ends_at"]),
        f"{row['gpus']:,}",
        row["reason"],
    )


def booked(row: Answer) -> str:
    """Return a sentence on a booking that was made."""
    span = f"{_moment(row['starts_at'])} to {_moment(row['ends_at'])}"
    gpus = counted(row["gpus"], "GPU")
    return f"Booking {row['id']}: {row['what']}, {gpus}, for {_for_whom(row)}, {span}."


def _for_whom(row: Answer) -> str:
    if row["kind"] == "maintenance":
        return "maintenance"
    return row["project"] or "another project"


def _moment(text: str) -> str:
    return f"{datetime.fromisoformat(text).astimezone():%Y-%m-%d %H:%M}"


# --- What it says --------------------------------------------------------------------------------

#: Colors and weights of text are let through, all else that a terminal would obey is spelled out.
_ODD = re.compile(
    "\x1b\\[[0-9;]*m"
    "|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def harmless(text: str) -> str:
    """Return ``text`` with characters that a terminal would obey spelled out, as ⟨U+001B⟩."""
    return _ODD.sub(lambda m: m[0] if len(m[0]) > 1 else f"⟨U+{ord(m[0]):04X}⟩", text)


def said(last: Answer, *, has_said: bool) -> Iterator[str]:
    """Yield what is to be said of output after its last stretch."""
    if last["attempt"] is None:
        yield f"{last['job']} has not begun: headroom explain {last['job']}"
        return
    where = f"{last['job']}/{last['phase']}/{last['attempt']}"
    if last["node"]:
        where += f" on {last['node']}"
    if last["pending"]:
        what = "the last that it told" if last["tail"] and not has_said else "what is kept here"
        yield f"{where}: its machine does not answer; this is {what}"
    if last["state"] == "ended" or last["why"]:
        yield f"{where}: {last['why'] or 'ended'}"
    if last["ranks"] > 1:
        others = [str(rank) for rank in last["failed_ranks"] if rank != last["rank"]][:5]
        failed = f"; others that failed: {', '.join(others)}" if others else ""
        yield f"rank {last['rank']} of {last['ranks']}{failed}"


# --- Why -----------------------------------------------------------------------------------------


def explained(answer: Answer, job: Answer, now: float) -> Iterator[str]:
    """Yield why a job does not run, phase by phase, and the changes that would start it."""
    if answer["state"] in _OVER:
        yield f"{answer['job']} is over: {answer['state']}.{_energy(job)}"
        return
    waiting = {phase["phase"] for phase in answer["phases"]}
    if job.get("array") is not None:
        yield f"{answer['job']}, an array: {array(job['array'])}."
    for phase in job["phases"]:
        if phase["name"] not in waiting and job.get("array") is None:
            yield f"{answer['job']}/{phase['name']} {_standing(phase, now)}"
            yield from _stays(answer, phase)
    for phase in answer["phases"]:
        rows = (each for each in job["phases"] if each["name"] == phase["phase"])
        queued_at = next((each["queued_at"] for each in rows), None)
        yield from _phase_explained(answer["job"], phase, since(queued_at, now))
    yield from _checkpoints(job, now)


def artifacts(answer: Answer) -> Iterator[str]:
    """Yield a table of the artifacts of a job, whole digests below it."""
    rows = answer["artifacts"]
    if not rows:
        yield f"No phase of {answer['job']} declares artifacts: outputs in its specification."
        return
    yield from table([("ARTIFACT", "SIZE", "AT"), *map(_artifact, rows)], right={1})
    for row in rows:
        if row["digest"]:
            yield f"{row['phase']}/{row['name']}: {row['digest']}, {row['path']}"


def _artifact(row: Answer) -> tuple[str, ...]:
    name = f"{row['phase']}/{row['name']}"
    if row["size_bytes"] is None:
        return name, "", "not made yet"
    where = ", ".join(map(_place, row["places"]))
    if row["cells"]:
        where = f"{where}; {in_cells(row['cells'])}"
    return name, in_bytes(row["size_bytes"]), where


def _place(place: Answer) -> str:
    state = {True: "", False: " (differs)", None: " (missing)"}[place["is_whole"]]
    return f"{place['site']}{state}"


def goodput(found: Answer) -> Iterator[str]:
    """Yield where the time of a job's GPUs went, by cause, the most first."""
    if not found["gpu_s"]:
        yield f"{found['job']} held no GPU in this time."
        yield from _waited(found)
        return
    held = f"{found['job']} held GPUs for {found['gpu_s'] / 3600:,.2f} GPU-hours"
    share = found["goodput"]
    if share is None:
        yield f"{held}. Its loop reported no steps, so its goodput is not known."
    else:
        has_unknown = any(each["cause"] == "unknown" for each in found["causes"])
        least = "at least " if has_unknown else ""
        yield f"{held}: {least}{100 * share:.1f} % goodput."
    yield from _program(found)
    yield from _causes(found)
    if found["cannot_tell"]:
        yield f"In unknown: {', '.join(found['cannot_tell'])}."
    yield from _waited(found)


def _waited(found: Answer) -> Iterator[str]:
    """Yield for what a job has waited since it was submitted. Older servers do not tell."""
    for each in found.get("waiting", ()):
        hours = each["demand_gpu_s"] / 3600
        money = each["money"]
        cost = "" if money is None else f": {money:,.2f} {found['currency']}"
        reason = each["reason"] or "no reason told"
        yield f"Waited for {hours:,.2f} GPU-hours, {reason}{cost}."


def _program(found: Answer) -> Iterator[str]:
    """Yield the model FLOP utilization of productive time, where jobs state their FLOPs."""
    program, known = found["program_goodput"], found["program_known"]
    if program is None or known is None:
        if found["goodput"] is not None:
            yield "Program goodput is not known: state flops_per_step in specification or loop."
        return
    part = "" if known > 0.9995 else f", known for {100 * known:.1f} % of it"
    yield f"Program goodput: {100 * program:.1f} % MFU of productive time{part}."
    if found["program_verdict"]:
        yield f"That is {found['program_verdict']}"


def budgets(found: Sequence[Answer]) -> Iterator[str]:
    """Yield a line for each budget in force: what is used, and what is forecast."""
    rows = [
        ("BUDGET", "PROJECT", "AMOUNT", "USED", "FORECAST", "UNTIL (UTC)", "NOT CLOSED", "NOT READ")
    ]
    for each in found:
        stands = each["standing"]
        if stands is None:
            continue
        # Older servers do not tell of readings.
        ahead, unread = stands["forecast_share"], stands.get("unread")
        rows.append(
            (
                str(each["id"]), each["project"], f"{each['amount']:,g} {each['unit']}",
                f"{'at least ' if stands['is_least'] else ''}{100 * stands['share']:.1f} %",
                "" if ahead is None else f"{100 * ahead:.1f} %",
                stands["end"][:16].replace("T", " "), counted(stands["open_hours"], "hour"),
                "" if unread is None else f"{100 * unread:.1f} %",
            )
        )  # fmt: skip
    if len(rows) == 1:
        yield "No budget is in force."
        return
    yield from table(rows, right={2, 3, 4})


def _causes(found: Answer) -> Iterator[str]:
    rows = [("CAUSE", "GPU-HOURS", "SHARE", "WHAT BRINGS IT BACK")]
    for each in found["causes"]:
        hours, part = f"{each['gpu_s'] / 3600:,.2f}", f"{100 * each['share']:.1f} %"
        rows.append((each["cause"], hours, part, each["lever"]))
    yield from table(rows, right={1, 2})


def fleet_goodput(found: Answer) -> Iterator[str]:
    """Yield where the time of the fleet's GPUs went: in all, by cause, by group; what waited."""
    if found["missing_hours"]:
        yield _missing(found)
    if not found["gpu_s"]:
        yield "There is no account of this time."
        return
    yield _whole(found)
    if found["money"] is not None:
        known = f"of which the price is known for {100 * found['price_known']:.1f} %"
        yield f"That time comes to {found['money']:,.2f} {found['currency']}, {known}."
    yield from _program(found)
    yield from _causes(found)
    if found["by"] != "cause":
        yield ""
        yield from table([*_groups(found)], right={1, 2, 3})
    for each in found["waiting"]:
        wanted = f"{each['wanted_gpu_s'] / 3600:,.2f} of it while as many GPUs were free"
        reason = each["reason"] or "no reason told"
        yield f"Waited for: {each['demand_gpu_s'] / 3600:,.2f} GPU-hours, {wanted} ({reason})."
    for each in found["iterations"]:
        if each["index"] is not None:
            made = f"{each['moved']:,.0f} iterations moved it on, {each['repeated']:,.0f} were made"
            lost = f"again, {each['missed']:,.0f} were missed: model iteration index"
            yield f"{each['project']}, week of {each['week']}: {made} {lost} {each['index']:.2f}."


def _whole(found: Answer) -> str:
    """Return the goodput of all that was asked for, in a line."""
    parts = [
        f"{name} {100 * share:.1f} %"
        for name, share in (
            ("scheduling", found["scheduling_goodput"]),
            ("runtime at least", found["runtime_goodput"]),
            ("both", found["fleet_goodput"]),
        )
        if share is not None
    ]
    return f"{found['gpu_s'] / 3600:,.2f} GPU-hours. Goodput: {', '.join(parts) or 'not known'}."


def _groups(found: Answer) -> Iterator[tuple[str, ...]]:
    yield found["by"].upper(), "GPU-HOURS", "HELD", "GOODPUT"
    for each in found["groups"]:
        goodput = each["goodput"]
        yield (
            " ".join(_key(name, value) for name, value in each["key"].items()),
            f"{each['gpu_s'] / 3600:,.2f}",
            f"{each['held_gpu_s'] / 3600:,.2f}",
            "" if goodput is None else f"{100 * goodput:.1f} %",
        )


def _key(name: str, value: Any) -> str:
    if name == "hour":
        return f"{datetime.fromtimestamp(value).astimezone():%Y-%m-%d %H:%M}"
    return str(value) if value != "" else "(nobody)"


def losses(found: Answer) -> Iterator[str]:
    """Yield what pays first, with its arithmetic, then what cost most, beside what is usual."""
    if not found["hours"]:
        yield "There is no account of this time."
        return
    if found["missing_hours"]:
        yield _missing(found)
    yield from _pays_first(found["first"], found["currency"])
    if found["losses"]:
        yield ""
        yield from table([*_lost(found)], right={1, 2, 3, 4, 5, 6})
    for each in found["not_ranked"]:
        yield f"Not ranked: {each['cause']}, {each['gpu_h']:,.2f} GPU-hours. {each['lever']}."
    yield from (f"Cannot tell {each}." for each in found["cannot_tell"])


def _missing(found: Answer) -> str:
    since = datetime.fromtimestamp(found["first_missing"]).astimezone()
    hours = counted(found["missing_hours"], "hour")
    return f"Of {hours} there is no account, the first at {since:%Y-%m-%d %H:%M}."


def _pays_first(first: Answer | None, currency: str) -> Iterator[str]:
    if first is None:
        yield "What pays first is not known: no gain is known of any loss."
        return
    gain = first["gain"]
    back = [f"{gain['gpu_h_week']:,.2f} GPU-hours"]
    if gain["kwh_week"] is not None:
        back.append(f"{gain['kwh_week']:,.2f} kWh")
    if gain["money_week"] is not None:
        back.append(f"{gain['money_week']:,.2f} {currency}")
    yield f"What pays first: {gain['lever']}."
    yield f"It brings back {', '.join(back)} a week ({_loss(first)})."
    yield from (f"  {step}" for step in gain["steps"])


def _lost(found: Answer) -> Iterator[tuple[str, ...]]:
    yield (
        "LOST TO", "GPU-HOURS", "SHARE", "USUALLY", "KWH", found["currency"], "BACK A WEEK",
        "WHAT BRINGS IT BACK",
    )  # fmt: skip
    for each in found["losses"]:
        usual, gain = each["usual"], each["gain"]
        yield (
            _loss(each),
            f"{each['gpu_h']:,.2f}",
            f"{100 * each['share']:.1f} %",
            f"{100 * usual['p50']:.1f} %" if usual else "",
            _known(each["kwh"]),
            _known(each["money"]),
            _known(gain["gpu_h_week"]) if gain else "not known",
            gain["lever"] if gain else each["lever"],
        )


def _loss(line: Answer) -> str:
    return f"{line['loss']} ({line['reason']})" if line["reason"] else str(line["loss"])


def _known(amount: float | None) -> str:
    return "" if amount is None else f"{amount:,.2f}"


def diagnosis(found: Answer) -> Iterator[str]:
    """Yield what binds a job, with the arithmetic, and what cannot be told."""
    if not found["found"]:
        yield f"Nothing binds {found['job']}, as far as can be told."
    for each in found["found"]:
        yield f"constraint: {each['constraint']}"
        yield f"verdict:    {each['verdict']}"
        yield f"lever:      {each['lever']}"
        yield from (f"  {step}" for step in each["steps"])
        yield ""
    yield from (f"Evidence: {each}." for each in found["evidence"])
    for phase in found["outlook"]:
        yield from (f"{phase['phase']}: {each}." for each in phase["sentences"])
    yield from (f"Cannot tell {each}." for each in found["cannot_tell"])


def _energy(job: Answer) -> str:
    """Return the energy of all attempts of a job, in words; "": it is not known."""
    attempts = [each for phase in job["phases"] for each in phase.get("attempts") or ()]
    used = [each["energy_j"] for each in attempts if each.get("energy_j") is not None]
    return f" Its GPUs used {sum(used) / 3.6e6:,.3g} kWh." if used else ""


def _checkpoints(job: Answer, now: float) -> Iterator[str]:
    """Yield which checkpoint is where; of one that its loop alone has told of, that it has."""
    facts = job.get("checkpoints") or ()
    for each in facts:
        what = "none is whole"
        if each["step"] is not None:
            saved, verified = (since(each[name], now) for name in ("saved_at", "verified_at"))
            what = f"step {each['step']:,} of {each['run']}, saved {lasting(saved)} ago, "
            what += f"verified {lasting(verified)} ago"
        yield f"Checkpoints at {each['site']}: {what}; {behind(each)}."
    for attempt in (phase["attempts"][-1] for phase in job["phases"] if phase.get("attempts")):
        began, saved_at = attempt.get("started_at"), attempt.get("checkpoint_at")
        is_told = began and any(since(began, now) >= since(each["told_at"], now) for each in facts)
        if saved_at and not is_told and attempt["state"] != "ended":
            ago = lasting(since(saved_at, now))
            yield f"Its last checkpoint, {ago} ago, is declared, not verified."


def behind(fact: Answer) -> str:
    """Return how far the checkpoints of a site are behind those at the loop, in words."""
    count = fact["lag_checkpoints"]
    if count is None:
        return "the loop saves there"
    if not count:
        return "not behind"
    size = f"{counted(count, 'checkpoint')} and {fact['lag_bytes'] / 1e9:,.3g} GB behind"
    if fact["lag_s"] is None:
        return f"{size}, with nothing to resume from"
    return f"{counted(fact['lag_steps'], 'step')}, {lasting(fact['lag_s'])}, {size}"


def _stays(answer: Answer, phase: Answer) -> Iterator[str]:
    """Yield why a phase that runs with fewer GPUs than it may have gets no more just now.

    And what it did at each size, where that was measured.
    """
    for each in answer.get("stays", ()):
        if each["phase"] == phase["name"]:
            yield f"  has no more of its GPUs: {each['sentence']}"
    for each in answer.get("scaling", ()):
        if each["phase"] == phase["name"]:
            yield f"  measured: {each['sentence']}"


def _phase_explained(job: str, phase: Answer, waited_s: float) -> Iterator[str]:
    name = f"{job}/{phase['phase']}"
    if not phase["reasons"]:
        yield f"{name} begins with the next cycle."
        return
    first, *others = phase["reasons"]
    yield f"{name} waits, for {lasting(waited_s)} now: {first['sentence']} ({first['token']})."
    for reason in others:
        yield f"  also: {reason['sentence']} ({reason['token']})"
    fixes = phase["counterfactuals"]
    yield from _fixes(fixes)
    yield from _never(phase.get("never"))
    yield from _when(phase)
    yield from _placed(phase)
    if phase.get("elements", 1) > 1:
        yield f"  the same keeps {counted(phase['elements'] - 1, 'other element')} of the array"


def _when(phase: Answer) -> Iterator[str]:
    """Yield when a phase is likely to start as it is, or that nobody knows."""
    estimate = phase.get("estimate")
    if estimate is None or phase.get("never") is not None:
        return
    when = likely(estimated(estimate), estimate["basis"])
    if phase["counterfactuals"] and when.startswith(_LIKELY):
        when = f"otherwise {when.removeprefix(_LIKELY)}"
    yield f"  {when}"


def _placed(phase: Answer) -> Iterator[str]:
    """Yield the place of a phase in the queue and what decided it, and why nobody gives way."""
    steps = {step["check"]: step["sentence"] for step in phase.get("trace") or ()}
    _, _, decided = steps.get("order", "").partition(": ")
    yield f"  position {phase['position']:,} in the queue{f': {decided}' if decided else ''}"
    if "giving way" in steps:
        yield f"  nobody gives way to it: {steps['giving way']}"


def _fixes(fixes: Sequence[Answer]) -> Iterator[str]:
    """Yield the changes that would start a phase now, each way below the other."""
    now = [fix for fix in fixes if not fix.get("begins_at")]
    for place, fix in enumerate(now):
        how = fix["sentence"].removeprefix("starts now ")
        yield f"  {'starts now' if place == 0 else '        or'} {how}"
        others = (fix.get("costs_others") or {}).get("jobs", [])
        if others:
            yield f"             ahead of {', '.join(others)}"
    for fix in fixes:
        if fix.get("begins_at"):
            yield f"  {fix['sentence']}"


def _never(found: Answer | None) -> Iterator[str]:
    """Yield why a phase can never start as it is, and what would make it possible."""
    if found is None:
        return
    yield f"  {never(found['reason']['sentence'])}"
    if not found["ways"]:
        yield "  no cap, size, site or locality was found under which it could"
    for way in found["ways"]:
        yield f"  once there is room, it {way['sentence']}"


def _standing(phase: Answer, now: float) -> str:
    if phase["state"] in _OVER:
        return f"has {'been ' if phase['state'] == 'cancelled' else ''}{phase['state']}."
    if phase["state"] in ("running", "paused", "pausing"):
        # A phase keeps when its first attempt began; what runs now may be a later one.
        attempt = phase["attempts"][-1] if phase.get("attempts") else phase
        again = f", attempt {attempt['number']}" if attempt.get("number", 1) > 1 else ""
        begun_at = attempt["started_at"]
        begun = f", begun {lasting(since(begun_at, now))} ago" if begun_at else ""
        unheard = f" {attempt['unheard']}." if attempt.get("unheard") else ""
        return f"is {phase['state']}{again}{begun}.{unheard}"
    return f"is {phase['state']}."


# --- What was asked for --------------------------------------------------------------------------


def submitted(job: Answer) -> str:
    """Return a sentence on a job that was submitted."""
    size = counted(len(job["phases"]), "phase")
    if job.get("array") is not None:
        size = f"{counted(job['array']['elements'], 'element')} of {size}"
    return (
        f"{job['name']} is queued: {size}, "
        f"{counted(_gpus(job), 'GPU')} at most. Follow it: headroom watch {job['name']}"
    )


def dry_run(answer: Answer) -> Iterator[str]:
    """Yield for each phase whether it would start."""
    yield f"In project {answer['project']}, class {answer['job_class']}; nothing was submitted."
    for phase in answer["phases"]:
        yield from _phase_tried(phase)


def _phase_tried(phase: Answer) -> Iterator[str]:
    after = f" once {' and '.join(phase['after'])} has succeeded" if phase["after"] else ""
    after += "".join(f", after it has waited for {text}" for text in phase.get("needs", ()))
    if phase["starts"]:
        yield f"{phase['phase']} would begin at once{after}: {_where(phase['placement'])}"
        for warning in phase["placement"]["warnings"]:
            yield f"  note: {warning}"
        return
    sentences = "; ".join(f"{each['sentence']} ({each['token']})" for each in phase["reasons"])
    place = f" at position {phase['position']:,}" if phase["position"] else ""
    yield f"{phase['phase']} would wait{place}{after}: {sentences}"
    yield from _fixes(phase["counterfactuals"])
    yield from _never(phase.get("never"))


def _where(placement: Answer) -> str:
    parts = [
        f"{counted(placement['gpus'], 'GPU')} on {counted(placement['nodes'], 'node')} "
        f"in {', '.join(placement['racks'])}",
        f"{placement['total_w'] / 1000:,.1f} kW",
    ]
    if placement["power_cap_w"] is not None:
        share = placement["slowdown"]
        slower = f", about {100 * share:.0f} % slower" if share else ""
        parts.append(f"capped at {placement['power_cap_w']:,.0f} W per GPU{slower}")
    return ", ".join(parts)


# --- While it goes on ----------------------------------------------------------------------------


def event(told: Answer) -> str:
    """Return one event, with its time."""
    at = datetime.fromisoformat(told["at"]).astimezone()
    phase = f"{told['phase']}: " if told["phase"] else ""
    return f"{at:%H:%M:%S}  {phase}{told['text']}"


def state(job: Answer, now: float) -> str:
    """Return the state of a job, in a line."""
    phases = (
        array(job["array"])
        if job.get("array") is not None
        else ", ".join(
            f"{phase['name']} {phase['state']}"
            + (f" ({phase['reason']})" if phase["reason"] else "")
            for phase in job["phases"]
        )
    )
    took = ""
    if job["ended_at"] is not None:
        ended = datetime.fromisoformat(job["ended_at"]).timestamp()
        took = f" after {lasting(since(job['submitted_at'], ended))}"
    else:
        took = f", submitted {lasting(since(job['submitted_at'], now))} ago"
    return f"{job['name']} {job['state']}{took}: {phases}"
