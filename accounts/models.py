"""Users with roles, their API tokens, and the audit log with its chain."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from functools import cache
from typing import Any, ClassVar

from django.contrib.auth.models import AbstractUser, UserManager
from django.contrib.postgres.fields import ArrayField
from django.db import connection, models, transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.crypto import salted_hmac

from accounts import audit, tokens
from accounts.audit_models import AuditEntry, AuditLink, AuditShipment
from accounts.roles import CAPABILITIES, Capability, Role
from accounts.saved_views.models import SavedView
from accounts.second_factor.models import Authenticator, RecoveryCode
from accounts.sessions.models import Session
from accounts.sign_on.models import GroupRole, Identity

__all__ = [
    "ApiToken",
    "AuditEntry",
    "AuditLink",
    "AuditShipment",
    "Authenticator",
    "GroupRole",
    "Identity",
    "RecoveryCode",
    "SavedView",
    "Session",
    "User",
]


class RoleUserManager(UserManager["User"]):
    use_in_migrations = False

    def create_superuser(
        self,
        username: str,
        email: str | None = None,
        password: str | None = None,
        **extra_fields: Any,
    ) -> User:
        """Create an admin, which is a superuser here (``manage.py createsuperuser``)."""
        return self.create_user(username, email, password, **{**extra_fields, "role": Role.ADMIN})


class User(AbstractUser):
    """A person, or a program that acts for one."""

    role = models.CharField(max_length=16, choices=Role.choices, default=Role.VIEWER)
    #: when the link was made by which a password can be set; None: there is none
    link_made_at = models.DateTimeField(null=True, editable=False)

    objects: ClassVar[RoleUserManager] = RoleUserManager()

    #: What the token that somebody came with is for. None: no token, or one for everything.
    scope: frozenset[Capability] | None = None

    def can(self, capability: Capability) -> bool:
        """Say whether the user's role, and the scope, hold ``capability``.

        An inactive user may do nothing.
        """
        return capability in self.capabilities

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The capabilities of the user, within the scope of the token that was used, if any."""
        held = CAPABILITIES[self.role] if self.is_active else frozenset()
        return held if self.scope is None else held & self.scope

    def _get_session_auth_hash(self, secret: str | None = None) -> str:
        """Return the hash that sessions are compared with: a new password or role ends them all."""
        salt = "accounts.models.User.get_session_auth_hash"
        value = f"{self.role} {self.password}"
        return salted_hmac(salt, value, secret=secret, algorithm="sha256").hexdigest()

    def why_not(self, capability: Capability) -> str:
        """Return the sentence that refuses somebody a capability."""
        if self.scope is not None and capability in CAPABILITIES[self.role]:
            return f"This token may not {capability.phrase}: it is for less than its user may."
        return f"The role {self.role} may not {capability.phrase}."

    @transaction.atomic
    def save(self, *args: Any, **kwargs: Any) -> None:
        # Django's admin asks for these two flags; the role alone decides them.
        self.is_staff = self.role in (Role.OPERATOR, Role.ADMIN)
        self.is_superuser = self.role == Role.ADMIN
        # Not where the hash alone is new, after a login under better parameters.
        is_new_password = self.pk is not None and getattr(self, "_password", None) is not None
        derived = {"is_staff", "is_superuser"}
        if is_new_password or not self.is_active:
            self.link_made_at = None
            derived.add("link_made_at")
        if kwargs.get("update_fields") is not None:
            kwargs["update_fields"] = {*kwargs["update_fields"], *derived}
        super().save(*args, **kwargs)
        if is_new_password:
            self.end_tokens("the password was changed")

    def end_tokens(self, why: str) -> int:
        """Revoke all usable tokens of the user; return how many these were."""
        ended = list(self.api_tokens.usable().select_for_update(of=("self",)).order_by("pk"))
        self.api_tokens.filter(pk__in=[each.pk for each in ended]).update(revoked_at=timezone.now())
        for each in ended:
            audit.record(audit.SYSTEM, "token.revoke", self.username, **each.named, why=why)
        return len(ended)


class ApiTokenQuerySet(models.QuerySet["ApiToken"]):
    def usable(self) -> ApiTokenQuerySet:
        """Tokens that are neither revoked nor expired, of active users."""
        is_live = Q(expires_at__isnull=True) | Q(expires_at__gt=timezone.now())
        return self.filter(is_live, revoked_at__isnull=True, user__is_active=True)

    def with_secret(self, secret: str) -> ApiTokenQuerySet:
        """The token with this secret, if there is one."""
        return self.filter(digest=tokens.digest(secret))


class ApiToken(models.Model):
    """A token of a user for the REST API. It has its user's capabilities, or fewer."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    digest = models.BinaryField(max_length=32, unique=True, editable=False)
    hint = models.CharField(max_length=12, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True, help_text="Empty: never")
    scope = ArrayField(
        models.CharField(max_length=32),
        null=True,
        blank=True,
        help_text="Capabilities; empty: all of its user's",
    )
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_used_from = models.GenericIPAddressField(null=True, blank=True, editable=False)

    objects = ApiTokenQuerySet.as_manager()

    class Meta:
        verbose_name = "API token"

    def __str__(self) -> str:
        return f"{self.name} ({self.hint}…)"

    @property
    def named(self) -> dict[str, str]:
        """Its name and hint, for the audit log."""
        return {"name": self.name, "hint": self.hint}

    @property
    def state(self) -> str:
        """``usable``, ``expired`` or ``revoked``; capabilities of its user are another matter."""
        if self.revoked_at is not None:
            return "revoked"
        is_over = self.expires_at is not None and self.expires_at <= timezone.now()
        return "expired" if is_over else "usable"

    @property
    def capabilities(self) -> frozenset[Capability] | None:
        """Its capabilities; None: all that its user has. Those no longer known are left out."""
        known = {each.value: each for each in Capability}
        return None if self.scope is None else frozenset(known[n] for n in self.scope if n in known)

    @property
    def phrases(self) -> list[str]:
        """Its capabilities in words; empty: all that its user has."""
        return sorted(each.phrase for each in self.capabilities or ())

    @classmethod
    def issue(
        cls,
        user: User,
        name: str,
        *,
        expires_at: datetime | None = None,
        scope: Collection[Capability] | None = None,
    ) -> tuple[ApiToken, str]:
        """Create a token and return it with its secret, which cannot be had again."""
        secret = tokens.generate(tokens.USER_PREFIX)
        token = cls.objects.create(
            user=user,
            name=name,
            digest=tokens.digest(secret),
            hint=tokens.hint(secret),
            expires_at=expires_at,
            scope=None if scope is None else sorted(each.value for each in scope),
        )
        return token, secret

    def note_use(self, address: str | None) -> None:
        """Store when and from where it was used, at most once a minute.

        Requests at the same moment do not wait for each other: one of them writes.
        """
        now = timezone.now()
        if self.last_used_at is not None and now - self.last_used_at < _USE_NOTED_EVERY:
            return
        with connection.cursor() as cursor:
            cursor.execute(_NOTE_USE, [now, address, self.pk])

    @classmethod
    def opened_by(cls, secret: str) -> ApiToken | None:
        """Return the usable token with this secret, with its user. One query."""
        return cls.opened_by_any([secret]).get(secret)

    @classmethod
    def opened_by_any(cls, secrets: Iterable[str]) -> dict[str, ApiToken]:
        """Return the usable tokens by their secrets, with their users. One query.

        It is asked with each request; to have the ORM put it together costs more than its answer.
        """
        digests = {tokens.digest(secret): secret for secret in secrets}
        with connection.cursor() as cursor:
            cursor.execute(_opened_by(), [list(digests)])
            rows = cursor.fetchall()
        found = (cls._with_user(row) for row in rows)
        return {digests[bytes(token.digest)]: token for token in found}

    @classmethod
    def _with_user(cls, row: tuple[Any, ...]) -> ApiToken:
        names = _columns(cls)
        token = cls.from_db(connection.alias, names, row[: len(names)])
        token.user = User.from_db(connection.alias, _columns(User), row[len(names) :])
        token.user.scope = token.capabilities
        return token


_OPENED_BY = """
SELECT {of_token}, {of_user}
FROM accounts_apitoken AS token JOIN accounts_user AS owner ON owner.id = token.user_id
WHERE token.digest = ANY(%s) AND token.revoked_at IS NULL AND owner.is_active
    AND (token.expires_at IS NULL OR token.expires_at > now())
"""

_USE_NOTED_EVERY = timedelta(minutes=1)
_NOTE_USE = """
UPDATE accounts_apitoken SET last_used_at = %s, last_used_from = %s
WHERE id = (SELECT id FROM accounts_apitoken WHERE id = %s FOR UPDATE SKIP LOCKED)
"""


@cache
def _opened_by() -> str:
    return _OPENED_BY.format(
        of_token=", ".join(f'token."{name}"' for name in _columns(ApiToken)),
        of_user=", ".join(f'owner."{name}"' for name in _columns(User)),
    )


@cache
def _columns(model: type[models.Model]) -> list[str]:
    """Return the columns of a model, which here are named as its fields are."""
    return [field.attname for field in model._meta.concrete_fields]
