"""The page of notification channels, its live panel, and the forms that make and change one."""

from __future__ import annotations

from typing import Any, cast

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from accounts import visibility
from accounts.decorators import requires
from accounts.models import User
from accounts.roles import Capability
from dashboard import channels, exports, panels
from dashboard.channel_forms import KINDS, ChannelForm
from policies.incidents import actions
from policies.incidents.models import NotificationChannel

__all__ = ["add", "change", "delete", "page", "panel", "send_test"]

_PANEL = "dashboard/panels/channels.html"
_PAGE_SIZE = 50
#: So many of the last notifications are shown.
_TOLD = 20


@require_safe
@requires(Capability.VIEW_FLEET)
def page(request: HttpRequest) -> HttpResponse:
    """Where notifications go, and what became of the last ones."""
    html, _ = panels.draw(request, *_panel(request))
    return render(request, "dashboard/channels.html", {"panel": html})


@require_safe
@requires(Capability.VIEW_FLEET)
def panel(request: HttpRequest) -> HttpResponse:
    """Channels and notifications, for htmx."""
    return panels.answer(request, *_panel(request))


@never_cache
@require_http_methods(["GET", "POST"])
@requires(Capability.EDIT_POLICIES)
def add(request: HttpRequest) -> HttpResponse:
    """Make a channel."""
    return _form(request, None)


@never_cache
@require_http_methods(["GET", "POST"])
@requires(Capability.EDIT_POLICIES)
@transaction.atomic
def change(request: HttpRequest, channel_id: int) -> HttpResponse:
    """Change a channel."""
    return _form(request, _channel(request, channel_id))


@never_cache
@require_http_methods(["GET", "POST"])
@requires(Capability.EDIT_POLICIES)
@transaction.atomic
def delete(request: HttpRequest, channel_id: int) -> HttpResponse:
    """Ask, then delete a channel."""
    channel = _channel(request, channel_id)
    if request.method != "POST":
        waiting = channel.deliveries.waiting().count()
        context = {"channel": channel, "waiting": waiting}
        return render(request, "dashboard/channel_delete.html", context)
    actions.delete_channel(cast(User, request.user), channel)
    messages.success(request, f"Channel {channel.name} is deleted.")
    return redirect("channels")


@require_POST
@requires(Capability.EDIT_POLICIES)
def send_test(request: HttpRequest, channel_id: int) -> HttpResponse:
    """Queue a test message on a channel."""
    channel = get_object_or_404(NotificationChannel, pk=channel_id)
    try:
        actions.send_test(cast(User, request.user), channel, now=timezone.now())
    except actions.WrongState as error:
        messages.error(request, str(error))
    else:
        said = f"A test message is on its way to {channel.name}: what becomes of it is told below."
        messages.success(request, said)
    return redirect("channels")


def _channel(request: HttpRequest, channel_id: int) -> NotificationChannel:
    """Return a channel; one that is written is locked, since its secret belongs to its target."""
    rows = NotificationChannel.objects.all()
    found = rows.select_for_update() if request.method == "POST" else rows
    return get_object_or_404(found, pk=channel_id)


def _form(request: HttpRequest, channel: NotificationChannel | None) -> HttpResponse:
    title = "" if channel is None else channel.name
    form = ChannelForm(request.POST if request.method == "POST" else None, channel=channel)
    if request.method == "POST" and (saved := form.saved(cast(User, request.user))):
        messages.success(request, f"Channel {saved.name} is {'changed' if channel else 'made'}.")
        return redirect("channels")
    context = {"form": form, "channel": channel, "title": title, "kinds": _kinds()}
    status = 400 if form.is_bound else 200
    return render(request, "dashboard/channel_form.html", context, status=status)


def _kinds() -> list[tuple[str, str, str]]:
    return [(kind.label, *about) for kind, about in KINDS.items()]


def _panel(request: HttpRequest) -> tuple[str, str, dict[str, str], dict[str, Any]]:
    reader = visibility.of(request)
    every = NotificationChannel.objects.all()
    shown = exports.page_of(every, _PAGE_SIZE, request.GET.get("page"))
    params = {"page": str(shown.number)} if shown.number > 1 else {}
    context = {
        "total": shown.paginator.count,
        "shown": shown,
        "rows": channels.rows(shown, reader),
        "told": channels.last_told(reader, exports.most(_TOLD)),
        "failing": every.failing().count(),
        "off": every.filter(enabled=False).count(),
        "may_edit": cast(User, request.user).can(Capability.EDIT_POLICIES),
    }
    return _PANEL, reverse("live-channels"), params, context
