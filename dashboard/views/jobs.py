"""The page of one job, its live panels, and the actions on a job."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.views.decorators.http import require_POST, require_safe

from accounts.cost import dear
from accounts.decorators import requires
from accounts.edge.parameters import whole_number
from accounts.models import User
from accounts.roles import Capability
from accounts.visibility import Visibility
from admission.cycle import live
from admission.diagnosis import reading as diagnosing
from admission.diagnosis.told import told as diagnosis_told
from admission.jobs import actions, resolution, unlocking
from admission.jobs.models import Attempt, Job, Phase
from admission.jobs.submission import Conflict, SpecError
from admission.learned import throughput
from admission.logs.reading import NotThere
from admission.queue import queue_status
from admission.timeline import reading
from dashboard import (
    baselines,
    energy,
    goodput,
    job_log,
    jobs,
    panels,
    placement,
    queue,
    ranges,
    state,
    unplaced,
)
from dashboard.timeline import Figure
from fleet import snapshot
from fleet.cache import KeyedCache
from headroom.contracts import FieldError

__all__ = [
    "act",
    "diagnosis_panel",
    "fixes_panel",
    "goodput_panel",
    "log_panel",
    "page",
    "panel",
    "shared",
    "why_panel",
]

_PANEL = "dashboard/panels/job.html"
_WHY = "dashboard/panels/job_why.html"
_FIXES = "dashboard/panels/job_fixes.html"
_LOG = "dashboard/panels/job_log.html"
_DIAGNOSIS = "dashboard/panels/job_diagnosis.html"
_GOODPUT = "dashboard/panels/job_goodput.html"
_MOST_REASON = 500
_NOTHING_CHOSEN = FieldError(
    code="required", message="choose what is to be changed", field="change", hint="then apply it"
)
_NO_NUMBER = FieldError(
    code="malformed", message="give a whole number", field="priority", hint="such as 0"
)

#: What is counted over a week serves for a minute.
shared = KeyedCache(60.0)

_Drawn = tuple[str, str, dict[str, str], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Shown:
    """One job, with the phase and the attempt that the URL selects."""

    user: User
    visibility: Visibility
    job: Job
    #: of the job, or of the element of an array that is shown
    phases: list[Phase]
    #: None: it is no array
    array: jobs.ArrayShown | None
    phase: Phase
    attempts: list[Attempt]
    attempt: Attempt | None
    #: whose output is shown; None: that of the node that failed first, or else the first
    rank: int | None
    #: as far as the URL names them
    params: dict[str, str]
    may_change: bool
    #: command and environment too
    sees_whole: bool

    @property
    def waits(self) -> bool:
        return self.phase.state in Phase.PENDING

    @property
    def any_waits(self) -> bool:
        """Whether a phase waits; of an array, whether it does of any element."""
        if self.array and self.job.elements is not None:
            is_behind = self.job.elements_reached < self.job.elements
            return is_behind or self.job.phases.pending().exists()
        return any(each.state in Phase.PENDING for each in self.phases)

    @property
    def is_queued(self) -> bool:
        return self.phase.state == Phase.State.QUEUED


def _shown(request: HttpRequest, name: str) -> Shown:
    """Read the job, its phases and attempts. Six queries."""
    user = cast(User, request.user)
    found = Job.objects.visible_to(user).select_related("project").filter(name=name).first()
    if found is None:
        raise Http404(f"There is no job {name[:200]!r}, or it is of a project that is not yours.")
    array, wanted = jobs.array_shown(found), request.GET.get("phase", "")
    phases = array.phases if array else list(found.phases.all())
    if array and wanted:
        phases = list(found.phases.filter(name=wanted))
    phase = jobs.chosen(phases, wanted)
    if phase is None:
        raise Http404(f"{name[:200]} has no phase {wanted[:60]!r}.")
    if array:
        phases = list(found.phases.filter(element=phase.element))
    for each in (*phases, phase):
        each.job = found
    visibility = Visibility(user)
    attempts = visibility.veiled(phase.attempts.order_by("-number"), "why")
    given = request.GET.get("attempt", "")
    attempt = next((each for each in attempts if str(each.number) == given), None)
    rank = whole_number(request.GET.get("rank", ""), most=2**31 - 1)
    return Shown(
        user=user,
        visibility=visibility,
        job=found,
        phases=phases,
        array=array,
        phase=phase,
        attempts=attempts,
        attempt=attempt or next(iter(attempts), None),
        rank=rank,
        params={
            **({"phase": phase.name} if "phase" in request.GET else {}),
            **({"attempt": given} if attempt else {}),
            **({} if rank is None else {"rank": str(rank)}),
        },
        may_change=Job.objects.changeable_by(user).filter(pk=found.pk).exists(),
        sees_whole=Job.objects.whole_for(user).filter(pk=found.pk).exists(),
    )


@require_safe
@requires(Capability.VIEW_FLEET)
def page(request: HttpRequest, name: str) -> HttpResponse:
    """Why a job waits and how it would start, or how it runs; of one of others, where it is."""
    reported = None
    if not Job.objects.filter(name=name).exists():
        reported = unplaced.find(name, Visibility(cast(User, request.user)))
    if reported is None:
        return _page(request, _shown(request, name))
    found = unplaced.now(state.current(), reported, settings.STALE_AFTER_S)
    return render(request, "dashboard/job_unplaced.html", {"job": reported, "found": found})


def _page(
    request: HttpRequest, shown: Shown, errors: list[str] | None = None, status: int = 200
) -> HttpResponse:
    drawn = _main(shown)
    html, _ = panels.draw(request, *drawn)
    why_html = panels.draw(request, *_why(shown))[0] if shown.waits else ""
    fixes_html = ""
    if shown.is_queued:
        fixes_html, _ = panels.draw(request, *_fixes(shown))
    timeline = _timeline(request, shown, shown.attempt) if shown.attempt else None
    log_html = ""
    if shown.attempt and shown.may_change:
        log_html, _ = panels.draw(request, *_log(shown, shown.attempt))
    held: Phase | Job | None = next((each for each in shown.phases if each.held_by), None)
    if shown.array and shown.job.held_by:
        held = shown.job
    context = {
        **drawn[-1],
        "panel": html,
        "why": why_html,
        "fixes_panel": fixes_html,
        "timeline": timeline,
        "picker": timeline and timeline.picker,
        "log_panel": log_html,
        "errors": errors or [],
        "spec": jobs.spec_text(shown.job) if shown.sees_whole else "",
        "may_change": shown.may_change,
        "may_submit": shown.user.can(Capability.SUBMIT_JOBS),
        "may_raise": shown.user.can(Capability.EDIT_POLICIES),
        "job_is_over": shown.job.state not in Job.OPEN,
        "any_waits": shown.any_waits,
        "waits_for_jobs": jobs.waits_for_jobs(shown.job),
        "held": held,
    }
    if timeline and timeline.picker.error:
        status = 400
    return render(request, "dashboard/job.html", context, status=status)


@require_safe
@requires(Capability.VIEW_FLEET)
def panel(request: HttpRequest, name: str) -> HttpResponse:
    """The answer, phases, placement, ledger and history, for htmx."""
    template, url, params, context = _main(_shown(request, name))
    return panels.answer(request, template, url, params, {**context, "oob": True})


@require_safe
@requires(Capability.VIEW_FLEET)
def why_panel(request: HttpRequest, name: str) -> HttpResponse:
    """Why the phase waits, for htmx."""
    shown = _shown(request, name)
    return panels.answer(request, *_why(shown)) if shown.waits else _it_has_begun()


@require_safe
@requires(Capability.VIEW_FLEET)
@dear("it to one phase")
def fixes_panel(request: HttpRequest, name: str) -> HttpResponse:
    """The changes that would start the phase now, for htmx."""
    shown = _shown(request, name)
    if not shown.is_queued:
        return _it_has_begun()
    return panels.answer(request, *_fixes(shown))


def _it_has_begun() -> HttpResponse:
    """Have the browser reload the page, which shows a started phase otherwise."""
    return HttpResponse(status=204, headers={"HX-Refresh": "true"})


@require_safe
@requires(Capability.VIEW_FLEET)
@dear("it to a job that held fewer GPUs")
def goodput_panel(request: HttpRequest, name: str) -> HttpResponse:
    """Where the time of the job's GPUs went, for htmx."""
    shown = _shown(request, name)
    context = {
        "account": goodput.of(shown.job, timezone.now()),
        "beyond": baselines.of_job(shown.job, time.time()),
        "energy": energy.of_job(shown.job),
        "job": shown.job,
    }
    return render(request, _GOODPUT, context)


