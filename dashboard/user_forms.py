"""The form by which admins make and change users."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import QueryDict

from accounts import users
from accounts.edge import names
from accounts.models import User
from accounts.roles import Capability, Role
from admission.jobs import projects
from admission.jobs.models import Project
from dashboard.serializer_forms import Choice, Lines, Switch, Typed

__all__ = ["UserForm"]

#: What an identity provider says of those who log in there, anew at each sign-on.
_FROM_PROVIDER = ("role", "first_name", "last_name", "email")


class UserForm(forms.Form):
    """A user: a new one, or what is to be changed of one. It has no password in it."""

    username = Typed(
        "Name",
        "Letters, digits and @ . + - _, at most 150. It is kept for good: jobs and the audit log"
        " go by it.",
    )
    first_name = Typed("First name", "May be empty.")
    last_name = Typed("Last name", "May be empty.")
    email = Typed("Email address", "May be empty; nothing is sent there.", mode="email")
    role = Choice("Role", [], "With another one all sessions of the user end.")
    is_active = Switch("Active", "Without it the user may do nothing; sessions end at once.")
    projects = Lines("Projects", "Names, one a line; empty: none.")

    def __init__(self, data: QueryDict | None, *, actor: User, user: User | None) -> None:
        super().__init__(data, initial=_held(user) if user else {"role": Role.VIEWER})
        self._actor, self._user = actor, user
        role = self.fields["role"]
        if isinstance(role, forms.ChoiceField):
            role.choices = [pair for pair in Role.choices if users.may_give(actor, pair[0])]
        away = ["is_active"] if user is None else ["username"]
        if user is not None and users.role_decided_by(user):
            away += _FROM_PROVIDER
        if not actor.can(Capability.EDIT_POLICIES):
            away.append("projects")
        if user is not None:
            self._say_given(user)
        for name in away:
            del self.fields[name]

    def _say_given(self, user: User) -> None:
        """Say which projects the user has by groups, and keeps whatever is typed."""
        rows = user.group_memberships.select_related("project").order_by("project__name")
        if given := ", ".join(each.project.name for each in rows):
            said = f" By groups of {settings.OIDC_NAME}, and not changed here: {given}."
            self.fields["projects"].help_text += said

    def clean_first_name(self) -> str:
        """Refuse odd characters."""
        return _plain(self.cleaned_data["first_name"])

    def clean_last_name(self) -> str:
        """Refuse odd characters."""
        return _plain(self.cleaned_data["last_name"])

    def clean_projects(self) -> list[Project]:
        """Return the projects; refuse names that there are none of."""
        given: list[str] = self.cleaned_data["projects"]
        found = {each.name: each for each in Project.objects.filter(name__in=given)}
        if missing := [name for name in given if name not in found]:
            raise ValidationError([f"There is no project {name[:60]}." for name in missing])
        return list(found.values())

    def saved(self) -> User | None:
        """Make or change the user; None where something is wrong, which its field then says."""
        if not self.is_valid():
            return None
        try:
            return self._written()
        except ValidationError as error:
            self.add_error(None, error)
            return None

    @transaction.atomic
    def _written(self) -> User:
        changed = set(self.fields if self._user is None else self.changed_data)
        given = {name: self.cleaned_data[name] for name in changed - {"projects"}}
        if self._user is None:
            user = users.create(self._actor, **given)
        else:
            user = users.change(self._actor, self._user, **given)
        if "projects" in changed:
            projects.set_memberships(self._actor, user, self.cleaned_data["projects"])
        return user


def _held(user: User) -> dict[str, Any]:
    held = ("first_name", "last_name", "email", "role", "is_active")
    by_groups = user.group_memberships.values("project_id")
    by_hand = user.projects.exclude(pk__in=by_groups).order_by("name")
    of_row: dict[str, Any] = {name: getattr(user, name) for name in held}
    return {**of_row, "projects": list(by_hand.values_list("name", flat=True))}


def _plain(text: str) -> str:
    names.plain(text)
    return text
