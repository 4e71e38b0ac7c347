from __future__ import annotations

from django import forms
from django.contrib.auth.forms import AuthenticationForm

from accounts.models import User

_NAME_LENGTH = User._meta.get_field("username").max_length


class LoginForm(AuthenticationForm):
    """Name and password. A name that nobody can have is not looked up, nor counted."""

    def clean_username(self) -> str:
        """Refuse names that are longer than any."""
        username: str = self.cleaned_data["username"]
        if _NAME_LENGTH is not None and len(username) > _NAME_LENGTH:
            raise self.get_invalid_login_error()
        return username


class TokenForm(forms.Form):
    """A new API token of one's own."""

    name = forms.CharField(
        max_length=100,
        help_text="What will use it, such as “nightly report”.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )


class CodeForm(forms.Form):
    """A code of the second factor."""

    code = forms.CharField(
        max_length=40,
        widget=forms.TextInput(
            attrs={"autocomplete": "one-time-code", "autocapitalize": "none", "spellcheck": "false"}
        ),
    )


class PasswordForm(forms.Form):
    """One's own password, before something that must not happen behind one's back."""

    password = forms.CharField(
        max_length=4096,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )
