"""The list of users, the page of one, and what those who manage users do there."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from accounts import actions, password_links
from accounts import users as accounts
from accounts.addresses import public_url
from accounts.decorators import requires
from accounts.models import ApiToken, User
from accounts.roles import CAPABILITIES, Capability, Role
from accounts.second_factor import actions as second_factor
from accounts.sessions import actions as sessions
from accounts.sessions import shown
from accounts.users import role_decided_by
from admission.jobs.models import Project
from dashboard import exports, users
from dashboard.user_forms import UserForm

__all__ = ["act", "add", "change", "deactivate", "detail", "make_link", "page", "revoke_token"]

_PAGE_SIZE = 50


@require_safe
@requires(Capability.MANAGE_USERS)
def page(request: HttpRequest) -> HttpResponse:
    """Everybody who has an account, with role, projects, sessions and tokens."""
    filters, now = users.read(request.GET.dict()), timezone.now()
    every = users.select(users.Filters(), now)
    found = exports.page_of(users.select(filters, now), _PAGE_SIZE, request.GET.get("page"))
    context = {
        "total": every.count(),
        "admins": every.filter(role=Role.ADMIN, is_active=True).count(),
        "deactivated": every.filter(is_active=False).count(),
        "lacking": every.filter(lacks=True).count(),
        "shown": found,
        "rows": users.rows(found),
        "filters": filters,
        "roles": Role.choices,
        "states": users.STATES,
        "projects": Project.objects.values_list("name", flat=True),
    }
    return render(request, "dashboard/users.html", context)


@never_cache
@require_safe
@requires(Capability.MANAGE_USERS)
def detail(request: HttpRequest, user_id: int) -> HttpResponse:
    """What one user may, has open and did, and what can be done about it."""
    account = get_object_or_404(users.select(users.Filters(), timezone.now()), pk=user_id)
    actor = cast(User, request.user)
    context = {
        "account": account,
        "row": users.Row.of(account),
        "is_own": account.pk == actor.pk,
        "may": sorted(each.phrase for each in CAPABILITIES[account.role]),
        "decides": role_decided_by(account),
        "submits_to": users.submits_to(account),
        "grants": users.grants(account),
        "sessions": shown.of(account, request.session.session_key),
        "tokens": account.api_tokens.order_by("revoked_at", "-created_at"),
        "entries": users.entries(account, exports.most(users.MOST_ENTRIES)),
        "entries_days": users.ENTRIES_DAYS,
        "why_no_link": password_links.why_not(account),
        "link_ends_at": password_links.ends_at(account),
    }
    return render(request, "dashboard/user.html", context)


@never_cache
@require_http_methods(["GET", "POST"])
@requires(Capability.MANAGE_USERS)
def add(request: HttpRequest) -> HttpResponse:
    """Make a user, and show the link by which that person sets a password."""
    form = _form(request, None)
    if request.method == "POST" and (made := form.saved()) is not None:
        if why := password_links.why_not(made):
            messages.success(request, f"User {made.username} is made, without a password: {why}.")
            return redirect("user", made.pk)
        return _link_page(request, made)
    return _form_page(request, form, None)


@never_cache
@require_http_methods(["GET", "POST"])
@requires(Capability.MANAGE_USERS)
def change(request: HttpRequest, user_id: int) -> HttpResponse:
    """Change role, projects or person of a user."""
    account = get_object_or_404(User, pk=user_id)
    form = _form(request, account)
    if request.method == "POST" and (saved := form.saved()) is not None:
        messages.success(request, f"User {saved.username} is changed.")
        return redirect("user", saved.pk)
    return _form_page(request, form, account)


@never_cache
@require_http_methods(["GET", "POST"])
@requires(Capability.MANAGE_USERS)
def deactivate(request: HttpRequest, user_id: int) -> HttpResponse:
    """Ask, then let a user do nothing any more."""
    account = get_object_or_404(User, pk=user_id)
    fault = ""
    if request.method == "POST":
        try:
            accounts.change(cast(User, request.user), account, is_active=False)
        except ValidationError as error:
            fault = " ".join(error.messages)
        else:
            messages.success(request, f"User {account.username} is deactivated.")
            return redirect("user", account.pk)
    context = {
        "account": account,
        "sessions": account.sessions.live(timezone.now()).count(),
        "tokens": account.api_tokens.usable().count(),
        "fault": fault,
    }
    status = 400 if fault else 200
    return render(request, "dashboard/user_deactivate.html", context, status=status)


@never_cache
@require_POST
@requires(Capability.MANAGE_USERS)
def make_link(request: HttpRequest, user_id: int) -> HttpResponse:
    """Make a link by which a user sets a password, and show it, this once."""
    account = get_object_or_404(User, pk=user_id)
    why = password_links.why_not(account)
    if account.pk == request.user.pk:
        why = "your own password you change on the page of your account"
    if why:
        messages.error(request, f"No link can be made: {why}.")
        return redirect("user", account.pk)
    return _link_page(request, account)


@require_POST
@requires(Capability.MANAGE_USERS)
def revoke_token(request: HttpRequest, user_id: int, token_id: int) -> HttpResponse:
    """Revoke an API token of a user; those of others are not found."""
    token = get_object_or_404(ApiToken.objects.select_related("user"), pk=token_id, user=user_id)
    if actions.revoke_token(cast(User, request.user), token):
        messages.success(request, f"Token “{token.name}” is revoked.")
    return redirect("user", user_id)


@require_POST
@requires(Capability.MANAGE_USERS)
def act(request: HttpRequest, user_id: int, verb: str) -> HttpResponse:
    """Do one of :data:`_VERBS` to a user."""
    if verb not in _VERBS:
        raise Http404
    account = get_object_or_404(User, pk=user_id)
    said = _VERBS[verb](cast(User, request.user), account)
    messages.success(request, f"{said}.")
    return redirect("user", account.pk)


def _activate(actor: User, account: User) -> str:
    accounts.change(actor, account, is_active=True)
    return f"User {account.username} is active"


def _end_sessions(actor: User, account: User) -> str:
    ended = sessions.end_all(actor, account, why="admin")
    return "All sessions are ended" if ended else "There was no session to end"


def _take_link_back(actor: User, account: User) -> str:
    taken = password_links.take_back(actor, account)
    return "The link opens nothing any more" if taken else "There was no link"


def _reset_second_factor(actor: User, account: User) -> str:
    if actor.pk == account.pk:
        return "Your own second factor you turn off on the page of your account"
    done = second_factor.reset(actor, account)
    return "The second factor is reset" if done else "There was no second factor"


_VERBS: dict[str, Callable[[User, User], str]] = {
    "activate": _activate,
    "end-sessions": _end_sessions,
    "take-link-back": _take_link_back,
    "reset-second-factor": _reset_second_factor,
}


def _form(request: HttpRequest, account: User | None) -> UserForm:
    data = request.POST if request.method == "POST" else None
    return UserForm(data, actor=cast(User, request.user), user=account)


def _form_page(request: HttpRequest, form: UserForm, account: User | None) -> HttpResponse:
    context = {
        "form": form,
        "account": account,
        "decides": role_decided_by(account) if account else "",
        "roles": [(role.label, _may(role)) for role in Role],
    }
    status = 400 if form.is_bound else 200
    return render(request, "dashboard/user_form.html", context, status=status)


def _may(role: str) -> str:
    return ", ".join(sorted(each.phrase for each in CAPABILITIES[role]))


@sensitive_variables("token", "link")
def _link_page(request: HttpRequest, account: User) -> HttpResponse:
    token = password_links.make(cast(User, request.user), account)
    query = urlencode({"user": account.pk, "token": token})
    link = public_url(request, f"{reverse('password_by_link')}?{query}")
    context = {"account": account, "link": link, "hours": settings.PASSWORD_RESET_TIMEOUT // 3600}
    return render(request, "dashboard/user_link.html", context)
