"""Saved views of a page: ``{% load saved_views %}{% saved_views "queue" %}``."""

from __future__ import annotations

from typing import Any

from django import template
from django.template.context import RequestContext

from accounts import visibility
from accounts.saved_views.actions import MAY_SHARE
from dashboard import saved_views as views

register = template.Library()


@register.inclusion_tag("inc/saved_views.html", takes_context=True)
def saved_views(context: RequestContext, page: str) -> dict[str, Any]:
    """List the views of a page that the reader may use, and offer to save what is shown now.

    One query, and one more for readers who do not see all jobs.
    """
    request = context["request"]
    now = views.lasting(page, request.GET.dict())
    rows = views.shown_to(visibility.of(request), request.user, page)
    return {
        "request": request,
        "csrf_token": context.get("csrf_token"),
        "page": page,
        "query": now,
        "may_share": request.user.can(MAY_SHARE),
        "views": [
            {
                "row": row,
                "href": views.address(page, row.query),
                "is_own": row.owner_id == request.user.pk,
                "is_now": row.query == now,
            }
            for row in rows
        ],
    }
