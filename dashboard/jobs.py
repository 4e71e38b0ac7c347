"""The page of one job: its phases, why the chosen one waits, and where it runs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any
from urllib.parse import urlencode

import numpy as np
import yaml
from django.db.models import Count, F, Q
from django.urls import reverse
from django.utils.safestring import SafeString

from accounts.visibility import Visibility
from admission.core.allocation import reservation
from admission.core.cycle.change import Counterfactual
from admission.core.request import Locality, Request
from admission.core.response import first_step
from admission.directives.models import Directive
from admission.directives.visible import directives
from admission.jobs import checkpoints, elements, needs, visible
from admission.jobs.artifacts import Line as ArtifactLine
from admission.jobs.artifacts import lines_of
from admission.jobs.models import Attempt, Dependency, Job, JobEvent, Phase
from admission.learned.models import Draw, DrawProfile, StartForecast
from admission.queue import queue_status
from dashboard import reasons, units
from dashboard.queue import href
from dashboard.reasons import Line
from dashboard.svg import graph
from dashboard.svg.graph import Box
from dashboard.templatetags.telemetry_words import lasted
from fleet.snapshot import FleetArrays
from headroom.jobs.words import in_bytes, in_cells
from telemetry.models import CheckpointFact

State = Phase.State

#: Mark and look of each state of a phase; the word stands beside them.
STATES: dict[str, tuple[str, str]] = {
    State.WAITING: ("◌", "later"),
    State.QUEUED: ("…", "queued"),
    State.STARTING: ("▷", "running"),
    State.RUNNING: ("▶", "running"),
    State.PAUSING: ("‖", "paused"),
    State.PAUSED: ("‖", "paused"),
    State.STOPPING: ("□", "paused"),
    State.SUCCEEDED: ("✓", "done"),
    State.FAILED: ("✕", "failed"),
    State.CANCELLED: (units.DASH, "cancelled"),
}

#: Of a job's history the page shows so many entries.
EVENTS_SHOWN = 100
REASONS_SHOWN = 30
DIRECTIVES_SHOWN = 50
#: Kinds of events that are no change of reason: those are a list of their own.
REASON, DISPATCHED = "reason", "dispatched"
_AHEAD = 10


# --- Phases --------------------------------------------------------------------------------------

#: Which phase a page opens with: what runs, else what could, else what came last.
_FIRST = (
    *(State.RUNNING, State.STARTING, State.PAUSING, State.PAUSED, State.STOPPING),
    *(State.QUEUED, State.FAILED, State.WAITING),
)


def chosen(phases: Sequence[Phase], name: str) -> Phase | None:
    """Return the phase that the URL names, or the most relevant one. None: there is no such."""
    if name:
        return next((phase for phase in phases if phase.name == name), None)
    ranked = [phase for state in _FIRST for phase in phases if phase.state == state]
    return next(iter(ranked), phases[-1])


@dataclass(frozen=True, slots=True)
class ArrayShown:
    """An array: its elements in numbers, and the phases of those that are of interest.

    ``counts`` are words and how many elements are so.
    """

    indices: str
    limit: int | None
    elements: int
    counts: list[tuple[str, int]]
    phases: list[Phase]

    @property
    def others(self) -> int:
        """How many elements are in numbers alone."""
        return self.elements - len({phase.element for phase in self.phases})


def array_shown(job: Job) -> ArrayShown | None:
    """Return the array that ``job`` is; None: it is none. Three queries."""
    if job.elements is None:
        return None
    found, counts = elements.array_of(job), elements.counts_of([job])[job.pk]
    left = "never began" if job.state not in Job.OPEN else "behind them"
    words = {**{name: name for name in counts}, "left": left, "waiting": "in the queue"}
    shown = [(words[name], count) for name, count in counts.items() if count and name != "left"]
    shown += [(left, counts["left"])] if counts["left"] else []
    phases = sorted(elements.phases_shown(job), key=lambda each: (each.element or 0, each.index))
    for each in phases:
        each.job = job
    indices = job.spec["array"].partition("%")[0]
    return ArrayShown(indices, found.limit, job.elements, shown, phases)


def drawing(phases: Sequence[Phase], shown: Phase, now: datetime) -> SafeString:
    """Return the phases as a graph, each a link to its page."""
    boxes = [_box(phase, phase is shown, now) for phase in phases]
    return graph.graph(boxes, f"{units.count(len(phases), 'phase')}, from first to last")


def _box(phase: Phase, is_chosen: bool, now: datetime) -> Box:
    mark, look = STATES.get(phase.state, ("", "later"))
    size = units.count(phase.gpus, "GPU")
    words = _how_long(phase, now)
    first = f"{phase.state} {words}".strip()
    second = f"{size} · {phase.reason}" if phase.state == State.QUEUED and phase.reason else size
    return Box(
        name=phase.name,
        needs=tuple(phase.needs),
        href=f"?{urlencode({'phase': phase.name})}",
        mark=mark,
        look=look,
        lines=(first, second),
        title=f"phase {phase.name}: {first}, {second}",
        chosen=is_chosen,
    )


def _how_long(phase: Phase, now: datetime) -> str:
    if phase.state == State.QUEUED and phase.queued_at:
        return lasted((now - phase.queued_at).total_seconds())
    if phase.started_at is None or phase.state == State.WAITING:
        return ""
    return lasted(((phase.ended_at or now) - phase.started_at).total_seconds())


# --- Checkpoints ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CheckpointsShown:
    """What is known of a job's checkpoints by site, and whether that of an attempt is verified."""

    facts: list[CheckpointFact]
    is_verified: bool


