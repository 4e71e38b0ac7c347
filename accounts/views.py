"""Login, password and the page of one's own account."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import messages
from django.contrib.auth import views as auth_views
from django.contrib.auth.decorators import login_required
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_GET, require_POST, require_safe

from accounts import actions, audit
from accounts.forms import TokenForm
from accounts.models import ApiToken, User

if TYPE_CHECKING:
    from django.contrib.auth.forms import PasswordChangeForm
    from django.contrib.auth.models import AnonymousUser


class Login(auth_views.LoginView):
    """The only way in for people. Tries are counted by axes, through the login signals."""

    redirect_authenticated_user = True


class ChangePassword(auth_views.PasswordChangeView):
    """Ends the user's other sessions, as Django does when the password's hash changes."""

    def form_valid(self, form: PasswordChangeForm) -> HttpResponse:
        response = super().form_valid(form)
        audit.record(_user(self.request), "password.change")
        return response


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
    """Show who one is, what one may do, and one's tokens."""
    return _account_page(request, TokenForm())


@login_required
@never_cache
@require_POST
@sensitive_variables("secret")
def create_token(request: HttpRequest) -> HttpResponse:
    """Make a token and show its secret, this once."""
    form = TokenForm(request.POST)
    if not form.is_valid():
        return _account_page(request, form, status=400)
    user = _user(request)
    token, secret = actions.create_token(user, user, form.cleaned_data["name"])
    return render(request, "accounts/token_created.html", {"token": token, "secret": secret})


@login_required
@require_POST
def revoke_token(request: HttpRequest, pk: int) -> HttpResponse:
    """Revoke one of one's own tokens; those of others are not found."""
    user = _user(request)
    token = get_object_or_404(ApiToken, pk=pk, user=user)
    if actions.revoke_token(user, token):
        messages.success(request, f"Token “{token.name}” is revoked.")
    return redirect("account")


def _account_page(request: HttpRequest, form: TokenForm, status: int = 200) -> HttpResponse:
    user = _user(request)
    context = {
        "form": form,
        "capabilities": sorted(capability.phrase for capability in user.capabilities),
        "tokens": user.api_tokens.order_by("revoked_at", "-created_at"),
    }
    return render(request, "accounts/account.html", context, status=status)


def _user(request: HttpRequest) -> User:
    user: User | AnonymousUser = request.user
    if not isinstance(user, User):
        raise PermissionDenied
    return user
