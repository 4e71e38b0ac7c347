"""Bringing an account in line with the claims of the identity provider about its owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts import actions, audit
from accounts.models import User
from accounts.roles import Role
from accounts.sessions import actions as sessions
from accounts.sign_on.errors import SignOnError
from accounts.sign_on.models import GroupRole, Identity
from accounts.sign_on.people import Person, role_of
from accounts.sign_on.signals import groups_known

if TYPE_CHECKING:
    from django.db.models import QuerySet

ANONYMOUS = "anonymous"


def sign_on(person: Person) -> User:
    """Return the account of ``person`` with the role of today, made where there is none yet.

    It is found by issuer and subject alone. Raises :class:`SignOnError` where nobody is to get in,
    with what the groups gave before taken back.
    """
    try:
        return _signed_on(person)
    except IntegrityError:
        # Their first sign-on, in two windows at once: by now the other one has made the account.
        return _signed_on(person)


def link(user: User, person: Person) -> None:
    """Link ``person`` of the provider to ``user``, who asked for it with the password."""
    if user.username in settings.EMERGENCY_USERS:
        raise SignOnError("emergency_account", "An account for emergencies stays a local one.")
    with transaction.atomic():
        identity, made = Identity.objects.get_or_create(
            issuer=person.issuer, subject=person.subject, defaults={"user": user}
        )
        if identity.user_id != user.pk:
            raise SignOnError("linked_already", "That sign-on belongs to another account.")
        if made:
            told = audit.changes(None, audit.state(identity))
            audit.record(user, "identity.link", user.username, subject=person.subject, **told)


@transaction.atomic
def unlink(actor: User | str, identity: Identity) -> None:
    """Remove an identity: it opens its account no more."""
    told = audit.changes(audit.state(identity), None)
    audit.record(actor, "identity.unlink", identity.user.username, subject=identity.subject, **told)
    identity.delete()


def note_refusal(error: SignOnError, target: str = "") -> None:
    """Write down that somebody was not let in. Not called for refusals that anybody can cause."""
    audit.record(ANONYMOUS, "sign_on.refused", target, reason=error.code)


def _signed_on(person: Person) -> User:
    role = role_of(person.groups, dict(GroupRole.objects.values_list("group", "role")), _default())
    with transaction.atomic():
        identity = _identities(person).select_for_update().first()
        user = identity.user if identity else None
        if user is not None and not user.is_active:
            raise SignOnError("inactive", "Your account here is not active.")
        if role is not None:
            user = user or _made(person, role)
            _bring_up_to_date(user, person, role)
            _identities(person).update(last_used_at=timezone.now())
            return user
        if user is not None:
            _shut_out(user)
    raise SignOnError(
        "no_role", "None of your groups has a role here. Ask your admin for one, then try again."
    )


def _identities(person: Person) -> QuerySet[Identity]:
    found = Identity.objects.filter(issuer=person.issuer, subject=person.subject)
    return found.select_related("user")


def _default() -> Role | None:
    return None if settings.OIDC_DEFAULT_ROLE == "none" else Role(settings.OIDC_DEFAULT_ROLE)


def _made(person: Person, role: Role) -> User:
    """Make the account of somebody who is here for the first time; a name that is taken is not."""
    user = User(username=person.username, role=role)
    user.set_unusable_password()
    try:
        user.clean_fields(exclude=["password"])
    except ValidationError:
        raise SignOnError(
            "bad_name", f"Your {settings.OIDC_USERNAME_CLAIM} cannot be a user name here."
        ) from None
    if User.objects.filter(username__iexact=user.username).exists():
        raise SignOnError(
            "name_taken",
            f"There is another account named {user.username} here. If it is yours, log in with its "
            "password and link it on your account page. Else ask your admin.",
        )
    user.save()
    Identity.objects.create(user=user, issuer=person.issuer, subject=person.subject)
    told = audit.changes(None, audit.state(user))
    of_person = {"role": role, "subject": person.subject}
    audit.record(audit.SYSTEM, "user.create", user.username, **of_person, **told)
    return user


def _bring_up_to_date(user: User, person: Person, role: Role) -> None:
    user.first_name, user.last_name, user.email = person.first_name, person.last_name, person.email
    user.save(update_fields=["first_name", "last_name", "email"])
    _set_role(user, role)
    groups_known.send(User, user=user, groups=person.groups)


def _set_role(user: User, role: Role) -> None:
    """Give ``user`` a role; sessions with another one end."""
    if user.role == role:
        return
    told = audit.changes({"role": user.role}, {"role": role})
    audit.record(audit.SYSTEM, "user.change", user.username, role=role, **told)
    user.role = role
    user.save(update_fields=["role"])
    sessions.end_all(audit.SYSTEM, user, why="role")


def _shut_out(user: User) -> None:
    """Take all roles and projects by groups from somebody who is in none of them any more."""
    _set_role(user, Role.VIEWER)
    groups_known.send(User, user=user, groups=frozenset[str]())
    sessions.end_all(audit.SYSTEM, user, why="no_role")
    for token in user.api_tokens.usable():
        actions.revoke_token(audit.SYSTEM, token)
