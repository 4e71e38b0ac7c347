"""Pages of the second factor: at login, and on one's own account."""

from __future__ import annotations

import segno
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_http_methods, require_POST

from accounts import logins
from accounts.forms import CodeForm
from accounts.models import User
from accounts.second_factor import actions, codes, secret
from accounts.second_factor.actions import Verdict
from accounts.sessions import actions as sessions
from accounts.sessions.facts import Facts

_NEW_SECRET = "new_authenticator"  # noqa: S105 - where it lies, not what it is

_SAID = {
    Verdict.WRONG: "That code is not right, or was used before. Wait for the next one.",
    Verdict.LOCKED: "There were too many wrong codes. Use a recovery code, or wait.",
}


@never_cache
@sensitive_post_parameters("code")
@require_http_methods(["GET", "POST"])
def code(request: HttpRequest) -> HttpResponse:
    """Ask for the code that a login waits for."""
    user = logins.half_logged_in(request)
    if user is None:
        return redirect("login")
    form = CodeForm(request.POST or None)
    if not form.is_valid():
        return render(request, "registration/code.html", {"form": form})
    verdict = actions.check(user, form.cleaned_data["code"], timezone.now())
    if verdict is Verdict.RIGHT:
        return logins.second_factor_shown(request, user)
    form.add_error("code", _SAID[verdict])
    status = 429 if verdict is Verdict.LOCKED else 200
    return render(request, "registration/code.html", {"form": form}, status=status)


@never_cache
@sensitive_post_parameters("code")
@require_http_methods(["GET", "POST"])
def enroll_at_login(request: HttpRequest) -> HttpResponse:
    """Have a user whose role requires a second factor set one up before the login."""
    user = logins.half_logged_in(request)
    if user is None or actions.is_on(user):
        return redirect("login")
    shown = _turned_on(request, user)
    if shown is None:
        return _enroll_page(request, user, required=True)
    entered = logins.second_factor_shown(request, user)
    page = _codes_page(request, shown, entered["Location"])
    page.cookies = entered.cookies
    return page


@login_required
@never_cache
@sensitive_post_parameters("code")
@require_http_methods(["GET", "POST"])
def enroll(request: HttpRequest) -> HttpResponse:
    """Set a second factor up, of one's own will. Other sessions, which have not shown it, end."""
    user = logins.user_of(request)
    if actions.is_on(user):
        return redirect("account")
    shown = _turned_on(request, user)
    if shown is None:
        return _enroll_page(request, user, required=False)
    Facts.of(request.session).with_second_factor().write(request.session)
    sessions.end_all(user, user, but=request.session.session_key, why="second_factor")
    return _codes_page(request, shown, "")


@login_required
@never_cache
@sensitive_post_parameters("code")
@require_POST
def change(request: HttpRequest) -> HttpResponse:
    """Turn the second factor off, or make new recovery codes; a code of it has to be shown."""
    user, form = logins.user_of(request), CodeForm(request.POST)
    turn_off = request.POST.get("do") == "off"
    if turn_off and actions.is_required(user):
        messages.error(request, "Your role needs a second factor.")
        return redirect("account")
    typed = form.cleaned_data["code"] if form.is_valid() else ""
    verdict = actions.check(user, typed, timezone.now())
    if verdict is not Verdict.RIGHT:
        messages.error(request, _SAID[verdict])
        return redirect("account")
    if not turn_off:
        return _codes_page(request, actions.renew_recovery_codes(user), "")
    actions.turn_off(user, user)
    messages.success(request, "Your second factor is off.")
    return redirect("account")


def _turned_on(request: HttpRequest, user: User) -> list[str] | None:
    """Return recovery codes if this is a post with the right code, else None."""
    form = CodeForm(request.POST)
    kept = request.session.get(_NEW_SECRET)
    if request.method != "POST" or not form.is_valid() or kept is None:
        return None
    new = secret.opened(kept.encode())
    shown = actions.turn_on(user, new, form.cleaned_data["code"], timezone.now())
    if shown is not None:
        del request.session[_NEW_SECRET]
    return shown


@sensitive_variables("new", "uri")
def _enroll_page(request: HttpRequest, user: User, *, required: bool) -> HttpResponse:
    """Show the secret, the same until it is proven: a reload must not change the app's one."""
    kept = request.session.get(_NEW_SECRET)
    new = secret.opened(kept.encode()) if kept else secret.make()
    request.session[_NEW_SECRET] = kept or secret.sealed(new).decode()
    form = CodeForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        form.add_error("code", "That code is not right. Does the clock of the phone go right?")
    uri = codes.enrollment_uri(new, user.username)
    context = {
        "form": form,
        "required": required,
        "secret": new,
        "image": segno.make(uri, error="m").svg_data_uri(scale=5, border=3, light="#fff"),
    }
    return render(request, "accounts/enroll.html", context)


def _codes_page(request: HttpRequest, shown: list[str], next_url: str) -> HttpResponse:
    context = {"codes": shown, "next_url": next_url}
    return render(request, "accounts/recovery_codes.html", context)
