from __future__ import annotations

from django import forms


class TokenForm(forms.Form):
    """A new API token of one's own."""

    name = forms.CharField(
        max_length=100,
        help_text="What will use it, such as “nightly report”.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
