"""The page of goodput."""

from __future__ import annotations

from typing import cast

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from accounts.cost import dear
from accounts.decorators import requires
from accounts.models import User
from accounts.roles import Capability
from dashboard import fleet_goodput, hours

__all__ = ["page"]


@require_safe
@requires(Capability.VIEW_FLEET)
@dear("the span of time")
def page(request: HttpRequest) -> HttpResponse:
    """Where the time of all GPUs went; to ML users, that of their own projects."""
    now = timezone.now()
    chosen, span = hours.chosen(request.GET.dict(), now)
    context = {
        "shown": fleet_goodput.page(cast(User, request.user), span, now),
        "ranges": hours.RANGES.items(),
        "chosen": chosen,
    }
    return render(request, "dashboard/goodput.html", context)
