"""The pages that documents of all kinds share: versions, differences, review, and writing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from accounts.decorators import requires
from accounts.models import User
from accounts.roles import Capability
from admission.core import policy
from admission.jobs import classes
from admission.jobs.catalog import CLASSES
from admission.policy import comparing
from admission.policy.catalog import POLICIES
from admission.policy.models import AdmissionPolicyVersion
from admission.slos.actions import SLOS
from dashboard.documents import compared, percentage, quoted, version_row, words
from headroom.contracts import FieldError
from headroom.documents import DocumentError
from headroom.documents.yaml_text import MOST_CHARACTERS
from policies.documents import life
from policies.documents.life import Kind, Refused
from policies.documents.models import States, Version
from policies.playbooks.versions import PLAYBOOKS
from policies.rollouts.following import ROLLOUTS
from policies.rules.actions import RULES

__all__ = ["check", "document", "edit", "promote", "retire"]

#: Versions, and decisions of a shadow, that a page lists.
_VERSIONS_SHOWN = 50
_DECISIONS_SHOWN = 200


def _none(_: str) -> str:
    return ""


@dataclass(frozen=True, kw_only=True)
class _Pages:
    """The settings of the pages of one kind."""

    kind: Kind[Any]
    title: str
    #: what it does, in a sentence
    about: str
    #: the list, and the page of one, by the names of their URLs
    list_url: str
    own_url: str = ""
    #: the text that counts where no version does; empty: there is none
    built_in: Callable[[str], str] = _none


def _built_in_class(name: str) -> str:
    return classes.built_in_text(name) if name in classes.built_in() else ""


#: By what stands for them in URLs.
_PAGES = {
    "rules": _Pages(
        kind=RULES, title="Rules", about="", list_url="rules", own_url="rule"
    ),
    "playbooks": _Pages(
        kind=PLAYBOOKS, title="Playbooks", about="", list_url="playbooks-page",
        own_url="playbook-page",
    ),
    "classes": _Pages(
        kind=CLASSES, title="Classes and quota", list_url="classes-page",
        about="An active version is in force also for jobs of the class that wait.",
        built_in=_built_in_class,
    ),
    "admission-policies": _Pages(
        kind=POLICIES, title="Admission policy", list_url="classes-page",
        about="One policy is in force. A shadow decides beside it, and nothing comes of that.",
        built_in=lambda name: policy.built_in_text() if name == policy.NAME else "",
    ),
    "rollouts": _Pages(
        kind=ROLLOUTS, title="Rollouts", list_url="rollouts",
        about="An active version may be started; what is under way goes on by its own version.",
    ),
    "slos": _Pages(
        kind=SLOS, title="Service levels", list_url="slos",
        about="An active version is judged by itself: events of its window are judged anew.",
    ),
}  # fmt: skip


def _pages(plural: str) -> _Pages:
    found = _PAGES.get(plural)
    if found is None:
        raise Http404(f"there are no documents of kind {plural[:40]}")
    return found


def _url_of(plural: str, name: str) -> str:
    own = _pages(plural).own_url
    return reverse(own, args=[name]) if own else reverse("document", args=[plural, name])


def _version(plural: str, name: str, number: int) -> Version:
    found: Version = get_object_or_404(_pages(plural).kind.model, name=name, number=number)
    return found


# --- One document --------------------------------------------------------------------------------


@require_safe
@requires(Capability.VIEW_FLEET)
def document(request: HttpRequest, plural: str, name: str) -> HttpResponse:
    """Show the versions of one document, their differences, and the steps possible with each."""
    pages, user = _pages(plural), cast(User, request.user)
    rows = pages.kind.model.objects.filter(name=name).order_by("-number")
    versions: list[Version] = list(rows[:_VERSIONS_SHOWN])
    built_in = pages.built_in(name)
    if not versions and not built_in:
        raise Http404(f"there is no {pages.kind.noun} {name}")
    active = next((each for each in versions if each.state == States.ACTIVE), None)
    shown = _chosen(versions, request.GET.get("version", "")) or active
    if shown is None and not built_in:
        shown = versions[0]
    context = {
        "plural": plural,
        "pages": pages,
        "name": name,
        "versions": [version_row(pages.kind, each, user) for each in versions],
        "versions_total": rows.count(),
        "active": active,
        "shown": shown,
        "lines": (shown.text if shown else built_in).splitlines(),
        "compared": compared(versions, request.GET),
        "may_edit": user.can(Capability.EDIT_POLICIES),
        "share": life.CANARY_SHARE,
        "shadows": _shadows(versions, user) if pages.kind is POLICIES else [],
    }
    return render(request, "dashboard/document.html", context)


def _shadows(versions: list[Version], user: User) -> list[dict[str, Any]]:
    """Return the decisions of the shadows of an admission policy over the last day that differ."""
    found = []
    for version in versions:
        if isinstance(version, AdmissionPolicyVersion) and version.state == States.SHADOW:
            most = _DECISIONS_SHOWN + 1
            beside = comparing.compared(version, user, timezone.now(), most=most)
            found.append(
                {
                    "version": version,
                    "beside": beside,
                    "decisions": beside.decisions[:_DECISIONS_SHOWN],
                    "has_more": len(beside.decisions) == most,
                }
            )
    return found


def _chosen(versions: list[Version], number: str) -> Version | None:
    if not number:
        return None
    found = next((each for each in versions if str(each.number) == number), None)
    if found is None:
        raise Http404(f"there is no version {number[:20]}")
    return found


# --- What people do with versions ----------------------------------------------------------------


@require_POST
@requires(Capability.EDIT_POLICIES)
def promote(request: HttpRequest, plural: str, name: str, number: int) -> HttpResponse:
    """Bring a version to its next state. Its author may not activate it."""
    version, to = _version(plural, name, number), request.POST.get("to", "")
    try:
        share = percentage(request.POST.get("share", "")) if to == States.CANARY else None
        done = life.promote(_pages(plural).kind, cast(User, request.user), version, to, share=share)
    except Refused as error:
        messages.error(request, words(error))
    else:
        messages.success(request, f"{done} is {done.get_state_display().lower()} now.")
    return redirect(_url_of(plural, name))


@require_POST
@requires(Capability.EDIT_POLICIES)
def retire(request: HttpRequest, plural: str, name: str, number: int) -> HttpResponse:
    """Take a version out of use."""
    why = request.POST.get("why", "").replace("\0", "").strip()[:500]
    version = _version(plural, name, number)
    if not why:
        messages.error(request, f"Say why {version} is retired: nothing has been done.")
        return redirect(_url_of(plural, name))
    try:
        done = life.retire(_pages(plural).kind, cast(User, request.user), version, why=why)
    except Refused as error:
        messages.error(request, words(error))
    else:
        messages.success(request, f"{done} is retired: what it does ends within seconds.")
    return redirect(_url_of(plural, name))


# --- Writing -------------------------------------------------------------------------------------


@require_http_methods(["GET", "POST"])
@requires(Capability.EDIT_POLICIES)
def edit(request: HttpRequest, plural: str, name: str) -> HttpResponse:
    """Write a draft: the next version of a document."""
    pages = _pages(plural)
    text = _clean(request.POST.get("text", _base(pages, name, request.GET)))
    note = request.POST.get("note", "").replace("\0", "").strip()[:500]
    problems = _problems(pages, text)
    if request.method == "POST" and not problems:
        version = life.draft(pages.kind, cast(User, request.user), text, note=note)
        messages.success(request, f"{version} is a draft: somebody else lets it count.")
        return redirect("document", plural, version.name)
    is_refused = request.method == "POST"
    context = {
        "plural": plural,
        "pages": pages,
        "name": name,
        "text": text,
        "note": note,
        "rows": min(max(text.count("\n") + 2, 16), 40),
        "problems": quoted(text, problems),
        "is_refused": is_refused,
    }
    status = 400 if is_refused else 200
    return render(request, "dashboard/document_edit.html", context, status=status)


def _base(pages: _Pages, name: str, given: Mapping[str, str]) -> str:
    rows = pages.kind.model.objects.filter(name=name)
    if number := given.get("version", ""):
        found = rows.filter(number=number).first() if number.isdecimal() else None
    else:
        found = rows.active().first() or rows.order_by("-number").first()
    text: str = found.text if found else pages.built_in(name)
    if not text:
        raise Http404(f"there is no {pages.kind.noun} {name} to start from")
    return text


@require_POST
@requires(Capability.EDIT_POLICIES)
def check(request: HttpRequest, plural: str) -> HttpResponse:
    """Show the faults of a text, for htmx. Nothing is kept."""
    text = _clean(request.POST.get("text", ""))
    context = {"problems": quoted(text, _problems(_pages(plural), text)), "is_refused": False}
    return render(request, "dashboard/panels/document_problems.html", context)


def _clean(text: str) -> str:
    # Forms send lines with CR; Postgres refuses NUL in text.
    return text.replace("\r\n", "\n").replace("\0", "")[: MOST_CHARACTERS + 1]


def _problems(pages: _Pages, text: str) -> list[FieldError]:
    try:
        pages.kind.name_of(text)
    except DocumentError as error:
        return error.problems
    return []