def checkpoints_shown(job: Job, attempt: Attempt | None, now: datetime) -> CheckpointsShown:
    """Return what is known of the checkpoints of a job. One query."""
    facts = checkpoints.of_job(job.name)
    fresh = [fact for fact in facts if fact.received_at > now - checkpoints.COUNTS_FOR]
    told = attempt and checkpoints.verified_of(attempt, fresh)
    return CheckpointsShown(facts, is_verified=told is not None)


# --- Why it waits --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ahead:
    """A phase ahead in the queue. Without a name it is a job of another project."""

    position: int
    name: str
    href: str
    token: str
    p10_s: float | None
    p90_s: float | None


@dataclass(frozen=True, slots=True)
class Why:
    """Why a phase waits: all reasons, and each step of the last decision."""

    position: int | None
    waiting: int
    dominant: Line | None
    lines: list[Line]
    trace: tuple[queue_status.TraceLine, ...]
    p10_s: float | None
    p50_s: float | None
    p90_s: float | None
    basis: str
    #: why it cannot start though the fleet were all its own; empty: it can
    never: str
    ahead: list[Ahead] = field(default_factory=list)


def pending_status_of(phase: Phase, visibility: Visibility) -> queue_status.PendingStatus | None:
    """Return the status of ``phase`` in the queue as the reader may see it. Two queries at most."""
    found = queue_status.pending_statuses([phase.key]).get(phase.key)
    return visible.pending_status(found, visibility) if found else None


def why(
    phase: Phase, visibility: Visibility, fleet: FleetArrays, cycle: queue_status.QueueStatus | None
) -> Why:
    """Return why ``phase`` waits, as the last cycle saw it. Four queries at most."""
    pending_status = pending_status_of(phase, visibility)
    lines = reasons.lines_of(pending_status.reasons, fleet) if pending_status else []
    return Why(
        position=pending_status.position if pending_status else None,
        waiting=cycle.waiting if cycle else 0,
        dominant=lines[0] if lines else None,
        lines=lines,
        trace=pending_status.trace if pending_status else (),
        p10_s=pending_status.p10_s if pending_status else None,
        p50_s=pending_status.p50_s if pending_status else None,
        p90_s=pending_status.p90_s if pending_status else None,
        basis=pending_status.basis if pending_status else "",
        never=pending_status.never if pending_status else "",
        ahead=_ahead(pending_status.position, visibility) if pending_status else [],
    )


