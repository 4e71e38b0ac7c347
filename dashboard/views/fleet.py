"""The Fleet page, and its live panel and heatmap."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils import timezone
from django.views.decorators.http import require_safe

from accounts.decorators import requires
from accounts.roles import Capability
from dashboard import (
    cells,
    conditional,
    controller,
    live,
    queue,
    sites,
    stale_agents,
    state,
    tightest,
)
from dashboard.context import criticals_of
from dashboard.live import METRICS, Metric
from dashboard.ranges import Choice
from dashboard.state import View
from policies.incidents.models import Incident
from policies.restrictions.models import Restriction

__all__ = ["heatmap", "page", "panel", "pulse"]

#: With more sites than this, the answer is one sentence of all; the tiles tell the rest.
_SENTENCES = 4
#: With more sites than this, the filter is a list to choose from.
_SITE_LINKS = 6


def _metric(request: HttpRequest) -> Metric:
    """Return the metric that the URL asks for; an unknown one is the default."""
    return METRICS.get(request.GET.get("metric", ""), METRICS[live.DEFAULT_METRIC])


def _shown(request: HttpRequest) -> tuple[View, int | None]:
    """Return the view, and the row of the site that the URL asks for; None is all of them."""
    name = request.GET.get("site", "")
    if not name:
        return state.current(), None
    view, row = state.having(lambda fleet: fleet.sites.index_by_name.get(name))
    if row is None:
        raise Http404(f"no site {name[:200]!r}")
    return view, row


@require_safe
@requires(Capability.VIEW_FLEET)
def page(request: HttpRequest) -> HttpResponse:
    """The headroom that is left in each rack, and the loads that use it up."""
    metric, (view, site) = _metric(request), _shown(request)
    if not len(view.fleet.racks):
        return render(request, "dashboard/first_visit.html")
    columns = _columns(view, metric.name, site)
    is_worst = request.GET.get("order") == "worst"
    context = {
        **_panel_context(view, site),
        "metric": metric,
        **_links(view, metric, site, is_worst=is_worst),
        "heat_sites": cells.heat_sites(
            view.fleet, columns, metric, site, _margins(view, metric) if is_worst else None
        ),
        "is_worst": is_worst,
        "now": view.now,
        "dense": len(columns["id"]) > cells.DENSE_ABOVE,
        "generation": view.fleet.generation,
        "racks": len(columns["id"]),
        "never_heard": view.newest is None,
        "stale_after_s": settings.STALE_AFTER_S,
        "wall": "wall" in request.GET,
        "signed_in_until": _signed_in_until(request),
    }
    return render(request, "dashboard/fleet.html", context)


def _links(view: View, metric: Metric, site: int | None, *, is_worst: bool) -> dict[str, Any]:
    """Return what is shown of the racks, and the links to what else may be."""
    names = view.fleet.sites.names.tolist()
    name = "" if site is None else str(names[site])

    def href(**other: str) -> str:
        order = "worst" if is_worst else ""
        asked = {"metric": metric.name, "site": name, "order": order, **other}
        return "?" + urlencode({key: said for key, said in asked.items() if said}, quote_via=quote)

    return {
        "site": name,
        "sites": names,
        "metric_links": [
            Choice(href(metric=each.name), each.label, each == metric) for each in METRICS.values()
        ],
        "order_links": [
            Choice(href(order=""), "by place", not is_worst),
            Choice(href(order="worst"), "worst first", is_worst),
        ],
        "all_sites": href(site=""),
        "site_links": [Choice(href(site=each), each, each == name) for each in names]
        if len(names) <= _SITE_LINKS
        else [],
        "wall_href": href(wall="1"),
    }


def _signed_in_until(request: HttpRequest) -> datetime:
    """Return when the session ends if nobody touches the page: polls do not keep it alive."""
    idle = timezone.now() + timedelta(hours=settings.SESSION_IDLE_H)
    return min(idle, request.session.get_expiry_date())


@require_safe
@requires(Capability.VIEW_FLEET)
def panel(request: HttpRequest) -> HttpResponse:
    """Answer, tiles and power tree, for htmx. Made once for all viewers."""
    view, site = _shown(request)

    def make() -> str:
        return render_to_string(
            "dashboard/panels/fleet.html", {**_panel_context(view, site), "oob": True}
        )

    return conditional.shared(conditional.panel_of(request, view, ("fleet-panel", site), make))


@require_safe
@requires(Capability.VIEW_FLEET)
def heatmap(request: HttpRequest) -> HttpResponse:
    """The racks as columns, for static/js/fleet.js."""
    metric, (view, site) = _metric(request), _shown(request)

    def make() -> dict[str, Any]:
        return {
            "generation": view.fleet.generation,
            "now": round(view.now, 3),
            "newest": view.newest,
            "metric": metric.name,
            "racks": _columns(view, metric.name, site),
        }

    return conditional.shared(
        conditional.json_of(request, view, ("heatmap", metric.name, site), make)
    )


@require_safe
@requires(Capability.VIEW_FLEET)
def pulse(request: HttpRequest) -> HttpResponse:
    """What the header of every page says: the newest reading, and how many incidents are bad."""
    view = state.current()
    return JsonResponse(
        {
            "newest": view.newest,
            "now": view.now,
            "stale_after_s": settings.STALE_AFTER_S,
            "criticals": criticals_of(request),
        }
    )


def _columns(view: View, metric: str, site: int | None) -> dict[str, live.Column]:
    return view.once(
        ("columns", metric, site),
        lambda: live.heatmap(
            view.fleet,
            view.summary,
            tightest.shared(view),
            metric,
            stale_after_s=settings.STALE_AFTER_S,
            site=site,
        ),
    )


def _margins(view: View, metric: Metric) -> live.Array:
    shared = tightest.shared(view)
    return live.margins(view.summary, shared, metric.name, settings.STALE_AFTER_S)


def _panel_context(view: View, site: int | None) -> dict[str, Any]:
    return view.once(("fleet-panel-context", site), lambda: _make_panel_context(view, site))


def _make_panel_context(view: View, site: int | None) -> dict[str, Any]:
    tiles = sites.tiles(view, stale_agents.by_site(view.now, settings.STALE_AFTER_S))
    rows = range(len(tiles)) if site is None else [site]
    found = sites.power_trees(view, rows)
    trees = [(tiles[row].name, tree) for row, tree in zip(rows, found, strict=True)]
    shown = [tiles[row] for row in rows]
    name = "" if site is None else tiles[site].name
    return {
        "version": view.version,
        "panel_site": name,
        "tiles": shown,
        "whole": sites.total(shown) if len(shown) > _SENTENCES else None,
        "trees": [(name, tree) for name, tree in trees if tree],
        "queue": queue.brief(view.now),
        "controller": controller.of_fleet(name),
        **_asks_for_somebody(),
    }


def _asks_for_somebody() -> dict[str, int]:
    """Count restrictions, those that wait for a person, and incidents. Three queries."""
    now = timezone.now()
    return {
        "restrictions": Restriction.objects.in_force(now).count(),
        "waiting": Restriction.objects.waiting(now).count(),
        "incidents": Incident.objects.unresolved().count(),
    }
