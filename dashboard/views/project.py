"""The page of a project: what it holds of what it may, what waits, and what is open about it."""

from __future__ import annotations

import time
from typing import Any, cast
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from accounts.decorators import requires
from accounts.models import User
from accounts.roles import Capability
from accounts.visibility import Visibility
from admission.jobs.models import Phase, Project
from dashboard import classes, hub, panels, queue
from dashboard.hub import Act
from fleet import snapshot

__all__ = ["hub_panel", "page"]

#: So many phases that wait are shown.
_WAITING = 20


@require_safe
@requires(Capability.VIEW_FLEET)
def page(request: HttpRequest, name: str) -> HttpResponse:
    """One project; a 404 where it is of others, and names are hidden from the reader."""
    user, project = cast(User, request.user), _project(request, name)
    fleet, policy = snapshot.current(), classes.policy_in_force()
    found = classes.projects(user, fleet, time.time(), policy.shares)
    waiting = Phase.objects.filter(job__project=project, state=Phase.State.QUEUED)
    ids = list(waiting.order_by("queued_at", "pk").values_list("pk", flat=True)[:_WAITING])
    context = {
        "project": project,
        "line": next(line for line in found.lines if line.project.pk == project.pk),
        "waiting": queue.queue_rows(ids, Visibility(user), fleet),
        "acts": _acts(user, project),
        "hub_panel": panels.draw(request, *_hub(request, project))[0],
    }
    return render(request, "dashboard/project.html", context)


@require_safe
@requires(Capability.VIEW_FLEET)
def hub_panel(request: HttpRequest, name: str) -> HttpResponse:
    """What is open about the jobs of a project, for htmx."""
    return panels.answer(request, *_hub(request, _project(request, name)))


def _project(request: HttpRequest, name: str) -> Project:
    found = Project.objects.visible_to(cast(User, request.user)).filter(name=name).first()
    if found is None:
        raise Http404(f"There is no project {name[:60]!r}, or it is not yours.")
    return found


def _hub(request: HttpRequest, project: Project) -> tuple[str, str, dict[str, str], dict[str, Any]]:
    visibility = Visibility(cast(User, request.user))
    found = hub.of_project(project, visibility, timezone.now())
    url = reverse("live-project-hub", args=[project.name])
    return "dashboard/panels/hub.html", url, {}, {"hub": found}


def _acts(user: User, project: Project) -> list[Act]:
    queued = f"{reverse('queue-page')}?{urlencode({'project': project.name})}"
    made = [
        Act("what waits", queued),
        Act("what runs", f"{queued}&state=running"),
        Act("what ended", f"{queued}&state=ended"),
        Act("where its time went", reverse("goodput-page")),
        Act("where its energy went", reverse("energy")),
    ]
    if user.can(Capability.SUBMIT_JOBS):
        made.insert(0, Act("submit a job", reverse("submit-job")))
    return made
