"""The condition of the server: loops, processes, disks, clock, and the backlog of batches.

:func:`look` reads it, :func:`troubles` says what of it is wrong. /readyz, /metrics, the page and
Headroom's own incident tell the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import redis
from django.conf import settings

from config import loops
from config.clock import Moment
from config.loops import Loop
from telemetry import aside, disk, stream

__all__ = [
    "Condition",
    "Service",
    "Step",
    "Trouble",
    "in_control",
    "look",
    "note_clock",
    "troubles",
]

#: The clock may differ by so much from the database's, s.
CLOCK_SLACK_S = 5.0
#: A step is one that is larger than this, s: NTP slews what is less.
STEP_S = 2.0
#: A step of the clock, and the end of a process that hung, are told of for this long, s.
TOLD_FOR_S = 600.0
#: What waits to be stored for longer than this is late, s.
LAG_S = 30.0
#: The supervisor writes its report every few seconds; an older one is of one that is gone.
_REPORT_MAX_AGE_S = 30.0

_OFFSETS = "clock:offset"
_STEP = "clock:step"
_STEPS = "clock:steps"


@dataclass(frozen=True)
class Step:
    """A step of the clock: its size (s, negative: back), and for how long it is known."""

    by_s: float
    age_s: float
    count: int


@dataclass(frozen=True)
class Service:
    """A service by the supervisor's report."""

    name: str
    running: bool
    restarts: int
    hung: int
    last: str
    hung_at: str = ""
    hung_ago_s: float | None = None


@dataclass(frozen=True)
class Condition:
    """The condition of the server at one moment. None: not found out, or not ours to know."""

    loops: Sequence[Loop] = ()
    backlog: int | None = None
    lag_s: float | None = None
    set_aside: int | None = None
    """How many batches cannot be stored."""
    folders: Sequence[disk.Folder] = ()
    services: Sequence[Service] | None = None
    report_age_s: float | None = None
    step: Step | None = None
    clock_offset_s: float | None = None
    """The database's clock minus ours."""
    errors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Trouble:
    """A trouble of the server. ``check`` is the check of /readyz that fails by it."""

    check: str
    name: str
    sentence: str
    critical: bool = False
    #: whether it is worth an incident, and not only a mention while things start
    lasting: bool = True


def look(client: redis.Redis, *, clock_offset_s: float | None = None) -> Condition:
    """Look at everything. A few round trips to Redis; raises RedisError."""
    now = Moment.now()
    services, report_age_s = _services(settings.STATE_DIR / "services.json", now)
    backlog, lag_s = stream.waiting(client)
    return Condition(
        loops=loops.read(client, now),
        backlog=backlog,
        lag_s=lag_s,
        set_aside=aside.count(client),
        folders=disk.folders(),
        services=services,
        report_age_s=report_age_s,
        step=_step(client, now),
        clock_offset_s=clock_offset_s,
    )


