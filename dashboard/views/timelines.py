"""Views of a thing that has a timeline: the page of a GPU or a node, and its live panels."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import urlencode

from accounts import visibility
from accounts.visibility import Visibility
from dashboard import happenings, panels, ranges
from dashboard.happenings import Happening
from dashboard.ranges import RangePicker
from dashboard.timeline import Timeline
from dashboard.views import place
from fleet.models import Gpu, Node
from policies.scopes import Scope
from telemetry.spans import Span

__all__ = ["Views"]

T = TypeVar("T", Gpu, Node)
#: Template, URL, query and context: what ``panels`` draws and answers.
_Panel = tuple[str, str, dict[str, str], dict[str, Any]]


@dataclass(frozen=True)
class Views(Generic[T]):
    """The views of all things of a kind. ``kind`` names their templates and URLs."""

    kind: str
    find: Callable[[int], T]
    #: makes the context of the panel for a reader
    now: Callable[[T, Visibility], dict[str, Any]]
    timeline: Callable[[HttpRequest, T, float], Timeline]
    happenings: Callable[[int, Span, Visibility], list[Happening]]
    scope: Callable[[T], Scope]
    #: makes what the page has besides
    besides: Callable[[T, float], dict[str, Any]] | None = None

    def page(self, request: HttpRequest, key: int) -> HttpResponse:
        """Return the state of the thing, and its history."""
        thing, now = self.find(key), time.time()
        timeline = self.timeline(request, thing, now)
        table = self._table(thing, timeline, now)
        drawn = [
            panels.draw(request, *each)[0]
            for each in (
                self._panel(request, thing),
                table,
                self._happenings(request, thing, timeline.picker),
            )
        ]
        context = {
            "rows": timeline.rows if table[-1]["rows"] else 0,
            self.kind: thing,
            "timeline": timeline,
            "picker": timeline.picker,
            **(self.besides(thing, now) if self.besides else {}),
            **place.hub_if_any(request, self.scope(thing)),
            **dict(zip(("panel", "table", "happenings"), drawn, strict=True)),
        }
        status = 400 if timeline.picker.error else 200
        return render(request, f"dashboard/{self.kind}.html", context, status=status)

    def panel(self, request: HttpRequest, key: int) -> HttpResponse:
        """Return the answer and the latest readings, for htmx."""
        return panels.answer(request, *self._panel(request, self.find(key)))

    def table(self, request: HttpRequest, key: int) -> HttpResponse:
        """Return least, mean and greatest values of the range, for htmx."""
        thing, now = self.find(key), time.time()
        timeline = self.timeline(request, thing, now)
        return panels.answer(request, *self._table(thing, timeline, now))

    def events(self, request: HttpRequest, key: int) -> HttpResponse:
        """Return the events in the range, for htmx."""
        picker = ranges.read(request.GET.dict(), time.time())
        return panels.answer(request, *self._happenings(request, self.find(key), picker))

    def _panel(self, request: HttpRequest, thing: T) -> _Panel:
        url = reverse(f"live-{self.kind}", args=[thing.pk])
        context = self.now(thing, visibility.of(request))
        return f"dashboard/panels/{self.kind}.html", url, {}, context

    def _table(self, thing: T, timeline: Timeline, now: float) -> _Panel:
        url = reverse(f"live-{self.kind}-range", args=[thing.pk])
        context = {"rows": timeline.table(now), "live": timeline.picker.span.live}
        query = ranges.as_params(timeline.picker)
        return "dashboard/panels/range_table.html", url, query, context

    def _happenings(self, request: HttpRequest, thing: T, picker: RangePicker) -> _Panel:
        span, query = picker.span, ranges.as_params(picker)
        node = thing if isinstance(thing, Node) else thing.node
        context = {
            "happenings": self.happenings(thing.pk, span, visibility.of(request)),
            "most": happenings.MOST,
            "of_node": node is thing,
            "more": urlencode({"node": node.name, **query}),
            "live": span.live,
        }
        url = reverse(f"live-{self.kind}-events", args=[thing.pk])
        return "dashboard/panels/happenings.html", url, query, context