@dataclass(frozen=True, slots=True)
class NeedShown:
    """What a phase waits for of another job. ``href`` is empty where the reader may not see it."""

    text: str
    state: str
    why: str
    href: str


def dependencies(phase: Phase, visibility: Visibility) -> list[NeedShown]:
    """Return the needs of a phase that are more than phases before it. Two queries at most."""
    mine = phase.job.dependencies.filter(phase__in=("", phase.name_in_spec))
    of_element = Q(element=None) | Q(element=phase.element)
    rows = list(mine.filter(of_element).exclude(state=Dependency.State.EACH))
    seen = visibility.seen([row.on for row in rows])
    return [
        NeedShown(
            text=visibility.text(needs.text_of(row)),
            state=row.get_state_display().lower(),
            why=row.why,
            href=reverse("job-page", args=[row.on]) if is_seen and row.on_job_id and row.on else "",
        )
        for row, is_seen in zip(rows, seen, strict=True)
    ]


def waits_for_jobs(job: Job) -> bool:
    """Say whether a job waits for others, and could be let begin without. One query."""
    return job.dependencies.filter(state__in=Dependency.KEEPS).exclude(on="").exists()


def _ahead(position: int, visibility: Visibility) -> list[Ahead]:
    """Return the phases right before a position, the nearest last."""
    first = max(position - 1 - _AHEAD, 0)
    keys = queue_status.order(first, position - 1 - first)
    pending_statuses = queue_status.pending_statuses(keys)
    seen = _phases_with(
        [key for key, is_seen in zip(keys, visibility.seen(keys), strict=True) if is_seen]
    )
    found = []
    for place, key in enumerate(keys, first + 1):
        pending_status = pending_statuses.get(key)
        is_seen = key in seen
        found.append(
            Ahead(
                position=place,
                name=key if is_seen else "",
                href=seen.get(key, ""),
                token=pending_status.reasons[0].token
                if pending_status and pending_status.reasons
                else "",
                p10_s=pending_status.p10_s if pending_status else None,
                p90_s=pending_status.p90_s if pending_status else None,
            )
        )
    return found


def _phases_with(keys: Sequence[str]) -> Mapping[str, str]:
    """Return the page of each of ``keys``."""
    names = {key.rpartition("/")[0] for key in keys}
    found = Phase.objects.filter(job__name__in=names).select_related("job")
    return {phase.key: href(phase) for phase in found.defer("job__spec", "request")}


# --- History -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReasonSpan:
    """A dominant reason and its duration. ``lasted_s`` NaN: it is the present one."""

    token: str
    meaning: str
    text: str
    since: datetime
    lasted_s: float


def reason_spans(phase: Phase, visibility: Visibility, present: Line | None) -> list[ReasonSpan]:
    """Return the dominant reasons that a phase has had, the newest first. Two queries at most.

    ``present`` is the one that it has now: no event tells of it where the one before had not stood
    for long.
    """
    found = phase.job.events.filter(phase=phase.name, kind__in=(REASON, DISPATCHED))
    events = visibility.veiled(found.order_by("-at", "-id")[: REASONS_SHOWN + 1], "text")
    spans = []
    until: datetime | None = None
    if present is not None and phase.reason_since and _token_of(events[:1]) != present.token:
        until = phase.reason_since
        spans.append(
            ReasonSpan(present.token, present.meaning, present.sentence, until, lasted_s=math.nan)
        )
    for event in events:
        if event.kind == REASON:
            token = _token_of([event])
            spans.append(
                ReasonSpan(
                    token=token,
                    meaning=reasons.meaning(token),
                    text=event.text,
                    since=event.at,
                    lasted_s=(until - event.at).total_seconds() if until else math.nan,
                )
            )
        until = event.at
    return spans[:REASONS_SHOWN]


def _token_of(events: Sequence[JobEvent]) -> str:
    """Return the token that the first of ``events`` tells of; empty where it tells of none."""
    return str(events[0].data.get("token", "")) if events else ""