@require_safe
@requires(Capability.VIEW_FLEET)
@dear("it to a job that held fewer GPUs")
def diagnosis_panel(request: HttpRequest, name: str) -> HttpResponse:
    """What binds the job, and what would help, for htmx."""
    shown = _shown(request, name)
    found = diagnosing.of_job(shown.job, shown.visibility, time.time())
    return render(request, _DIAGNOSIS, {"diagnosis": diagnosis_told(found)})


@require_safe
@requires(Capability.VIEW_FLEET)
def log_panel(request: HttpRequest, name: str) -> HttpResponse:
    """What the attempt says, for htmx: for those who may end it, and for others not there."""
    shown = _shown(request, name)
    if not shown.may_change:
        raise Http404(f"There is no output of {name[:200]!r} for you.")
    if shown.attempt is None:
        return HttpResponse(status=204)
    return panels.answer(request, *_log(shown, shown.attempt))


# --- Its parts -----------------------------------------------------------------------------------


def _main(shown: Shown) -> _Drawn:
    now, job, phase = timezone.now(), shown.job, shown.phase
    events = job.events.order_by("-at", "-id")[: jobs.EVENTS_SHOWN]
    dominant = _dominant(shown) if shown.waits else None
    context = {
        "job": job,
        "phase": phase,
        "phases": shown.phases,
        "array": shown.array,
        "graph": jobs.drawing(shown.phases, phase, now) if len(shown.phases) > 1 else "",
        "attempt": shown.attempt,
        "attempts": shown.attempts,
        "dominant": dominant,
        "placed": _placed(shown.attempt),
        "measured": jobs.measured(shown.attempt) if shown.attempt else None,
        "learned": jobs.learned(job, phase),
        "checkpoints": jobs.checkpoints_shown(job, shown.attempt, now),
        "facts": jobs.wants(resolution.request_of(phase)),
        "artifacts": jobs.artifacts(job.spec, phase),
        "handed_on": jobs.handed_on(job),
        "directives": jobs.ledger(shown.attempts, shown.visibility),
        "events": shown.visibility.veiled(events, "text"),
        "is_over": phase.state in Phase.OVER,
        "waits": shown.waits,
        "stays": queue_status.stays([f"{job.name}/{phase.name}"]).get(
            f"{job.name}/{phase.name}", ""
        ),
        "curve": throughput.curves_of_phases([phase.pk]).get(phase.pk),
        "now": now,
        "params": urlencode(shown.params),
    }
    return _PANEL, reverse("live-job", args=[job.name]), shown.params, context


