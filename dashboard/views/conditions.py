"""The Site conditions pages: the load that each site takes, binding constraints, consequences."""

from __future__ import annotations

from typing import Any, cast

from django.conf import settings
from django.core.paginator import Page
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.views.decorators.http import require_safe

from accounts.decorators import requires
from accounts.edge.parameters import whole_number
from accounts.models import User
from accounts.roles import Capability
from dashboard import conditional, conditions, exports, moments, places
from dashboard.moments import Moment
from dashboard.views import place
from policies.headroom import forecasts
from policies.headroom.forecasts import Score
from policies.scopes import Scope, ScopeKind

__all__ = ["page", "panel", "site_page", "site_panel"]

#: With more sites than this, the answer is one sentence of all.
_SENTENCES = 4
#: Of a list a site's page shows so many, the tightest; ``?show=`` has all of it, in pages.
_FEW = {"rows": 24, "domains": 40, "racks": 12, "zones": 12, "links": 12}
_PAGE_SIZE = 100
_KINDS = {"racks": ScopeKind.RACK, "zones": ScopeKind.ZONE, "links": ScopeKind.LINK}


@require_safe
@requires(Capability.VIEW_FLEET)
def page(request: HttpRequest) -> HttpResponse:
    """The sites with the constraint that binds each, and whether they take work."""
    return render(request, "dashboard/conditions.html", _sites(moments.current()))


@require_safe
@requires(Capability.VIEW_FLEET)
def panel(request: HttpRequest) -> HttpResponse:
    """All of the page, for htmx. Made once for all viewers."""
    moment = moments.current()

    def make() -> str:
        return render_to_string("dashboard/panels/conditions.html", _sites(moment))

    return conditional.panel_of(request, moment, ("conditions-panel",), make)


@require_safe
@requires(Capability.VIEW_FLEET)
def site_page(request: HttpRequest, site: str) -> HttpResponse:
    """The load that one site takes, in numbers and consequences."""
    moment = moments.current()
    asked = _asked(request)
    context = _site(moment, site, *asked)
    context["sites"] = moment.headroom.fleet.sites.names.tolist()
    if context["show"]:
        return render(request, "dashboard/site_conditions.html", context)
    scope = Scope(ScopeKind.SITE, site)
    timeline = place.timeline_of(request, scope)
    context |= place.hub_of(request, scope) | place.chart_of(request, scope, timeline)
    status = 400 if timeline and timeline.picker.error else 200
    return render(request, "dashboard/site_conditions.html", context, status=status)


@require_safe
@requires(Capability.VIEW_FLEET)
def site_panel(request: HttpRequest, site: str) -> HttpResponse:
    """All of a site's page, for htmx. Made once for all with the same capabilities."""
    moment = moments.current()
    asked = _asked(request)

    def make() -> str:
        return render_to_string(
            "dashboard/panels/site_conditions.html", _site(moment, site, *asked)
        )

    return conditional.panel_of(request, moment, ("conditions-panel", site, *asked), make)


def _asked(request: HttpRequest) -> tuple[str, int, bool]:
    """Return the list to show in full, its page, and whether this user may restrict."""
    show = request.GET.get("show", "")
    may = cast(User, request.user).can(Capability.EDIT_POLICIES)
    page = whole_number(request.GET.get("page", ""), most=99_999)
    return (show if show in _FEW else "", 1 if page is None else page, may)


def _sites(moment: Moment) -> dict[str, Any]:
    return moment.once("sites", lambda: _make_sites(moment))


def _make_sites(moment: Moment) -> dict[str, Any]:
    headroom = moment.headroom
    found = conditions.site_lines(headroom)
    few = len(found) <= _SENTENCES
    return {
        "version": moment.version,
        "now": moment.now,
        "sites": found,
        "answers": [moment.conditions(line["name"]).answer for line in found] if few else [],
        "whole": conditions.whole(found),
        "stale_after_s": settings.STALE_AFTER_S,
        "never_heard": not headroom.summary.racks.seen.any(),
    }


def _site(moment: Moment, site: str, show: str, number: int, may: bool) -> dict[str, Any]:
    if site not in moment.headroom.fleet.sites.index_by_name:
        raise Http404(f"no site {site[:200]!r}")
    shared = moment.once(("site", site), lambda: _make_site(moment, site))
    context = {
        **shared,
        "version": moment.version,
        "now": moment.now,
        "show": show,
        "number": number,
        "query": {"show": show} if show else {},
        "may_restrict": may,
    }
    for name in _FEW:
        if show in ("", name):
            context[name] = _list(moment, site, name, whole=show == name, number=number)
    return context


def _list(moment: Moment, site: str, name: str, *, whole: bool, number: int) -> dict[str, Any]:
    """Return a list of a site: all of it, in pages, or those with the least left."""
    whole = whole or exports.is_going_on()
    items = moment.once(("list", site, name), lambda: _items(moment, site, name))
    shown: Page[Any] | None = exports.page_of(items, _PAGE_SIZE, number) if whole else None
    chosen = items[: _FEW[name]] if shown is None else list(shown)
    if name == "domains":
        chosen = conditions.domain_lines(moment.headroom, chosen)
    elif name in _KINDS:
        chosen = conditions.lines(moment.headroom, _KINDS[name], chosen)
    return {"lines": chosen, "shown": shown, "all": len(items)}


def _items(moment: Moment, site: str, name: str) -> list[Any]:
    """Return rows of scopes, the tightest first. Few domains are a tree, few rows in order."""
    headroom = moment.headroom
    if name == "rows":
        rows = list(moment.conditions(site).rows)
        return rows if len(rows) <= _FEW[name] else sorted(rows, key=lambda row: -row.job_w)
    kind = _KINDS.get(name, ScopeKind.POWER_DOMAIN)
    here = conditions.of_site(headroom, kind, site)
    if name == "domains" and len(here) <= _FEW[name]:
        return conditions.domain_tree(headroom, site)
    tightest: list[int] = conditions.tightest_first(headroom, kind, here).tolist()
    return [(row, 0) for row in tightest] if name == "domains" else tightest


def _make_site(moment: Moment, site: str) -> dict[str, Any]:
    headroom = moment.headroom
    row = headroom.fleet.sites.index_by_name[site]
    line = conditions.lines(headroom, ScopeKind.SITE, [row])[0]
    found = moment.conditions(site)
    scores = _scores(moment)
    return {
        "site": line,
        "found": found,
        "told": conditions.told(headroom.fleet, found.consequences),
        "failover": conditions.worst_failover(headroom, site),
        "storage": places.listed(
            headroom,
            ScopeKind.STORAGE,
            "storage endpoints",
            conditions.of_site(headroom, ScopeKind.STORAGE, site),
        ),
        "ahead": conditions.ahead(line, scores),
        "measured": conditions.measured(scores),
        "claims": conditions.claims_made(forecasts.claims_made(headroom.fleet)),
        "never_heard": not _is_heard(moment, row),
        "stale_after_s": settings.STALE_AFTER_S,
    }


def _scores(moment: Moment) -> list[Score]:
    """Return the errors of forecasts of the last day. One query for each moment."""
    return moment.once("scores", lambda: forecasts.scores(moment.now))


def _is_heard(moment: Moment, site: int) -> bool:
    headroom = moment.headroom
    first, last = headroom.fleet.rack_bounds[site : site + 2].tolist()
    return bool(headroom.summary.racks.seen[first:last].any())