def ledger(attempts: Sequence[Attempt], visibility: Visibility) -> list[Directive]:
    """Return the directives of the job, newest first, with their ledgers. Four queries at most."""
    found = Directive.objects.filter(attempt__in=attempts).select_related("attempt")
    lines = found.prefetch_related("events").order_by("-issued_at", "-pk")
    return directives(lines[:DIRECTIVES_SHOWN], visibility)


def asked(row: Directive) -> str:
    """Return a directive in words."""
    if row.kind == Directive.Kind.SET_BATCH_SCALE:
        return f"{units.percent(row.value)} of the batch"
    if row.kind == Directive.Kind.SET_POWER_CAP:
        return f"cap {units.number(row.value)} W/GPU"
    site = row.arguments.get("site", "")
    return f"{row.get_kind_display().lower()} {site}".strip()


# --- What it asks for ----------------------------------------------------------------------------


def wants(request: Request) -> list[tuple[str, str]]:
    """Return the request of a phase, as pairs of name and value."""
    size = f"{request.gpus:,}" + (
        f", at least {request.min_gpus:,}" if request.min_gpus < request.gpus else ""
    )
    per_node = f", {request.gpus_per_node} on each node" if request.gpus_per_node else ""
    of = request.slice or ("core" if request.cores else "GPU")
    peak = f"{units.number(request.gpu_peak_w)} W per {of}" if request.gpu_peak_w else "as rated"
    cap = _cap(request) if request.lowest_cap_w else "none"
    margin = f"{request.thermal_margin_c:g} °C" if request.thermal_margin_c else ""
    near = _level(request.required)
    if request.preferred < request.required:
        near += f", preferably {_level(request.preferred)}"
    every_s = request.checkpoint_interval_s
    found = {
        **({"slice": request.slice} if request.slice else {request.unit: f"{size}{per_node}"}),
        "models": ", ".join(request.models) or "any",
        "peak": peak,
        "cap": cap,
        "margin to slowdown": margin,
        "cooling": ", ".join(request.cooling),
        "together in": near,
        "sites": ", ".join(request.sites) or "any",
        "data at": request.data_site,
        "storage": request.storage,
        "walltime": lasted(request.walltime_s),
        "checkpoints": f"every {lasted(every_s)}" if every_s else "none",
        "gives way": "yes" if request.preemptible else "no",
    }
    return [(name, value) for name, value in found.items() if value]


def _cap(request: Request) -> str:
    lowest = f"down to {units.number(request.lowest_cap_w)} W per GPU"
    return f"{lowest}, at most {units.percent(request.max_slowdown)} slower"


def _level(level: Locality) -> str:
    return f"one {level.name.lower().replace('_', ' ')}" if level < Locality.FLEET else "any sites"


# --- What would start it -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fix:
    """A change under which it begins. ``change`` is the form value that applies it.

    ``others`` are those whom it would go ahead of, by the name under which the reader knows them.
    """

    key: str
    change: str
    sentence: str
    where: str
    #: when its first step is, where it moves to another site; else empty
    first_step: str
    #: whether it begins with the next cycle; else it need only wait
    is_now: bool
    others: list[str]


def fix_of(found: Counterfactual, visibility: Visibility) -> Fix:
    """Return a fix as the page offers it; the same change has the same ``key``."""
    change = json.dumps(found.change.as_json(), sort_keys=True)
    placement = found.placement
    size = units.count(len(placement.gpus), "GPU")
    racks = units.count(len(placement.racks), "rack")
    step = first_step.sentence(found.first_step) if found.first_step else ""
    change_alone = found.sentence.removesuffix(f"; {step}")
    return Fix(
        key=blake2b(change.encode(), digest_size=6).hexdigest(),
        change=change,
        sentence=change_alone.removeprefix("starts now ").removeprefix("can start "),
        where=f"{size} on {racks} at {', '.join(placement.sites)}",
        first_step=step,
        is_now=found.starts_now,
        others=visibility.shown(found.burden.passed) if found.burden else [],
    )


@dataclass(frozen=True, slots=True)
class Calibration:
    """How many starts of the last week fell into their estimates, from p10 to p90."""

    made: int
    held: int

    @property
    def share(self) -> float:
        return self.held / self.made if self.made else math.nan


