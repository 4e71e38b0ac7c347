"""The Failures page: what failed, of what, how often, and what that means for what comes."""

from __future__ import annotations

import time
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from accounts import visibility
from accounts.cost import dear
from accounts.decorators import requires
from accounts.edge.parameters import whole_number
from accounts.roles import Capability
from admission.failures import reading
from admission.failures.grouping import By, rate_of
from admission.failures.reading import Observed
from admission.failures.told import told
from dashboard import failures, ranges
from telemetry.spans import ParameterError

__all__ = ["page"]

_PAGE = "dashboard/failures.html"
_RANGE, _REPAIR_H, _GPUS, _HOURS = "30d", 24, 512, 24


@require_safe
@never_cache
@requires(Capability.VIEW_FLEET)
@dear("the span of time")
def page(request: HttpRequest) -> HttpResponse:
    """The failures of a span with causes, rates, lemons; spares and jobs that are planned."""
    now = time.time()
    picker = ranges.read(request.GET.dict(), now, _RANGE)
    by = {each.value: each for each in By}.get(request.GET.get("by", ""), By.COMPONENT)
    context: dict[str, Any] = {
        "picker": picker,
        "ranges": failures.RANGES,
        "bys": failures.BY,
        "by": by,
        "error": picker.error,
    }
    try:
        found = reading.of_fleet(picker.span, now)
    except ParameterError as error:
        return render(
            request, "dashboard/failures.html", {**context, "error": str(error)}, None, 400
        )
    context |= _shown(request, found, by)
    return render(request, "dashboard/failures.html", context, status=400 if picker.error else 200)


def _shown(request: HttpRequest, found: Observed, by: By) -> dict[str, Any]:
    answer = told(found, by, visibility.of(request))
    repair_h, gpus, hours = (
        whole_number(request.GET.get(name, ""), most=most) or usual
        for name, most, usual in (
            ("repair", 24 * 365, _REPAIR_H), ("gpus", 1_000_000, _GPUS), ("hours", 24 * 365, _HOURS)
        )
    )  # fmt: skip
    return {
        "found": answer,
        "answer": failures.answer(answer),
        "precedence": ", ".join(map(failures.words, answer["precedence"])),
        "observed_share": failures.observed_share(answer),
        "silent_share": failures.silent_share(answer),
        "groups": [
            {**each, "words": failures.words(each["name"]) if by is By.COMPONENT else each["name"]}
            for each in answer["groups"]
        ],
        "lines": failures.lines(answer["failures"], found.fleet),
        "spares": failures.spares(answer["fleet"], len(found.fleet.nodes), repair_h),
        "repair_h": repair_h,
        "planned": failures.planned(rate_of(found), gpus, hours),
        "gpus": gpus,
        "hours": hours,
    }
