"""The pages of zones, power domains, links and storage endpoints, and the hub of any place."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from accounts import visibility
from accounts.decorators import requires
from accounts.models import User
from accounts.roles import Capability
from admission.calendar import committed
from dashboard import (
    conditions,
    controller,
    hub,
    marks,
    moments,
    panels,
    places,
    ranges,
    scopes,
    units,
)
from dashboard.hub import Link
from dashboard.places import Place
from dashboard.ranges import RangePicker
from dashboard.timeline import Timeline
from fleet import snapshot
from fleet.models import Meter, MeterKind
from policies.headroom import network
from policies.headroom.evaluate import Headroom
from policies.scopes import Scope, ScopeKind, UnknownScope, nodes_in, row_of
from telemetry import frame, series
from telemetry.live_frame import Readings
from telemetry.series import Kind

__all__ = [
    "ahead_panel", "annotations_panel", "chart_of", "hub_if_any", "hub_of", "hub_panel", "page",
    "panel", "timeline_of",
]  # fmt: skip

#: Of a place without a chart, what happened is told for so long.
_WITHOUT_CHART = "24h"
#: So many of its meters are drawn.
_METERS = 4
_METER_OF = {ScopeKind.POWER_DOMAIN: "power_domain", ScopeKind.ZONE: "cooling_zone"}
#: The places of several racks: the kind of their series, and their table in the inventory.
_SUMS = {
    ScopeKind.POWER_DOMAIN: (Kind.POWER_DOMAIN, "domains"),
    ScopeKind.ZONE: (Kind.ZONE, "zones"),
    ScopeKind.SITE: (Kind.SITE, "sites"),
}
#: The places that have a hub.
_HUBS = (*places.KINDS, ScopeKind.RACK, ScopeKind.NODE, ScopeKind.GPU, ScopeKind.SITE)


@require_safe
@requires(Capability.VIEW_FLEET)
def page(request: HttpRequest, kind: str, name: str) -> HttpResponse:
    """One place: its load against its budget, what it is a part of, and its hub."""
    scope = _scope(kind, name, places.KINDS)
    drawn = _now(scope)
    timeline = timeline_of(request, scope)
    context = {
        **drawn[-1],
        "panel": panels.draw(request, *drawn)[0],
        **hub_of(request, scope),
        **chart_of(request, scope, timeline),
    }
    status = 400 if timeline and timeline.picker.error else 200
    return render(request, "dashboard/place.html", context, status=status)


@require_safe
@requires(Capability.VIEW_FLEET)
def panel(request: HttpRequest, kind: str, name: str) -> HttpResponse:
    """The readings of a place, for htmx."""
    return panels.answer(request, *_now(_scope(kind, name, places.KINDS)))


@require_safe
@requires(Capability.VIEW_FLEET)
def hub_panel(request: HttpRequest, kind: str, name: str) -> HttpResponse:
    """Incidents, restrictions and jobs of a place, for htmx: as far as the reader may see them."""
    return panels.answer(request, *_hub(request, _scope(kind, name, _HUBS)))


@require_safe
@requires(Capability.VIEW_FLEET)
def annotations_panel(request: HttpRequest, kind: str, name: str) -> HttpResponse:
    """What happened at a place in a range, for htmx: as far as the reader may know it."""
    picker = ranges.read(request.GET.dict(), time.time())
    return panels.answer(request, *_annotated(request, _scope(kind, name, _HUBS), picker))


@require_safe
@requires(Capability.VIEW_FLEET)
def ahead_panel(request: HttpRequest, kind: str, name: str) -> HttpResponse:
    """What a place is committed to, for htmx."""
    return panels.answer(request, *_ahead(_scope(kind, name, committed.KINDS)))


def chart_of(request: HttpRequest, scope: Scope, timeline: Timeline | None) -> dict[str, Any]:
    """Return the chart of a place for the context of its page, what happened, and what is ahead.

    ``timeline`` None: there is no chart; what happened in the last day is told all the same.
    """
    context: dict[str, Any] = {"timeline": timeline}
    if scope.kind in committed.KINDS:
        context["ahead_panel"] = panels.draw(request, *_ahead(scope))[0]
    picker = timeline.picker if timeline else ranges.read({}, time.time(), _WITHOUT_CHART)
    marked = panels.draw(request, *_annotated(request, scope, picker))[0]
    return context | {
        "picker": picker,
        "annotations_panel": marked,
        "too_many_gpus": timeline is None and scope.kind in _SUMS,
    }


def hub_of(request: HttpRequest, scope: Scope) -> dict[str, Any]:
    """Return the hub of a place for the context of its page, and what its reader may do."""
    return {
        "hub_panel": panels.draw(request, *_hub(request, scope))[0],
        "acts": hub.acts(cast(User, request.user), scope),
    }


def hub_if_any(request: HttpRequest, scope: Scope) -> dict[str, Any]:
    """Return what :func:`hub_of` does; nothing for a scope that is no place of the inventory."""
    if scope.kind not in _HUBS:
        return {}
    try:
        return hub_of(request, scope)
    except Http404:
        return {}


def _scope(kind: str, name: str, kinds: tuple[ScopeKind, ...]) -> Scope:
    known = {each.value: each for each in kinds}
    if kind not in known:
        raise Http404(f"no page for a {kind[:40]!r}: there is one for each {', '.join(known)}")
    return Scope(known[kind], name)


_Drawn = tuple[str, str, Mapping[str, str], dict[str, Any]]


def _now(scope: Scope) -> _Drawn:
    moment = moments.current()
    try:
        found = moment.once(("place", scope), lambda: _place(moment.headroom, scope))
    except UnknownScope as error:
        raise Http404(str(error)[:400]) from None
    context = {"place": found, "words": scopes.words(scope), "now": moment.now}
    url = reverse("live-place", args=[scope.kind.value, scope.name])
    return "dashboard/panels/place.html", url, {}, context


def _place(headroom: Headroom, scope: Scope) -> Place:
    sent: Mapping[str, float] = {}
    if scope.kind is ScopeKind.LINK:
        readings = Readings(headroom.fleet, frame.read(), headroom.at, settings.STALE_AFTER_S)
        sent = network.sent_by_class_bits_per_s(readings, row_of(headroom.fleet, scope))
    return places.place(headroom, scope, sent)


def _hub(request: HttpRequest, scope: Scope) -> _Drawn:
    try:
        found = hub.of_scope(snapshot.current(), scope, visibility.of(request), timezone.now())
    except UnknownScope as error:
        raise Http404(str(error)[:400]) from None
    url = reverse("live-place-hub", args=[scope.kind.value, scope.name])
    context = {"hub": found, "binds": _binds(scope), "controller": _held(scope)}
    return "dashboard/panels/hub.html", url, {}, context


def _held(scope: Scope) -> list[controller.Line]:
    """Return what the controller does to a node or a GPU; the pages of others say it themselves."""
    is_part = scope.kind in (ScopeKind.NODE, ScopeKind.GPU)
    return controller.of_part(snapshot.current(), scope) if is_part else []


def _binds(scope: Scope) -> Link | None:
    """Return the constraint that binds a place, with the page of where it lies.

    None where nothing is known of it, and of places whose own panel says it.
    """
    headroom = moments.current().headroom
    if scope.kind in places.KINDS or scope.name not in headroom.table(scope.kind).index_by_name:
        return None
    found = headroom.binding(scope)
    if found is None:
        return None
    return Link(found.sentence, conditions.place_url(headroom.fleet, found.where))


def _annotated(request: HttpRequest, scope: Scope, picker: RangePicker) -> _Drawn:
    try:
        found = marks.of_place(snapshot.current(), scope, picker.span, visibility.of(request))
    except UnknownScope as error:
        raise Http404(str(error)[:400]) from None
    url = reverse("live-place-annotations", args=[scope.kind.value, scope.name])
    last = dict(ranges.PRESETS).get(picker.span.range or "", "")
    context = {"annotated": found, "live": picker.span.live, "last": last}
    return "dashboard/panels/annotations.html", url, ranges.as_params(picker), context


def _ahead(scope: Scope) -> _Drawn:
    moment = moments.current()
    try:
        found = moment.once(("ahead", scope), lambda: places.ahead(scope, time.time()))
    except UnknownScope as error:
        raise Http404(str(error)[:400]) from None
    url = reverse("live-place-ahead", args=[scope.kind.value, scope.name])
    return "dashboard/panels/ahead.html", url, {}, {"ahead_of": found}


def timeline_of(request: HttpRequest, scope: Scope) -> Timeline | None:
    """Return the chart of a link, of the meters of a place, or of its GPUs; None: it has none.

    One query. Raises :class:`Http404`.
    """
    meters = _meters(scope)
    found = Timeline(
        picker=ranges.read(request.GET.dict(), time.time()),
        sources=tuple((Kind.METER, meter) for meter in meters),
        events="",
        name=f"{scope.kind.value}-{scope.name.replace('/', '-')}",
        meters=meters,
        rows=1,
    )
    if scope.kind is ScopeKind.LINK:
        return _of_link(found, scope)
    if scope.kind not in _SUMS:
        return found if meters else None
    has_power = Meter.objects.filter(pk__in=meters, kind=MeterKind.POWER).exists()
    summed = None if has_power else _of_gpus(found, scope)
    return summed or (found if meters else None)


def _of_link(timeline: Timeline, scope: Scope) -> Timeline:
    fleet = snapshot.current()
    row = row_of(fleet, scope)
    return replace(
        timeline,
        sources=((Kind.LINK, int(fleet.links.ids[row])),),
        capacity_bits_per_s=float(fleet.links.capacity_bits_per_s[row]),
        rows=4,
    )


def _of_gpus(timeline: Timeline, scope: Scope) -> Timeline | None:
    """Return the chart of a place that no meter reads: the sum of its GPUs, and how many it is of.

    None: it has too many. Raises :class:`Http404`.
    """
    fleet = snapshot.current()
    try:
        row, nodes = row_of(fleet, scope), nodes_in(fleet, scope)
    except UnknownScope as error:
        raise Http404(str(error)[:400]) from None
    kind, table = _SUMS[scope.kind]
    gpus = int(nodes[fleet.gpus.node].sum())
    if gpus + int(nodes.sum()) > series.MOST_SUMMED:
        return None
    half = scope.kind is ScopeKind.POWER_DOMAIN
    return replace(
        timeline,
        sources=((kind, int(getattr(fleet, table).ids[row])), *timeline.sources),
        gpus=gpus,
        note=(
            f"No meter reads its power: this is the sum of what its {units.count(gpus, 'GPU')}"
            f" and {units.count(int(nodes.sum()), 'node')} report, of as many as were heard in each"
            f" minute{', half of it where a rack has two feeds' if half else ''}."
            " What was not heard is not in it, and not assumed."
        ),
        limits_of="conditions-panel" if scope.kind is ScopeKind.SITE else "place-panel",
        rows=2 + timeline.rows * bool(timeline.sources),
    )


def _meters(scope: Scope) -> dict[int, str]:
    if scope.kind not in _METER_OF:
        return {}
    site, _, name = scope.name.partition("/")
    field = _METER_OF[scope.kind]
    mine = Meter.objects.filter(**{f"{field}__site__name": site, f"{field}__name": name})
    return dict(mine.values_list("pk", "name")[:_METERS])
