"""The form by which people make and change notification channels, checked as by the API."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.http import QueryDict
from django.utils.html import format_html

from dashboard.serializer_forms import Choice, Lines, SerializerForm, Switch, Typed
from policies.firings import Severity
from policies.incidents.api.channels import ChannelSerializer
from policies.incidents.channels import shown
from policies.incidents.models import NotificationChannel

__all__ = ["HEARS", "KINDS", "ChannelForm"]

_Kind = NotificationChannel.Kind
#: Of each kind, what its address and its secret are.
KINDS = {
    _Kind.EMAIL: ("addresses with commas between, at most 50", "none"),
    _Kind.WEBHOOK: ("a URL", "key of signatures; may be empty"),
    _Kind.SLACK: ("URL of an incoming webhook", "none"),
    _Kind.PAGERDUTY: ("empty: PagerDuty's own", "routing key of an Events API v2 integration"),
    _Kind.ALERTMANAGER: ("URL of an Alertmanager", "bearer token; may be empty"),
}
#: By the least severity: which incidents a channel hears of.
HEARS = {
    Severity.INFO: "all severities",
    Severity.WARNING: "warning and critical",
    Severity.CRITICAL: "critical alone",
}


class ChannelForm(SerializerForm):
    """A channel: a new one, or what is to be changed of one. Shows no secret, and no URL whole."""

    serializer = ChannelSerializer
    empty: ClassVar = {"name": "", "target": "", "secret": "", "matchers": []}

    name = Typed("Name", "Rules and playbooks call it so. At most 100 characters.")
    kind = Choice("Kind", [(each.value, each.label) for each in KINDS])
    target = Typed("Address", "What it is depends on the kind.")
    secret = forms.CharField(
        label="Secret",
        required=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password", "spellcheck": "false"}),
        help_text="What it is depends on the kind. It is never shown again.",
    )
    forget_secret = forms.BooleanField(
        label="Take the secret away",
        required=False,
        help_text="It is sent without one from then on.",
    )
    min_severity = Choice("Hears of", [(each.value, words) for each, words in HEARS.items()])
    matchers = Lines(
        "And only where",
        format_html(
            "Matchers, one a line, such as {}; all of them have to match. Empty: everything.",
            'site="oslo"',
        ),
    )
    send_resolved = Switch("Hears of the end", "And not only that something began.")
    enabled = Switch("Switched on", "While it is off nothing is queued for it.")

    def __init__(self, data: QueryDict | None, *, channel: NotificationChannel | None) -> None:
        super().__init__(data, initial=_held(channel))
        self.row = channel
        if channel is None or not channel.secret:
            del self.fields["forget_secret"]
        if channel is not None:
            self._say_kept(channel)

    def _say_kept(self, channel: NotificationChannel) -> None:
        """Say beside what is not shown what stays where nothing is typed."""
        if _is_kept(channel):
            self.fields["target"].help_text = format_html(
                "It goes to {}. The rest is not shown, as it is often a key. Empty: it stays.",
                shown(channel.target),
            )
        if channel.secret:
            self.fields["secret"].help_text = (
                "There is one, and it is not shown. Empty: it stays. With another address or kind"
                " it has to be given again."
            )

    def clean(self) -> dict[str, Any]:
        """Refuse a secret that is to be taken away and given."""
        given = super().clean() or {}
        if given.get("forget_secret") and given.get("secret"):
            self.add_error(
                "forget_secret", "Give a new secret, or take the old one away: not both."
            )
        return given

    def body(self) -> dict[str, Any]:
        """Return what was given; a secret that is taken away is sent as none."""
        body = super().body()
        return {**body, "secret": ""} if body.pop("forget_secret", False) else body


def _held(channel: NotificationChannel | None) -> dict[str, Any]:
    if channel is None:
        return {"min_severity": Severity.WARNING.value, "send_resolved": True, "enabled": True}
    names = ("name", "kind", "target", "min_severity", "matchers", "send_resolved", "enabled")
    held = {name: getattr(channel, name) for name in names}
    return {**held, "target": ""} if _is_kept(channel) else held


def _is_kept(channel: NotificationChannel) -> bool:
    """Say whether the address cannot be shown whole, so that an empty field leaves it."""
    return shown(channel.target) != channel.target
