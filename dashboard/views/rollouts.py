"""The pages of rollouts, and the actions of people on them."""

from __future__ import annotations

from typing import Any, cast

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from accounts.decorators import requires
from accounts.models import User
from accounts.roles import Capability
from dashboard import panels, rollouts
from fleet import snapshot
from headroom.documents import DocumentError
from policies.rollouts import document, following
from policies.rollouts.following import NotPossible, Verb
from policies.rollouts.models import RolloutRun, RolloutVersion
from policies.rollouts.showing import shown
from telemetry.versions.running import running

__all__ = ["act", "detail", "detail_panel", "page", "start"]

_ONE = "dashboard/panels/rollouts_one.html"
_MOST = 200
_DRIFT_SHOWN = 50
_WORDS = {
    Verb.PROMOTE: "Promote",
    Verb.HOLD: "Hold",
    Verb.RESUME: "Resume",
    Verb.ROLL_BACK: "Roll back",
}


@require_safe
@requires(Capability.VIEW_FLEET)
def page(request: HttpRequest) -> HttpResponse:
    """Rollouts under way and over, those that may be started, and what nodes run."""
    user = cast(User, request.user)
    runs = list(RolloutRun.objects.select_related("version")[:_MOST])
    live = {run.name for run in runs if run.ended_at is None}
    ready = [each for each in RolloutVersion.objects.newest() if each.name not in live]
    context = {
        "rows": [
            {"run": run, "state": run.state_words, "tag": rollouts.tag_of(run.state)}
            for run in runs
        ],
        "live": len(live),
        "held": sum(run.state == "held" for run in runs),
        "ready": [{"version": each, "sentence": _sentence(each)} for each in ready],
        "versions": rollouts.version_rows(running(), snapshot.current()),
        "may_start": user.can(Capability.RUN_PLAYBOOKS),
    }
    return render(request, "dashboard/rollouts.html", context)


def _sentence(version: RolloutVersion) -> str:
    try:
        return document.read(version.text).sentence
    except DocumentError:  # a release of ours no longer takes it
        return ""


@require_safe
@requires(Capability.VIEW_FLEET)
def detail(request: HttpRequest, name: str) -> HttpResponse:
    """The last rollout of a name: its arms, its evidence, and what comes next."""
    drawn = _one(request, _newest(name))
    html, _ = panels.draw(request, *drawn)
    return render(request, "dashboard/rollouts_one.html", {**drawn[-1], "panel": html})


@require_safe
@requires(Capability.VIEW_FLEET)
def detail_panel(request: HttpRequest, name: str) -> HttpResponse:
    """The state of one rollout, for htmx."""
    return panels.answer(request, *_one(request, _newest(name)))


def _newest(name: str) -> RolloutRun:
    run = RolloutRun.objects.select_related("version").filter(name=name).first()
    if run is None:
        raise Http404(f"no rollout {name[:100]} was started")
    return run


def _one(request: HttpRequest, run: RolloutRun) -> tuple[str, str, dict[str, str], dict[str, Any]]:
    found, user = shown(run, snapshot.current()), cast(User, request.user)
    context = {
        "run": run,
        "plan": found.plan,
        "state": run.state_words,
        "tag": rollouts.tag_of(run.state),
        "next": found.next,
        "steps": [
            {"step": step, "racks": run.racks[at] if at < len(run.racks) else []}
            for at, step in enumerate(found.plan.steps)
        ],
        "guards": rollouts.guard_rows(found),
        "judged": found.judged,
        "imbalance": rollouts.imbalance_rows(found),
        "drift": found.drift[:_DRIFT_SHOWN],
        "drift_total": len(found.drift),
        "events": run.events.all(),
        "verbs": [
            {"word": _WORDS[verb], "url": reverse("act-on-rollout", args=[run.name, verb.value])}
            for verb in found.may
            if user.can(verb.capability)
        ],
    }
    return _ONE, reverse("live-rollout", args=[run.name]), {}, context


@require_POST
@requires(Capability.RUN_PLAYBOOKS)
def start(request: HttpRequest, name: str) -> HttpResponse:
    """Start the version of a rollout that is in force."""
    get_object_or_404(RolloutVersion.objects.newest(), name=name)
    try:
        following.start(cast(User, request.user), name, now=timezone.now())
    except NotPossible as error:
        messages.error(request, f"{error}.")
        return redirect("rollouts")
    messages.success(request, f"{name} has begun.")
    return redirect("rollout", name)


@require_POST
@requires(Capability.RUN_PLAYBOOKS)
def act(request: HttpRequest, name: str, verb: str) -> HttpResponse:
    """Promote, hold, resume or roll back. To go on takes more than to stop."""
    if verb not in list(Verb):
        raise Http404(f"A rollout cannot be asked to {verb[:40]}.")
    user, asked, run = cast(User, request.user), Verb(verb), _newest(name)
    if not user.can(asked.capability):
        raise PermissionDenied(user.why_not(asked.capability))
    why = request.POST.get("why", "").replace("\0", "").strip()[:500]
    if not why:
        messages.error(request, "Say why: nothing has been done.")
        return redirect("rollout", name)
    try:
        done = following.act(user, run.pk, asked, why=why, now=timezone.now())
    except NotPossible as error:
        messages.error(request, f"{error}.")
    else:
        messages.success(request, f"{name} is {done.state_words} now.")
    return redirect("rollout", name)
