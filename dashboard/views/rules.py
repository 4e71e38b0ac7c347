"""The pages of rules, their live panels, and the actions on versions."""

from __future__ import annotations

import re
import time
from typing import Any, cast

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from accounts.decorators import requires
from accounts.edge.parameters import BIGGEST_ID, whole_number
from accounts.models import User
from accounts.roles import Capability
from dashboard import exports, panels, ranges, rules
from dashboard.documents import compared, quoted, version_row, words
from dashboard.rules import SHOWS, States
from fleet import snapshot
from headroom.contracts import FieldError
from headroom.documents import DocumentError
from policies.documents import life
from policies.headroom.columns import FIELDS
from policies.rules import actions, document, tasks
from policies.rules.actions import RULES
from policies.rules.models import RuleEpisode, RuleReplay, RuleVersion
from policies.scopes import ScopeKind

__all__ = ["check", "edit", "page", "panel", "replay", "replay_panel", "rule",
           "rule_panel"]  # fmt: skip

_LIST = "dashboard/panels/rules.html"
_ONE = "dashboard/panels/rules_one.html"
_REPLAY = "dashboard/panels/rules_replay.html"
_PAGE_SIZE = 50
#: Versions that the page of a rule lists.
_VERSIONS_SHOWN = 50
_REPLAYS_SHOWN = 10
#: No rule's text is longer; the reader refuses it by itself.
_MOST_TEXT = 100_000
_START = """\
name: my-rule
description: >
  Say what goes wrong, and what the rule does about it.
scope: rack
severity: warning
summary: "{name} uses {power_use:%} of its power"
when: power_use > 0.95
for: 30s
clear: power_use < 0.90
clear_for: 2m
effects:
  - incident: {}
"""


# --- The list ------------------------------------------------------------------------------------


@require_safe
@requires(Capability.VIEW_FLEET)
def page(request: HttpRequest) -> HttpResponse:
    """The rules with their states, and the scopes on which they fire."""
    drawn = _listed(request)
    html, _ = panels.draw(request, *drawn)
    return render(request, "dashboard/rules.html", {**drawn[-1], "panel": html})


@require_safe
@requires(Capability.VIEW_FLEET)
def panel(request: HttpRequest) -> HttpResponse:
    """Answer and rules, for htmx."""
    template, url, params, context = _listed(request)
    return panels.answer(request, template, url, params, {**context, "oob": True})


def _listed(request: HttpRequest) -> tuple[str, str, dict[str, str], dict[str, Any]]:
    show = request.GET.get("show", "")
    show = show if show in SHOWS else ""
    search = request.GET.get("search", "").replace("\0", "").strip()[:100]
    found = rules.listing(show, search)
    shown = exports.page_of(found.names, _PAGE_SIZE, request.GET.get("page"))
    query = {name: value for name, value in (("show", show), ("search", search)) if value}
    params = {**query, **({"page": str(shown.number)} if shown.number > 1 else {})}
    context = {
        "overview": found.overview,
        "show": show,
        "shows": [(value, words, found.by_show[value]) for value, words in SHOWS.items()],
        "search": search,
        "query": query,
        "shown": shown,
        "rows": rules.rows(list(shown), found.counts, snapshot.current()),
        "may_edit": cast(User, request.user).can(Capability.EDIT_POLICIES),
    }
    return _LIST, reverse("live-rules"), params, context


# --- One rule ------------------------------------------------------------------------------------


@require_safe
@requires(Capability.VIEW_FLEET)
def rule(request: HttpRequest, name: str) -> HttpResponse:
    """One rule: its state, its versions, their differences, and a replay."""
    rows = RuleVersion.objects.filter(name=name)
    versions = _versions(name)
    shown = _chosen(versions, request.GET.get("version", ""))
    html, _ = panels.draw(request, *_one(name))
    user = cast(User, request.user)
    context = {
        "name": name,
        "plural": "rules",
        "panel": html,
        "versions": [version_row(RULES, each, user) for each in versions],
        "versions_total": rows.count(),
        "shown": shown,
        "lines": shown.text.splitlines() if shown else [],
        "compared": compared(versions, request.GET),
        "to_replay": _to_replay(versions, shown, request.GET.get("version", "")),
        "replays": _replays(name),
        "replay": _replay_html(request, name),
        "presets": ranges.PRESETS,
        "may_edit": user.can(Capability.EDIT_POLICIES),
        "share": life.CANARY_SHARE,
    }
    return render(request, "dashboard/rules_one.html", context)


