"""The What if page: what would follow if a part of the fleet failed now."""

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
from accounts.roles import Capability
from admission.core.outage import Consequences
from admission.outages.foreseeing import foresee
from admission.outages.told import not_known
from dashboard import moments, outages
from fleet import snapshot
from policies.scopes import Scope, UnknownScope

__all__ = ["page"]

#: So many jobs of a list are shown; more are counted.
_MOST = 50


@require_safe
@never_cache
@requires(Capability.VIEW_FLEET)
@dear("it to a part that fewer jobs run on")
def page(request: HttpRequest) -> HttpResponse:
    """The consequences of an outage that is asked for, evaluated now; nothing is done."""
    kind, name, words = (request.GET.get(each, "")[:400] for each in ("kind", "name", "q"))
    context: dict[str, Any] = {"kind": kind, "words": words, "kinds": outages.kinds()}
    scope = outages.scope_of(kind, name)
    if scope is not None:
        context |= _asked(request, scope)
    if "found" not in context:
        known = kind if kind in dict(context["kinds"]) else ""
        context["parts"] = outages.parts(moments.current().headroom, known, words or name)
    return render(request, "dashboard/what_if.html", context)


def _asked(request: HttpRequest, scope: Scope) -> dict[str, Any]:
    try:
        found = foresee(scope, time.time())
    except UnknownScope as exc:
        return {"unknown": str(exc)}
    return {
        "found": found,
        "answer": outages.answer(found),
        "about": outages.about(found.scope, snapshot.current()),
        "not_known": not_known(found.scope.kind),
        **_lists(request, found),
    }


def _lists(request: HttpRequest, found: Consequences) -> dict[str, Any]:
    reader, fleet = visibility.of(request), snapshot.current()
    hit, slowed = found.hit[:_MOST], found.slowed[:_MOST]
    names = outages.named([each.key for each in hit], reader)
    return {
        "over": outages.over_lines(found.over[:_MOST], fleet),
        "hit": list(zip(names, hit, strict=True)),
        "slowed": outages.slowed_lines(slowed, fleet, reader),
        "relying": outages.relies_lines(found.relying[:_MOST], found.scope, reader),
        "moves": outages.moves_lines(found.moves[:_MOST], reader),
        "slowed_gpus": sum(each.gpus for each in found.slowed),
        "paused": outages.named(found.paused[:_MOST], reader),
        "stopped": outages.named(found.stopped[:_MOST], reader),
        "most": _MOST,
    }