def calibration(now: datetime) -> Calibration:
    """Count the estimates of the last week whose phase has begun. One query."""
    found = StartForecast.objects.filter(
        made_at__gte=now - timedelta(days=7), began_s__isnull=False
    ).aggregate(
        made=Count("pk"),
        held=Count("pk", filter=Q(began_s__gte=F("p10_s"), began_s__lte=F("p90_s"))),
    )
    return Calibration(found["made"], found["held"])


# --- What it is made of --------------------------------------------------------------------------


def artifacts(spec: Mapping[str, Any], phase: Phase) -> list[tuple[str, str]]:
    """Return image, code and data of a phase, as pairs of name and version."""
    given = _phase_spec(spec, phase).get("artifacts", {})
    found = [("image", given.get("image", "")), ("code", given.get("code_revision", ""))]
    found += [(f"data {name}", checksum) for name, checksum in (given.get("data") or {}).items()]
    return [(name, value) for name, value in found if value]


@dataclass(frozen=True, slots=True)
class HandedOn:
    """An artifact that a phase makes: "train/model", its size and where it is, and its digest."""

    name: str
    said: str
    digest: str


def handed_on(job: Job) -> list[HandedOn]:
    """Return the artifacts that a job's phases make, as they are by now. Two queries at most."""
    return [
        HandedOn(f"{line.phase}/{line.name}", _where_artifact(line), line.digest)
        for line in lines_of(job)
    ]


def _where_artifact(line: ArtifactLine) -> str:
    if line.size_bytes is None:
        return "not made yet"
    states = {True: "", False: " (differs)", None: " (missing)"}
    places = [f"{each.site}{states[each.is_whole]}" for each in line.places]
    said = f"{in_bytes(line.size_bytes)} at {', '.join(places)}"
    return f"{said}; {in_cells(line.cells)}" if line.cells else said


def _phase_spec(spec: Mapping[str, Any], phase: Phase) -> Mapping[str, Any]:
    phases = spec.get("phases", [])
    found: Mapping[str, Any] = phases[phase.index] if phase.index < len(phases) else {}
    return found


def spec_text(job: Job) -> str:
    """Return the specification as YAML, for those who may see all of it: to submit it once more."""
    return yaml.safe_dump(job.spec, sort_keys=False, allow_unicode=True)


# --- What it draws -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Measured:
    """The measured draw of an attempt, hosts included: p99, W, and for how long it was read, s."""

    p99_w: float
    read_s: float


def measured(attempt: Attempt) -> Measured | None:
    """Return the measured draw of ``attempt``; None where nothing was read. One query."""
    row = Draw.objects.filter(attempt=attempt).first()
    if row is None:
        return None
    gpus = attempt.placement.get("gpus", {})
    held = [len(gpus.get(node, ())) for node in attempt.placement.get("nodes", ())]
    # A node that was never read is NaN: what is known of the others is no sum.
    p99_w = sum(each * count for each, count in zip(row.p99_w, held, strict=False))
    read_s = max(row.read_s, default=0.0)
    return None if read_s <= 0 or math.isnan(p99_w) else Measured(p99_w, read_s)


@dataclass(frozen=True, slots=True)
class Learned:
    """The draw of ended attempts of a project with one image: p99 of each GPU, W, and how many."""

    p99_w: float
    attempts: int


def learned(job: Job, phase: Phase) -> Learned | None:
    """Return the learned draw of attempts like this one; None where none has ended. One query."""
    image = _phase_spec(job.spec, phase).get("artifacts", {}).get("image", "")
    found = DrawProfile.objects.filter(project=job.project, image=image[:200])
    row = found.order_by("-updated_at").first()
    if row is None:
        return None
    seconds = np.frombuffer(row.seconds, dtype=np.float32).astype(np.float64)
    (p99_w,) = reservation.quantile_w(seconds[None, :], 0.99).tolist()
    return None if math.isnan(p99_w) else Learned(p99_w, row.attempts)