@require_safe
@requires(Capability.VIEW_FLEET)
def rule_panel(request: HttpRequest, name: str) -> HttpResponse:
    """The state of one rule, for htmx."""
    return panels.answer(request, *_one(name))


def _one(name: str) -> tuple[str, str, dict[str, str], dict[str, Any]]:
    versions = RuleVersion.objects.filter(name=name)
    if not versions.exists():
        raise Http404(f"there is no rule {name}")
    alive = versions.exclude(state=States.RETIRED)
    by_state = {each.state: each for each in alive.order_by("number")}
    main = next(
        (by_state[s] for s in ("active", "canary", "shadow", "draft") if s in by_state), None
    )
    says = rules.said(main.text) if main else None
    active_scopes = rules.active_scopes(
        name, says.scope if says else ScopeKind.SITE, snapshot.current()
    )
    episodes = RuleEpisode.objects.filter(rule=name).select_related("version")
    context = {
        "name": name,
        "main": main,
        "by_state": by_state,
        "says": says,
        "effects": rules.effects(says) if says else [],
        "firing": sum(each.phase in ("firing", "clearing") for each in active_scopes),
        "pending": sum(each.phase == "pending" for each in active_scopes),
        "would": sum(each.phase == "would fire" for each in active_scopes),
        "active_scopes": active_scopes[: rules.ACTIVE_SCOPES_SHOWN],
        "active_scopes_total": len(active_scopes),
        "faults": [fault for each in alive.live() for fault in each.faults.all()],
        "episodes": episodes.order_by("-fired_at", "-pk")[: rules.EPISODES_SHOWN],
    }
    return _ONE, reverse("live-rule", args=[name]), {}, context


def _chosen(versions: list[RuleVersion], number: str) -> RuleVersion | None:
    """Return the version that the URL names, else the active one, else the newest."""
    if number:
        return _version(versions[0].name, _number(number))
    active = next((each for each in versions if each.state == States.ACTIVE), None)
    return active or (versions[0] if versions else None)


def _number(text: str) -> int:
    number = whole_number(text, most=10**9)
    if number is None:
        raise Http404(f"{text[:20]!r} is no version")
    return number


def _version(name: str, number: int) -> RuleVersion:
    return get_object_or_404(RuleVersion, name=name, number=number)


def _versions(name: str) -> list[RuleVersion]:
    found = list(RuleVersion.objects.filter(name=name).order_by("-number")[:_VERSIONS_SHOWN])
    if not found:
        raise Http404(f"there is no rule {name}")
    return found


# --- Replays -------------------------------------------------------------------------------------


@require_POST
@requires(Capability.EDIT_POLICIES)
def replay(request: HttpRequest, name: str) -> HttpResponse:
    """Ask for a replay of a version over a span in the past."""
    version = _version(name, _number(request.POST.get("version", "")))
    picker = ranges.read(request.POST.dict(), time.time(), "24h")
    if picker.error:
        messages.error(request, f"{picker.field}: {picker.error}.")
        return redirect("rule", name)
    try:
        row = actions.ask_for_replay(
            cast(User, request.user), version, picker.span.start, picker.span.end
        )
    except life.Refused as error:
        messages.error(request, words(error))
        return redirect("rule", name)
    tasks.replay.delay(row.pk)
    return redirect(f"{reverse('rule', args=[name])}?{urlencode({'replay': row.pk})}#replay-title")


@require_safe
@requires(Capability.VIEW_FLEET)
def replay_panel(request: HttpRequest, replay_id: int) -> HttpResponse:
    """A replay, for htmx."""
    row = get_object_or_404(RuleReplay.objects.select_related("version"), pk=replay_id)
    return panels.answer(request, *_replay(row))


