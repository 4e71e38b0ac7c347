"""To the identity provider, and back."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

import structlog
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core import signing
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST, require_safe

from accounts import logins
from accounts.addresses import public_url
from accounts.forms import PasswordForm
from accounts.models import Identity, User
from accounts.sessions.facts import Way
from accounts.sign_on import actions, people, provider
from accounts.sign_on.errors import (
    ProviderAwayError,
    SignOnError,
    StaleAttemptError,
    TokenRefusedError,
)
from accounts.sign_on.people import Person

log = structlog.get_logger(__name__)

_COOKIE = "sign_on"
_SALT = "accounts.sign_on.attempt"
_MAY_LINK = "may_link_until"
#: People may take this long at the provider.
_ATTEMPT_LASTS = timedelta(minutes=10)


@dataclass(frozen=True)
class _Attempt:
    """The sign-on in progress, signed by us and kept by the browser.

    In a cookie, so that nobody fills the table of sessions by beginning; and so that nobody can be
    signed on by an answer that somebody else began.
    """

    state: str
    nonce: str
    verifier: str
    next_url: str
    #: the user who links an identity; None for a login
    link_to: int | None

    @property
    def secrets(self) -> provider.Secrets:
        return provider.Secrets(self.state, self.nonce, self.verifier)


@never_cache
@require_safe
def begin(request: HttpRequest) -> HttpResponse:
    """Send the browser to the provider."""
    if not provider.is_configured():
        return redirect("login")
    link_to = _linking(request) if "link" in request.GET else None
    secrets = provider.Secrets.make()
    try:
        response = redirect(provider.ask(secrets, _back(request)))
    except SignOnError as error:
        return _failed(request, error)
    attempt = _Attempt(**asdict(secrets), next_url=_next(request), link_to=link_to)
    response.set_cookie(
        _COOKIE,
        signing.dumps(asdict(attempt), salt=_SALT),
        max_age=_ATTEMPT_LASTS,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
        path=reverse("sign_on_callback"),
    )
    return response


@never_cache
@require_safe
def callback(request: HttpRequest) -> HttpResponse:
    """Take the browser back: log its person in, or link them to the logged-in user."""
    if not provider.is_configured():
        return redirect("login")
    try:
        response = _finish(request)
    except SignOnError as error:
        response = _failed(request, error)
    response.delete_cookie(_COOKIE, path=reverse("sign_on_callback"))
    return response


@login_required
@never_cache
@sensitive_post_parameters("password")
@require_POST
def allow_link(request: HttpRequest) -> HttpResponse:
    """Ask for the password before an account is linked: a session alone is not enough."""
    user, form = logins.user_of(request), PasswordForm(request.POST)
    if not (may_link(user) and form.is_valid()):
        messages.error(request, "Type your password to link your account.")
        return redirect("account")
    if not logins.password_is_right(request, user, form.cleaned_data["password"]):
        messages.error(request, "That password is not right.")
        return redirect("account")
    request.session[_MAY_LINK] = (timezone.now() + _ATTEMPT_LASTS).isoformat()
    return render(request, "accounts/link.html", {"provider": settings.OIDC_NAME})


@login_required
@require_POST
def unlink(request: HttpRequest, pk: int) -> HttpResponse:
    """Have one of one's own identities open one's account no more, where a password still does."""
    user = logins.user_of(request)
    identity = get_object_or_404(Identity, pk=pk, user=user)
    if user.has_usable_password():
        actions.unlink(user, identity)
        messages.success(request, "The link is removed.")
    return redirect("account")


def may_link(user: User) -> bool:
    """Say whether ``user`` has a password to confirm a link by, and is no emergency account."""
    is_local = settings.LOCAL_LOGIN == "all" and user.has_usable_password()
    is_emergency = user.username in settings.EMERGENCY_USERS
    return provider.is_configured() and is_local and not is_emergency


def further_logout(request: HttpRequest) -> str | None:
    """Return the URL that ends the session at the provider, if it can be had now."""
    try:
        return provider.end_session_url(public_url(request, reverse("login")))
    except SignOnError:
        return None


def _finish(request: HttpRequest) -> HttpResponse:
    attempt = _attempt(request)
    person = _person(request, attempt)
    try:
        if attempt.link_to is not None:
            return _link(request, attempt, person)
        user = actions.sign_on(person)
    except SignOnError as error:
        actions.note_refusal(error, person.username)
        raise
    return logins.first_factor_shown(
        request, user, Way.SIGN_ON, attempt.next_url, provider_had_second=person.second_factor
    )


def _attempt(request: HttpRequest) -> _Attempt:
    """Return the sign-on that this browser began. Raises StaleAttemptError if it does not fit."""
    try:
        kept = signing.loads(request.COOKIES.get(_COOKIE, ""), salt=_SALT, max_age=_ATTEMPT_LASTS)
    except signing.BadSignature:
        raise StaleAttemptError from None
    attempt = _Attempt(**kept)
    if not constant_time_compare(request.GET.get("state", ""), attempt.state):
        raise StaleAttemptError
    return attempt


def _person(request: HttpRequest, attempt: _Attempt) -> Person:
    issuer, code = request.GET.get("iss"), request.GET.get("code")
    if issuer is not None and issuer.rstrip("/") != settings.OIDC_ISSUER:
        raise TokenRefusedError("bad_iss")
    if not code:
        raise SignOnError("not_let_in", "The identity provider did not let you in.")
    try:
        claims = provider.redeem(code, attempt.secrets, _back(request))
    except TokenRefusedError as error:
        actions.note_refusal(error)
        raise
    names = people.Claims(
        username=settings.OIDC_USERNAME_CLAIM,
        groups=settings.OIDC_GROUPS_CLAIM,
        trusted_amr=frozenset(settings.OIDC_TRUSTED_AMR),
    )
    return people.person(claims, names)


def _link(request: HttpRequest, attempt: _Attempt, person: Person) -> HttpResponse:
    if not request.user.is_authenticated or request.user.pk != attempt.link_to:
        raise StaleAttemptError
    actions.link(logins.user_of(request), person)
    messages.success(request, f"From now on you can log in by {settings.OIDC_NAME}.")
    return redirect("account")


def _linking(request: HttpRequest) -> int | None:
    """Return who may link an identity now; None lets the sign-on be a login."""
    until = request.session.pop(_MAY_LINK, None)
    if until is None or timezone.now() > datetime.fromisoformat(until):
        return None
    return request.user.pk


def _failed(request: HttpRequest, error: SignOnError) -> HttpResponse:
    detail = error.detail if isinstance(error, ProviderAwayError) else ""
    log.warning("sign_on.failed", code=error.code, detail=detail or None)
    context = {"error": error, "provider": settings.OIDC_NAME}
    return render(request, "registration/sign_on_failed.html", context, status=error.status)


def _next(request: HttpRequest) -> str:
    """Return where to go after the login: a page of ours, or the first one."""
    wanted = request.GET.get("next", "")
    is_ours = url_has_allowed_host_and_scheme(
        wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return wanted if is_ours else reverse(settings.LOGIN_REDIRECT_URL)


def _back(request: HttpRequest) -> str:
    return public_url(request, reverse("sign_on_callback"))
