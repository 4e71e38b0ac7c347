"""Login, password and the page of one's own account."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import views as auth_views
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import SetPasswordForm
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import (
    require_GET,
    require_http_methods,
    require_POST,
    require_safe,
)

from accounts import actions, audit, logins, password_links
from accounts.addresses import client_address
from accounts.edge.parameters import BIGGEST_ID, whole_number
from accounts.forms import LoginForm, TokenForm
from accounts.models import ApiToken, Authenticator, User
from accounts.second_factor import actions as second_factor
from accounts.sessions import actions as sessions
from accounts.sessions import shown
from accounts.sessions.facts import Facts, Way
from accounts.sign_on import provider
from accounts.sign_on import views as sign_on_views

if TYPE_CHECKING:
    from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm


class Login(auth_views.LoginView):
    """The only way in for people. Tries are counted by axes, through the login signals."""

    redirect_authenticated_user = True
    authentication_form = LoginForm

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        user = form.get_user()
        if not isinstance(user, User):
            raise PermissionDenied
        return logins.first_factor_shown(self.request, user, Way.PASSWORD, self.get_success_url())

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(
            **kwargs,
            provider=settings.OIDC_NAME if provider.is_configured() else "",
            emergency_only=settings.LOCAL_LOGIN == "emergency",
        )


class Logout(auth_views.LogoutView):
    """Ends the session here, and leads to where that at the identity provider can be ended."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        signed_on = Facts.of(request.session).way == Way.SIGN_ON
        response = super().post(request, *args, **kwargs)
        further = sign_on_views.further_logout(request) if signed_on else None
        if further is None:
            return response
        context = {"further": further, "provider": settings.OIDC_NAME}
        return render(request, "registration/logged_out.html", context)


class ChangePassword(auth_views.PasswordChangeView):
    """Ends the user's other sessions, as Django does when the password's hash changes."""

    @transaction.atomic
    def form_valid(self, form: PasswordChangeForm) -> HttpResponse:
        response = super().form_valid(form)
        user = logins.user_of(self.request)
        audit.record(user, "password.change")
        sessions.end_all(user, user, but=self.request.session.session_key, why="password")
        return response


@sensitive_post_parameters()
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@transaction.atomic
def password_by_link(request: HttpRequest) -> HttpResponse:
    """Let whoever has a link of ``password_links`` set the password, once.

    The secret is a parameter and no part of the path: logs blot parameters of its name out.
    """
    user_id = whole_number(request.GET.get("user", ""), most=BIGGEST_ID)
    token = request.GET.get("token", "")
    is_sent = request.method == "POST"
    user = None if user_id is None else password_links.opened_by(user_id, token, lock=is_sent)
    if user is None:
        return render(request, "registration/link_over.html", status=404)
    form = SetPasswordForm(user, request.POST if is_sent else None)
    if not form.is_valid():
        context = {"form": form, "username": user.get_username()}
        status = 400 if is_sent else 200
        return render(request, "registration/password_by_link.html", context, status=status)
    password_links.set_password(
        user, form.cleaned_data["new_password1"], ip=client_address(request)
    )
    messages.success(request, "Your password is set. Log in with it.")
    return redirect("login")


@never_cache
@require_safe
def admin_login(request: HttpRequest) -> HttpResponse:
    """Stand in for the admin site's own login page, so that there is one place to log in."""
    if request.user.is_authenticated:
        raise PermissionDenied("Your role may not use the admin pages.")
    return redirect_to_login(request.GET.get("next") or "/admin/")


@login_required
@never_cache
@require_GET
def account(request: HttpRequest) -> HttpResponse:
    """Show one's name, capabilities and tokens."""
    return _account_page(request, TokenForm(logins.user_of(request)))


@login_required
@never_cache
@require_POST
@sensitive_variables("secret")
def create_token(request: HttpRequest) -> HttpResponse:
    """Make a token and show its secret, this once."""
    user = logins.user_of(request)
    form = TokenForm(user, request.POST)
    if not form.is_valid():
        return _account_page(request, form, status=400)
    token, secret = actions.create_token(
        user, user, form.cleaned_data["name"], expires_at=form.expires_at, scope=form.capabilities
    )
    return render(request, "accounts/token_created.html", {"token": token, "secret": secret})


@login_required
@require_POST
def revoke_token(request: HttpRequest, pk: int) -> HttpResponse:
    """Revoke one of one's own tokens; those of others are not found."""
    user = logins.user_of(request)
    token = get_object_or_404(ApiToken, pk=pk, user=user)
    if actions.revoke_token(user, token):
        messages.success(request, f"Token “{token.name}” is revoked.")
    return redirect("account")


@login_required
@require_POST
def end_session(request: HttpRequest, handle: str) -> HttpResponse:
    """End one of one's own sessions; those of others are not found."""
    user = logins.user_of(request)
    if not sessions.end(user, user, handle):
        raise Http404("There is no such session.")
    messages.success(request, "The session is ended.")
    return redirect("account")


@login_required
@require_POST
def end_other_sessions(request: HttpRequest) -> HttpResponse:
    """End all of one's own sessions but this one."""
    user = logins.user_of(request)
    sessions.end_all(user, user, but=request.session.session_key, why="others")
    messages.success(request, "All other sessions are ended.")
    return redirect("account")


def _account_page(request: HttpRequest, form: TokenForm, status: int = 200) -> HttpResponse:
    user = logins.user_of(request)
    context = {
        "form": form,
        "capabilities": sorted(capability.phrase for capability in user.capabilities),
        "tokens": user.api_tokens.order_by("revoked_at", "-created_at"),
        "sessions": shown.of(user, request.session.session_key),
        "facts": Facts.of(request.session),
        "authenticator": Authenticator.objects.filter(user=user).first(),
        "recovery_codes_left": user.recovery_codes.count(),
        "second_factor_required": second_factor.is_required(user),
        "identities": user.identities.order_by("pk"),
        "provider": settings.OIDC_NAME if provider.is_configured() else "",
        "may_link": sign_on_views.may_link(user),
    }
    return render(request, "accounts/account.html", context, status=status)