def _replay(row: RuleReplay) -> tuple[str, str, dict[str, str], dict[str, Any]]:
    url = reverse("live-rule-replay", args=[row.pk])
    return _REPLAY, url, {}, {"view": rules.replay_view(row)}


def _to_replay(
    versions: list[RuleVersion], shown: RuleVersion | None, chosen: str
) -> RuleVersion | None:
    """Return the version to offer for replay: the one asked for, else a draft."""
    draft = next((each for each in versions if each.state in (States.DRAFT, States.SHADOW)), None)
    return shown if chosen or draft is None else draft


def _replays(name: str) -> list[RuleReplay]:
    found = RuleReplay.objects.filter(version__name=name).select_related("version").defer("result")
    return list(found[:_REPLAYS_SHOWN])


def _replay_html(request: HttpRequest, name: str) -> str:
    """Return the replay that the URL names, else the newest of the rule; empty: there is none."""
    found = RuleReplay.objects.filter(version__name=name).select_related("version")
    number = whole_number(request.GET.get("replay", ""), most=BIGGEST_ID)
    if number is not None:
        found = found.filter(pk=number)
    newest = found.first()
    return panels.draw(request, *_replay(newest))[0] if newest else ""


# --- Writing -------------------------------------------------------------------------------------


@require_http_methods(["GET", "POST"])
@requires(Capability.EDIT_POLICIES)
def edit(request: HttpRequest, name: str = "") -> HttpResponse:
    """Write a draft: a new rule, or the next version of one."""
    base = _base(name, request.GET.get("version", "")) if name else None
    text = _clean(request.POST.get("text", base.text if base else _START))
    note = request.POST.get("note", "").replace("\0", "").strip()[:500]
    says, problems = _read(text)
    if request.method == "POST" and not problems:
        version = life.draft(RULES, cast(User, request.user), text, note=note)
        messages.success(request, f"{version} is a draft. Replay it, then have it reviewed.")
        return redirect("rule", version.name)
    context = {
        "name": name,
        "base": base,
        "text": text,
        "note": note,
        "rows": min(max(text.count("\n") + 2, 16), 40),
        **_checked(text, says, problems, is_refused=request.method == "POST"),
    }
    status = 400 if context["is_refused"] else 200
    return render(request, "dashboard/rules_edit.html", context, status=status)


def _base(name: str, number: str) -> RuleVersion:
    found = _chosen(_versions(name), number)
    if found is None:
        raise Http404(f"{name} has no version")
    return found


@require_POST
@requires(Capability.EDIT_POLICIES)
def check(request: HttpRequest) -> HttpResponse:
    """Show the faults of a text, for htmx. Nothing is kept."""
    text = _clean(request.POST.get("text", ""))
    says, problems = _read(text)
    context = _checked(text, says, problems, is_refused=False)
    return render(request, "dashboard/panels/rules_problems.html", context)


def _clean(text: str) -> str:
    # Forms send lines with CR; Postgres refuses NUL in text.
    return text.replace("\r\n", "\n").replace("\0", "")[: _MOST_TEXT + 1]


def _read(text: str) -> tuple[document.Rule | None, list[FieldError]]:
    try:
        return document.read(text), []
    except DocumentError as error:
        return None, error.problems


def _checked(
    text: str, says: document.Rule | None, problems: list[FieldError], *, is_refused: bool
) -> dict[str, Any]:
    kind = says.scope if says else _kind(text)
    return {
        "problems": quoted(text, problems),
        "is_refused": is_refused,
        "says": says,
        "kind": kind,
        "columns": sorted(FIELDS[kind].items()),
    }


_SCOPE = re.compile(r"^scope:\s*([a-z_]+)\s*$", re.MULTILINE)


def _kind(text: str) -> ScopeKind:
    """Return the likely scope kind of a text that cannot be read."""
    found = _SCOPE.search(text)
    kinds = {kind.value: kind for kind in FIELDS}
    return kinds.get(found[1], ScopeKind.RACK) if found else ScopeKind.RACK
