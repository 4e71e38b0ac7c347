"""The page on which a job is submitted from its specification, by the code of the API."""

from __future__ import annotations

from typing import Any, cast

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from accounts import visibility
from accounts.decorators import requires
from accounts.models import User
from accounts.roles import Capability
from admission.jobs import submission
from admission.jobs.api import answers
from admission.jobs.models import Job
from admission.jobs.submission import Conflict, OverLimit, SpecError
from dashboard.documents import quoted
from dashboard.submission import REFUSALS, Draft, again, first
from headroom.jobs.reading import MOST_BYTES

__all__ = ["check", "dry_run", "submit"]


@require_http_methods(["GET", "POST"])
@requires(Capability.SUBMIT_JOBS)
def submit(request: HttpRequest) -> HttpResponse:
    """Take a job from its specification, or say what is wrong with it."""
    if request.method != "POST":
        draft = Draft.new(_start(request))
        return _page(request, draft, _checked(request, draft))
    draft = Draft.of(request.POST.dict())
    try:
        done = submission.submit(
            draft.spec(), _user(request), now=timezone.now(), idempotency_key=draft.key
        )
    except REFUSALS as error:
        return _page(request, draft, {**_wrong(draft, error), "is_refused": True}, status=400)
    messages.success(request, f"{done.job.name} is submitted: the next cycle looks at it.")
    return redirect("job-page", done.job.name)


@require_POST
@requires(Capability.SUBMIT_JOBS)
def check(request: HttpRequest) -> HttpResponse:
    """Show the faults of a specification, for htmx. Nothing is kept."""
    context = _checked(request, Draft.of(request.POST.dict()))
    return render(request, "dashboard/panels/job_problems.html", context)


@require_POST
@requires(Capability.SUBMIT_JOBS)
def dry_run(request: HttpRequest) -> HttpResponse:
    """Show what would become of each phase, for htmx. It counts as a submission; none is made."""
    draft = Draft.of(request.POST.dict())
    try:
        prepared = submission.try_out(draft.spec(), _user(request), timezone.now())
    except REFUSALS as error:
        context = _wrong(draft, error)
    else:
        context = {"phases": answers.dry_run(prepared, visibility.of(request))}
    return render(request, "dashboard/panels/job_dry_run.html", context)


def _user(request: HttpRequest) -> User:
    return cast(User, request.user)


def _start(request: HttpRequest) -> str:
    """Return the text to start from: that of the job that ``?like=`` names, or a short one."""
    name, user = request.GET.get("like", ""), _user(request)
    if not name:
        return first(user)
    job = Job.objects.whole_for(user).filter(name=name).first()
    if job is None:
        raise Http404(f"There is no job {name[:200]!r} whose specification you may see.")
    return again(job)


def _page(
    request: HttpRequest, draft: Draft, said: dict[str, Any], status: int = 200
) -> HttpResponse:
    context = {
        **said,
        "draft": draft,
        "most": MOST_BYTES,
        "rows": min(max(draft.text.count("\n") + 2, 16), 40),
    }
    return render(request, "dashboard/job_submit.html", context, status=status)


def _checked(request: HttpRequest, draft: Draft) -> dict[str, Any]:
    """Return what is said of a text before it is submitted."""
    try:
        return {"prepared": submission.prepare(draft.spec(), _user(request), timezone.now())}
    except REFUSALS as error:
        return _wrong(draft, error)


def _wrong(draft: Draft, error: SpecError | Conflict | OverLimit) -> dict[str, Any]:
    return {"problems": quoted(draft.text, draft.problems(error))}
