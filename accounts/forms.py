from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.forms import AuthenticationForm

from accounts.actions import TokenRefused, token_end
from accounts.edge import names
from accounts.models import User
from accounts.roles import Capability

_NAME_LENGTH = User._meta.get_field("username").max_length


class LoginForm(AuthenticationForm):
    """Name and password. A name longer than any user's is not looked up, nor counted."""

    def clean_username(self) -> str:
        """Refuse names that are longer than any."""
        username: str = self.cleaned_data["username"]
        if _NAME_LENGTH is not None and len(username) > _NAME_LENGTH:
            raise self.get_invalid_login_error()
        return username


class TokenForm(forms.Form):
    """A new API token of one's own. ``expires_at`` and ``capabilities`` are the chosen values."""

    name = forms.CharField(
        max_length=100,
        validators=[names.plain],
        help_text="What will use it, such as “nightly report”.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    days = forms.IntegerField(required=False, label="Ends after, days")
    scope = forms.MultipleChoiceField(
        required=False,
        label="For",
        help_text="Nothing chosen: all that you may. With “view fleet” alone, it only reads.",
        widget=forms.CheckboxSelectMultiple,
    )

    expires_at: datetime | None = None

    def __init__(self, user: User, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        endless = "; 0: never" if settings.API_TOKEN_MAY_BE_ENDLESS else ""
        self.fields[
            "days"
        ].help_text = (
            f"At most {settings.API_TOKEN_MAX_DAYS}{endless}. Empty: {settings.API_TOKEN_DAYS}."
        )
        held = sorted(user.capabilities, key=lambda each: each.phrase)
        scope = self.fields["scope"]
        if isinstance(scope, forms.MultipleChoiceField):
            scope.choices = [(each.value, each.phrase) for each in held]

    def clean_days(self) -> int | None:
        """Refuse a length that a token cannot have."""
        days: int | None = self.cleaned_data["days"]
        try:
            self.expires_at = token_end(days)
        except TokenRefused as error:
            raise forms.ValidationError(
                f"A token of this length cannot be made: {error}."
            ) from error
        return days

    @property
    def capabilities(self) -> frozenset[Capability] | None:
        chosen = self.cleaned_data["scope"]
        return frozenset(map(Capability, chosen)) if chosen else None


class CodeForm(forms.Form):
    """A code of the second factor."""

    code = forms.CharField(
        max_length=40,
        widget=forms.TextInput(
            attrs={"autocomplete": "one-time-code", "autocapitalize": "none", "spellcheck": "false"}
        ),
    )


class PasswordForm(forms.Form):
    """One's own password, before an action that needs proof of presence."""

    password = forms.CharField(
        max_length=4096,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )
