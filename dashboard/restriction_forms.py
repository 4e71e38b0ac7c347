"""Forms by which people restrict, and decide on restrictions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django import forms

from accounts.edge.parameters import MomentFormField
from dashboard.restrictions import sentence
from policies.restrictions.kinds import KINDS, LONGEST, BadRestriction, RestrictionKind, Wanted
from policies.scopes import MOST_NAME, Scope, ScopeKind

#: For how long, in words. An end has to be chosen: nothing is without one.
_UNTIL = "until"
_SPANS = [
    ("900", "15 min"),
    ("3600", "1 h"),
    ("14400", "4 h"),
    ("28800", "8 h"),
    ("86400", "24 h"),
    ("604800", "7 d"),
]
#: Fields of the form by those of BadRestriction.
_FIELDS = {
    "scope.kind": "scope_kind",
    "scope.name": "scope",
    "expires_at": "lasts",
    "starts_at": "starts_at",
    "value": "value",
    "reason": "reason",
    "cause": "reason",
}


def _reason(**more: Any) -> forms.CharField:
    return forms.CharField(
        max_length=500,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
        help_text="Others read this, now and in the audit log.",
        **more,
    )


class _Ends(forms.Form):
    """An end: after a span, or at a moment."""

    lasts = forms.ChoiceField(
        label="Ends", choices=[("", "choose …"), *_SPANS, (_UNTIL, "at the time below")]
    )
    until = MomentFormField(
        label="At, UTC",
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        help_text=f"At most {LONGEST.days} days from now.",
    )

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if given.get("lasts") == _UNTIL and not given.get("until") and "until" not in self.errors:
            self.add_error("until", "Give the time at which it ends, or choose a span.")
        return given

    def expires_at(self, now: datetime) -> datetime:
        """Return the end that was given."""
        lasts = self.cleaned_data["lasts"]
        if lasts == _UNTIL:
            until: datetime = self.cleaned_data["until"]
            return until.astimezone(UTC)
        return now + timedelta(seconds=int(lasts))

    def refuse(self, exc: BadRestriction) -> None:
        """Show the fault beside its field."""
        name = _FIELDS.get(exc.field, "")
        hint = f" {sentence(exc.hint)}" if exc.hint else ""
        self.add_error(name if name in self.fields else None, sentence(str(exc)) + hint)


class IssueForm(_Ends):
    """A restriction by hand."""

    kind = forms.ChoiceField(
        choices=[("", "choose …"), *((k.value, f"{k}: {KINDS[k].help}") for k in KINDS)]
    )
    scope_kind = forms.ChoiceField(
        label="On a",
        choices=[("", "choose …"), *((k.value, k.replace("_", " ")) for k in ScopeKind)],
    )
    scope = forms.CharField(
        label="Called",
        max_length=MOST_NAME,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
        help_text="oslo/A01 for racks, zones, power domains and storage; node/index for GPUs.",
    )
    value = forms.FloatField(
        required=False,
        help_text="For kinds that take one: W, MHz, jobs, or a share from 0 to 1.",
        widget=forms.NumberInput(attrs={"step": "any"}),
    )
    starts_at = MomentFormField(
        label="To be met from, UTC",
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        help_text="Only for power_budget_w; left out: at once.",
    )
    reason = _reason()

    field_order = (
        "kind", "scope_kind", "scope", "value", "starts_at", "lasts", "until", "reason"
    )  # fmt: skip

    def wanted(self, owner: str, now: datetime) -> Wanted:
        """Return the restriction that was filled in. The form has to be valid."""
        given = self.cleaned_data
        return Wanted(
            kind=RestrictionKind(given["kind"]),
            scope=Scope(ScopeKind(given["scope_kind"]), given["scope"]),
            value=given["value"],
            reason=given["reason"],
            owner=owner,
            # A person may want the same thing for two reasons, and each of them ends by itself.
            cause=given["reason"][:300],
            expires_at=self.expires_at(given["starts_at"] or now),
            starts_at=given["starts_at"],
        )


class _Seen(forms.Form):
    """Carries which version of a restriction the person has seen."""

    version = forms.IntegerField(min_value=0, widget=forms.HiddenInput)


class ApproveForm(_Seen):
    """An approval."""


class ReasonForm(_Seen):
    """Why it is lifted or refused."""

    reason = _reason()


class ExtendForm(_Ends):
    """A later end."""


class BreakerForm(forms.Form):
    """Why the breaker is thrown."""

    reason = _reason()
