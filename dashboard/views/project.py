"""The page of a project, what it holds of what it may, and the forms that make and change one."""

from __future__ import annotations

import time
from typing import Any, cast
from urllib.parse import urlencode

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from accounts.decorators import requires
from accounts.models import User
from accounts.roles import Capability
from accounts.visibility import Visibility
from admission.jobs.models import Phase, Project
from dashboard import baselines, classes, energy, fleet_goodput, hub, panels, queue
from dashboard.hub import Act
from dashboard.project_forms import ProjectForm
from fleet import snapshot

__all__ = ["add", "change", "hub_panel", "page"]

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
    rows, others = baselines.of_project(project, user, time.time())
    ids = list(waiting.order_by("queued_at", "pk").values_list("pk", flat=True)[:_WAITING])
    context = {
        "project": project,
        "line": next(line for line in found.lines if line.project.pk == project.pk),
        "budgets": energy.budget_lines(user, timezone.now(), project),
        "waiting": queue.queue_rows(ids, Visibility(user), fleet),
        "waited": fleet_goodput.waited(project, user, timezone.now()),
        "acts": _acts(user, project),
        "baselines": rows,
        "other_baselines": others,
        "hub_panel": panels.draw(request, *_hub(request, project))[0],
    }
    return render(request, "dashboard/project.html", context)


@require_safe
@requires(Capability.VIEW_FLEET)
def hub_panel(request: HttpRequest, name: str) -> HttpResponse:
    """What is open about the jobs of a project, for htmx."""
    return panels.answer(request, *_hub(request, _project(request, name)))


@never_cache
@require_http_methods(["GET", "POST"])
@requires(Capability.EDIT_POLICIES)
def add(request: HttpRequest) -> HttpResponse:
    """Make a project."""
    return _form(request, None)


@never_cache
@require_http_methods(["GET", "POST"])
@requires(Capability.EDIT_POLICIES)
def change(request: HttpRequest, name: str) -> HttpResponse:
    """Change quotas, weight, limits or members of a project."""
    return _form(request, _project(request, name))


def _form(request: HttpRequest, project: Project | None) -> HttpResponse:
    form = ProjectForm(request.POST if request.method == "POST" else None, project=project)
    if request.method == "POST" and (saved := form.saved(cast(User, request.user))):
        messages.success(request, f"Project {saved.name} is {'changed' if project else 'made'}.")
        return redirect("project", saved.name)
    context = {"form": form, "project": project}
    status = 400 if form.is_bound else 200
    return render(request, "dashboard/project_form.html", context, status=status)


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
        Act("what cost most", f"{reverse('losses-page')}?{urlencode({'project': project.name})}"),
        Act("where its energy went", reverse("energy")),
    ]
    if user.can(Capability.EDIT_POLICIES):
        made.insert(0, Act("change it", reverse("change-project", args=[project.name])))
    if user.can(Capability.SUBMIT_JOBS):
        made.insert(0, Act("submit a job", reverse("submit-job")))
    return made