def _dominant(shown: Shown) -> queue_status.ReasonLine | None:
    pending_status = jobs.pending_status_of(shown.phase, shown.visibility)
    return pending_status.reasons[0] if pending_status and pending_status.reasons else None


def _placed(attempt: Attempt | None) -> placement.PlacementMap | None:
    if attempt is None:
        return None
    held = attempt.placement
    return placement.drawn(state.current(), held.get("gpus", {}), held.get("peak_w", {}))


def _why(shown: Shown) -> _Drawn:
    cycle, fleet = queue_status.read(), snapshot.current()
    why = jobs.why(shown.phase, shown.visibility, fleet, cycle)
    context = {
        "job": shown.job,
        "phase": shown.phase,
        "dependencies": jobs.dependencies(shown.phase, shown.visibility),
        "why": why,
        "calibration": shared.get("calibration", lambda: jobs.calibration(timezone.now())),
        "spans": jobs.reason_spans(shown.phase, shown.visibility, why.dominant),
        "cycle": cycle,
        "old_s": queue.age_s(cycle, time.time()),
    }
    return _WHY, reverse("live-job-why", args=[shown.job.name]), shown.params, context


def _fixes(shown: Shown) -> _Drawn:
    found, possible = _found(shown)
    context = {
        "job": shown.job,
        "phase": shown.phase,
        "fixes": [each for each in found if each.is_now],
        "later": [each for each in found if not each.is_now],
        "possible": possible,
        "may_change": shown.may_change,
    }
    return _FIXES, reverse("live-job-fixes", args=[shown.job.name]), shown.params, context


def _found(shown: Shown) -> tuple[list[jobs.Fix], list[jobs.Fix]]:
    """Return the changes that would start it, each tried by the solver a moment ago.

    And where it can never start as it is, those under which it could, once there is room.
    """
    try:
        found = live.explain(shown.phase.key)
    except KeyError:
        return [], []
    ways = found.never.ways if found.never else ()
    fixes_now, fixes_ever = (
        [jobs.fix_of(each, shown.visibility) for each in some]
        for some in (found.counterfactuals, ways)
    )
    known = {each.change for each in fixes_now}
    return fixes_now, [each for each in fixes_ever if each.change not in known]


