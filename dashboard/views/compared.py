"""The page on which two runs stand on one axis by step."""

from __future__ import annotations

from typing import Any, cast

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from rest_framework.serializers import ValidationError

from accounts.decorators import requires
from accounts.models import User
from accounts.roles import Capability
from admission.jobs.models import Attempt, Job
from admission.timeline import comparing
from admission.timeline.api.views import chosen, other_than
from fleet import snapshot

__all__ = ["page"]


@require_safe
@never_cache
@requires(Capability.VIEW_FLEET)
def page(request: HttpRequest, name: str) -> HttpResponse:
    """Two attempts by step, and what they were given that differs; or a form that asks which."""
    jobs = Job.objects.visible_to(cast(User, request.user))
    job = jobs.select_related("project").filter(name=name).first()
    if job is None:
        raise Http404(f"There is no job {name[:200]!r}, or it is of a project that is not yours.")
    try:
        this = chosen(job, request.GET.get("phase", ""), request.GET.get("attempt", ""))
    except ValidationError as error:
        raise Http404(_said(error)) from error
    asked = request.GET.get("with", "").strip()
    context: dict[str, Any] = {"job": job, "this": this, "asked": asked}
    try:
        other = other_than(this, jobs, asked)
    except ValidationError as error:
        return _drawn(request, {**context, "error": _said(error)}, 400 if asked else 200)
    except Http404:
        said = f"There is no attempt {asked[:200]!r}, or it is of a project that is not yours."
        return _drawn(request, {**context, "error": said}, 404)
    return _drawn(request, {**context, **_compared(this, other)}, 200)


def _said(error: ValidationError) -> str:
    by_field = error.detail if isinstance(error.detail, dict) else {"": error.detail}
    return " ".join(map(str, by_field.values()))


def _compared(this: Attempt, other: Attempt) -> dict[str, Any]:
    own = {"phase": this.phase.name, "attempt": str(this.number), "with": other.key}
    url = f"{reverse('job-timeline-compared', args=[this.phase.job.name])}?{urlencode(own)}"
    return {
        "other": other,
        "url": url,
        "name": f"{this.key}-{other.key}".replace("/", "-"),
        "differences": comparing.differing(this, other, timezone.now(), snapshot.current()),
    }


def _drawn(request: HttpRequest, context: dict[str, Any], status: int) -> HttpResponse:
    return render(request, "dashboard/job_compared.html", context, status=status)