def _services(path: Path, now: Moment) -> tuple[list[Service] | None, float | None]:
    """Read the supervisor's report; None where no supervisor is on this machine."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        moment = Moment.parse(report["moment"])
        found = [_service(name, facts, now) for name, facts in report["services"].items()]
    except (OSError, ValueError, KeyError, TypeError):
        return None, None
    # One of an earlier boot says nothing about now.
    return (found, moment.age_s(now)) if moment.boot == now.boot else (None, None)


def _service(name: str, facts: Mapping[str, Any], now: Moment) -> Service:
    service = Service(name, **facts)
    if not service.hung_at:
        return service
    return replace(service, hung_ago_s=Moment.parse(service.hung_at).age_s(now))


# --- The clock -----------------------------------------------------------------------------------


def note_clock(client: redis.Redis, now: Moment) -> float:
    """Compare the clock with the last look, of whichever process; return the step, s, or 0.

    What the wall clock has more than the monotonic one changes only when the clock is set.
    """
    known = cast(bytes | None, client.hget(_OFFSETS, now.boot))
    client.hset(_OFFSETS, now.boot, repr(now.offset_s))
    by_s = now.offset_s - float(known) if known is not None else 0.0
    if abs(by_s) < STEP_S:
        return 0.0
    client.set(_STEP, f"{by_s:.3f} {now}")
    client.incr(_STEPS)
    return by_s


def _step(client: redis.Redis, now: Moment) -> Step | None:
    kept, count = cast(list[bytes | None], client.mget([_STEP, _STEPS]))
    if kept is None:
        return None
    by_s, _, moment = kept.decode().partition(" ")
    with suppress(ValueError):
        return Step(float(by_s), Moment.parse(moment).age_s(now), int(count or 0))
    return None


# --- What is wrong -------------------------------------------------------------------------------


def in_control(condition: Condition) -> bool:
    """Say whether every loop of control has been done lately. Pure."""
    ok = {each.name for each in condition.loops if each.ok}
    return ok.issuperset(loops.CONTROL)


def troubles(condition: Condition) -> list[Trouble]:
    """Return all that is wrong. Pure."""
    return [
        *_of_loops(condition),
        *_of_writer(condition),
        *_of_processes(condition),
        *_of_disks(condition),
        *_of_clock(condition),
    ]


def _of_loops(condition: Condition) -> list[Trouble]:
    found = []
    for each in condition.loops:
        if each.ok:
            continue
        age = "never" if each.age_s is None else f"{each.age_s:.0f} s ago"
        text = f"{each.name} is to be done every {each.pace_s:g} s and was last done {age}"
        if each.why == loops.AHEAD:
            text = f"{each.name} was last done {-each.age_s:.0f} s from now" if each.age_s else text
            text += ": the clock of the worker is ahead of this machine's"
        found.append(
            Trouble(
                "loops",
                f"loop-{each.name}",
                f"{text}.",
                critical=each.name in loops.CONTROL,
                lasting=each.why != loops.STARTING,
            )
        )
    return found


def _of_writer(condition: Condition) -> list[Trouble]:
    found = []
    if condition.lag_s is not None and condition.lag_s > LAG_S:
        text = (
            f"{condition.backlog} batches wait to be stored, the first for {condition.lag_s:.0f} s."
        )
        found.append(Trouble("worker", "writer-lag", text, critical=True))
    if condition.set_aside:
        text = (
            f"Batches that cannot be stored: {condition.set_aside}. They were set aside; their"
            " agents keep them. `manage.py set_aside` says whose they are, and why."
        )
        found.append(Trouble("worker", "set-aside", text))
    return found


def _of_processes(condition: Condition) -> list[Trouble]:
    if condition.services is None:
        return []
    if condition.report_age_s is None or not 0 <= condition.report_age_s <= _REPORT_MAX_AGE_S:
        text = "The supervisor has not said for a while how its processes are."
        return [Trouble("processes", "supervisor", text, critical=True)]
    return [
        # One that was never up is on its way: that others have to be up first is no trouble yet.
        Trouble(
            "processes",
            f"process-{each.name}",
            _about(each),
            lasting=not each.running and bool(each.last),
        )
        for each in condition.services
        if not each.running or (each.hung_ago_s is not None and each.hung_ago_s < TOLD_FOR_S)
    ]


def _about(service: Service) -> str:
    if not service.running and not service.last:
        return f"{service.name} has not been started yet."
    if not service.running:
        return f"{service.name} does not run ({service.last}); the supervisor starts it again."
    return f"A process of {service.name} {service.last} and was ended; it runs again."


def _of_disks(condition: Condition) -> list[Trouble]:
    found = []
    for each in condition.folders:
        free = f"{each.free_bytes / 2**20:.0f} MiB are left where {each.name} is stored"
        if each.is_full:
            text = f"{free}: readings are refused, and their agents keep them. Make room."
            found.append(Trouble("disk", f"disk-{each.name}", text, critical=True))
        elif each.is_low:
            text = f"{free}: below {settings.DISK_RESERVE_MB} MiB readings are refused. Make room."
            found.append(Trouble("disk", f"disk-{each.name}", text))
    return found


def _of_clock(condition: Condition) -> list[Trouble]:
    found = []
    offset_s, step = condition.clock_offset_s, condition.step
    if offset_s is not None and abs(offset_s) > CLOCK_SLACK_S:
        text = f"The clock of the database is {offset_s:+.1f} s from this machine's. Mend NTP."
        found.append(Trouble("clock", "clock-offset", text, critical=True))
    if step is not None and 0 <= step.age_s < TOLD_FOR_S:
        text = (
            f"The clock of the worker's machine was set by {step.by_s:+.1f} s, {step.age_s:.0f} s"
            " ago. Look at what was to end by the clock: restrictions, silences, holds."
        )
        found.append(Trouble("clock", "clock-step", text, critical=True))
    return found


def facts(condition: Condition) -> dict[str, Any]:
    """Return the checks of /readyz: figures, and nothing that tells of the inside."""
    wrong = {each.check for each in troubles(condition)}
    step = condition.step
    found: dict[str, dict[str, Any]] = {
        "worker": {
            "backlog": condition.backlog,
            "lag_s": _rounded(condition.lag_s),
            "set_aside": condition.set_aside,
        },
        "loops": {
            each.name: {
                "ok": each.ok,
                "pace_s": each.pace_s,
                "age_s": _rounded(each.age_s),
            }
            for each in condition.loops
        },
        "processes": {
            each.name: {"running": each.running, "restarts": each.restarts, "hung": each.hung}
            for each in condition.services or ()
        },
        "disk": {each.name: {"free_mib": each.free_bytes // 2**20} for each in condition.folders},
        "clock": {
            "database_offset_s": _rounded(condition.clock_offset_s),
            "step_s": _rounded(step.by_s) if step else None,
            "step_age_s": _rounded(step.age_s) if step else None,
        },
    }
    return {name: {"ok": name not in wrong, **each} for name, each in found.items()}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