def _timeline(request: HttpRequest, shown: Shown, attempt: Attempt) -> Figure:
    """Return the chart of an attempt, over its life or the range that the URL asks for."""
    now, which = timezone.now(), {"phase": shown.phase.name, "attempt": str(attempt.number)}
    picker = ranges.read(
        request.GET.dict(),
        now.timestamp(),
        keep=("phase", "attempt", "rank"),
        life=reading.lived(attempt, now),
    )
    url = reverse("job-timeline", args=[shown.job.name])
    return Figure(
        picker,
        f"{url}?{urlencode(which)}",
        name=attempt.key.replace("/", "-"),
        heading=f"Timeline of attempt {attempt.number}",
        read=lambda look: reading.figure(attempt, look, snapshot.current(), shown.visibility),
    )


def _log(shown: Shown, attempt: Attempt) -> _Drawn:
    attempt.phase = shown.phase
    try:
        log = job_log.log_of(attempt, shown.rank, timezone.now())
    except NotThere as error:
        raise Http404(str(error)) from error
    context = {
        "log": log,
        "job": shown.job,
        "phase": shown.phase,
        "attempt": attempt,
        "live": log.pending or not (log.over or attempt.ended_at),
    }
    return _LOG, reverse("live-job-log", args=[shown.job.name]), shown.params, context


# --- What people do ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for an action on a job: by whom, and the form values."""

    shown: Shown
    given: Mapping[str, str]
    now: datetime


@require_POST
@requires(Capability.SUBMIT_JOBS)
def act(request: HttpRequest, name: str, verb: str) -> HttpResponse:
    """Do one of :data:`_VERBS` with a job, and show the outcome."""
    shown, do = _shown(request, name), _VERBS.get(verb)
    if do is None or not shown.may_change:
        raise Http404(f"{name[:200]} cannot be asked to {verb[:40]}.")
    # Postgres refuses NUL in text.
    given = {field: value.replace("\0", "") for field, value in request.POST.dict().items()}
    try:
        messages.success(request, do(Asked(shown, given, timezone.now())))
    except SpecError as error:
        return _page(request, shown, str(error).split("; "), status=400)
    except Conflict as error:
        messages.error(request, f"{error}: {error.hint}" if error.hint else str(error))
    url = reverse("job-page", args=[shown.job.name])
    return redirect(f"{url}?{urlencode(shown.params)}" if shown.params else url)


def _apply(ask: Asked) -> str:
    change = _change(ask.given.get("change", ""))
    actions.amend(ask.shown.job, ask.shown.phase.name, change, ask.shown.user, now=ask.now)
    return f"{ask.shown.phase.key} is amended: the next cycle tries it as it is now."


def _change(text: str) -> dict[str, Any]:
    try:
        change = json.loads(text)
    except ValueError:
        change = None
    if not isinstance(change, dict):
        raise SpecError([_NOTHING_CHOSEN])
    return change


def _waive(ask: Asked) -> str:
    reason = ask.given.get("reason", "").strip()[:_MOST_REASON]
    unlocking.waive(ask.shown.job, ask.shown.user, why=reason, now=ask.now)
    return f"{ask.shown.job.name} no longer waits for other jobs."


def _hold(ask: Asked) -> str:
    reason = ask.given.get("reason", "").strip()[:_MOST_REASON]
    actions.hold(ask.shown.job, ask.shown.user, why=reason, now=ask.now)
    return f"{ask.shown.job.name} is on hold: what waits of it is not let go."


def _release(ask: Asked) -> str:
    actions.release(ask.shown.job, ask.shown.user, now=ask.now)
    return f"{ask.shown.job.name} is in the queue again."


def _cancel(ask: Asked) -> str:
    reason = ask.given.get("reason", "").strip()[:_MOST_REASON]
    only = ask.given.get("elements", "").strip()
    actions.cancel(ask.shown.job, ask.shown.user, why=reason, only=only, now=ask.now)
    what = f"elements {only[:200]} of {ask.shown.job.name} are" if only else (
        f"{ask.shown.job.name} is"
    )  # fmt: skip
    return f"{what} cancelled: what runs of it is told to end."


def _priority(ask: Asked) -> str:
    try:
        priority = int(ask.given.get("priority", ""))
    except ValueError:
        raise SpecError([_NO_NUMBER]) from None
    actions.set_priority(ask.shown.job, ask.shown.user, priority, now=ask.now)
    return f"{ask.shown.job.name} has priority {priority}."


_VERBS: dict[str, Callable[[Asked], str]] = {
    "apply": _apply,
    "hold": _hold,
    "release": _release,
    "waive": _waive,
    "cancel": _cancel,
    "priority": _priority,
}
