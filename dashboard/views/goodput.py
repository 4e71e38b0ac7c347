"""The pages of goodput and of what cost most."""

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
from admission.core.losses import Order
from admission.losses import reading
from dashboard import fleet_goodput, hours, losses

__all__ = ["losses_page", "page"]


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


@require_safe
@requires(Capability.VIEW_FLEET)
@dear("the span of time")
def losses_page(request: HttpRequest) -> HttpResponse:
    """What cost most of the time of GPUs, and what pays first; to ML users, of their own."""
    now, params = timezone.now(), request.GET.dict()
    chosen, span = hours.chosen(params, now)
    asked = params.get("rank", "")
    order = Order(asked) if asked in list(Order) else Order.GPU_H
    only = {name: params[name] for name in reading.ONLY if params.get(name)}
    context = {
        "shown": losses.page(cast(User, request.user), span, order, only, now),
        "ranges": hours.RANGES.items(),
        "chosen": chosen,
        "orders": losses.ORDERS.items(),
        "order": order,
    }
    return render(request, "dashboard/losses.html", context)
