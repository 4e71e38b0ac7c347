"""Saving and deleting views of pages; the pages list them by ``{% saved_views %}``."""

from __future__ import annotations

from typing import cast

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from accounts.decorators import requires
from accounts.models import SavedView, User
from accounts.roles import Capability
from accounts.saved_views import actions
from dashboard import saved_views

__all__ = ["delete", "save"]


@require_POST
@requires(Capability.VIEW_FLEET)
def save(request: HttpRequest) -> HttpResponse:
    """Keep what a page shows under a name, and go back to it."""
    given = request.POST
    page = given.get("page", "")
    try:
        query = saved_views.checked(page, given.get("query", ""))
        row = actions.save(
            cast(User, request.user),
            page,
            given.get("name", ""),
            query,
            is_shared=given.get("shared") == "1",
        )
    except actions.ViewRefused as error:
        text = f"{error.field}: {error}.\n"
        return HttpResponse(text, status=400, content_type="text/plain; charset=utf-8")
    shared = ", for all" if row.is_shared else ""
    messages.success(
        request,
        f"The view \N{LEFT DOUBLE QUOTATION MARK}{row.name}"
        f"\N{RIGHT DOUBLE QUOTATION MARK} is saved{shared}.",
    )
    return redirect(saved_views.address(page, query))


@require_POST
@requires(Capability.VIEW_FLEET)
def delete(request: HttpRequest, view_id: int) -> HttpResponse:
    """Delete a view of one's own, and go back to its page."""
    user = cast(User, request.user)
    row = SavedView.objects.filter(pk=view_id, owner=user).first()
    if row is None:
        raise Http404(f"you have no view {view_id}")
    try:
        name = actions.delete(user, view_id)
    except SavedView.DoesNotExist as error:
        raise Http404(f"you have no view {view_id}") from error
    messages.success(
        request,
        f"The view \N{LEFT DOUBLE QUOTATION MARK}{name}\N{RIGHT DOUBLE QUOTATION MARK} is deleted.",
    )
    return redirect(saved_views.address(row.page, "") if row.page in saved_views.PAGES else "fleet")
