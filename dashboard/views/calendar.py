"""The page of what is planned."""

from __future__ import annotations

import time
from typing import cast

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from accounts.cost import dear
from accounts.decorators import requires
from accounts.edge.parameters import whole_number
from accounts.models import User
from accounts.roles import Capability
from admission.calendar.api import DEFAULT_DAYS, MOST_DAYS, span_of
from dashboard import calendar
from fleet import snapshot

__all__ = ["page"]


@require_safe
@requires(Capability.VIEW_FLEET)
@dear("days")
def page(request: HttpRequest) -> HttpResponse:
    """What is planned, by whom, and what sites are committed to from now on."""
    asked = request.GET.get("days", "")
    days = whole_number(asked, least=1, most=MOST_DAYS) or DEFAULT_DAYS
    span = span_of({"days": str(days)}, time.time())
    user, site = cast(User, request.user), request.GET.get("site", "")
    shown = calendar.page(user, snapshot.current(), span, site)
    return render(request, "dashboard/calendar.html", {"shown": shown})
