"""From the claims of an ID token to a person and a role. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from accounts.roles import Role
from accounts.sign_on.tokens import texts


@dataclass(frozen=True)
class Person:
    """A person by the provider's claims."""

    issuer: str
    subject: str
    username: str
    first_name: str
    last_name: str
    email: str
    groups: frozenset[str]
    #: whether the provider says that it asked for a second factor
    second_factor: bool


@dataclass(frozen=True)
class Claims:
    """Which claims are read, and which values of ``amr`` are a second factor."""

    username: str
    groups: str
    trusted_amr: frozenset[str]


def person(claims: Mapping[str, Any], names: Claims) -> Person:
    """Return the person whom verified ``claims`` are about."""
    return Person(
        issuer=claims["iss"].rstrip("/"),
        subject=claims["sub"],
        username=_line(claims, names.username, 500),
        first_name=_line(claims, "given_name", 150),
        last_name=_line(claims, "family_name", 150),
        email=_line(claims, "email", 254) if claims.get("email_verified") is True else "",
        groups=texts(claims, names.groups),
        second_factor=bool(texts(claims, "amr") & names.trusted_amr),
    )


def role_of(groups: frozenset[str], roles: Mapping[str, str], default: Role | None) -> Role | None:
    """Return the highest role of ``groups``, in the order of :class:`Role`, else ``default``."""
    held = {roles[group] for group in groups & roles.keys()}
    ranked = [role for role in Role if role.value in held]
    return ranked[-1] if ranked else default


def _line(claims: Mapping[str, Any], name: str, length: int) -> str:
    """Return a claim that is one line of text within bounds, else nothing."""
    value = claims.get(name)
    fits = isinstance(value, str) and value.isprintable() and len(value) <= length
    return str(value) if fits else ""
