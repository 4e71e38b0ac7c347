"""Users with roles, their API tokens, and the audit log with its chain."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

from django.contrib.auth.models import AbstractUser, UserManager
from django.db import connection, models
from django.utils.crypto import salted_hmac

from accounts import tokens
from accounts.roles import CAPABILITIES, Capability, Role
from accounts.second_factor.models import Authenticator, RecoveryCode
from accounts.sessions.models import Session
from accounts.sign_on.models import GroupRole, Identity

__all__ = [
    "ApiToken",
    "AuditEntry",
    "Authenticator",
    "GroupRole",
    "Identity",
    "RecoveryCode",
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
        """Create an admin: what ``manage.py createsuperuser`` means here."""
        return self.create_user(username, email, password, **{**extra_fields, "role": Role.ADMIN})


class User(AbstractUser):
    """A person, or a program that acts for one."""

    role = models.CharField(max_length=16, choices=Role.choices, default=Role.VIEWER)

    objects: ClassVar[RoleUserManager] = RoleUserManager()

    def can(self, capability: Capability) -> bool:
        """Say whether the user's role holds ``capability``; an inactive user may do nothing."""
        return capability in self.capabilities

    @property
    def capabilities(self) -> frozenset[Capability]:
        """All that the user may do."""
        return CAPABILITIES[self.role] if self.is_active else frozenset()

    def _get_session_auth_hash(self, secret: str | None = None) -> str:
        """Return what each session is compared with: a new password or role ends them all."""
        salt = "accounts.models.User.get_session_auth_hash"
        value = f"{self.role} {self.password}"
        return salted_hmac(salt, value, secret=secret, algorithm="sha256").hexdigest()

    def save(self, *args: Any, **kwargs: Any) -> None:
        # Django's admin asks for these two flags; the role alone decides them.
        self.is_staff = self.role in (Role.OPERATOR, Role.ADMIN)
        self.is_superuser = self.role == Role.ADMIN
        if kwargs.get("update_fields") is not None:
            kwargs["update_fields"] = {*kwargs["update_fields"], "is_staff", "is_superuser"}
        super().save(*args, **kwargs)


class ApiTokenQuerySet(models.QuerySet["ApiToken"]):
    def usable(self) -> ApiTokenQuerySet:
        """Tokens that are not revoked, of users who are active."""
        return self.filter(revoked_at__isnull=True, user__is_active=True)

    def with_secret(self, secret: str) -> ApiTokenQuerySet:
        """The token whose secret this is, if there is one."""
        return self.filter(digest=tokens.digest(secret))


class ApiToken(models.Model):
    """A token of a user for the REST API. It may do what its user may do."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    digest = models.BinaryField(max_length=32, unique=True, editable=False)
    hint = models.CharField(max_length=12, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects = ApiTokenQuerySet.as_manager()

    class Meta:
        verbose_name = "API token"

    def __str__(self) -> str:
        return f"{self.name} ({self.hint}…)"

    @classmethod
    def issue(cls, user: User, name: str) -> tuple[ApiToken, str]:
        """Create a token and return it with its secret, which cannot be had again."""
        secret = tokens.generate(tokens.USER_PREFIX)
        token = cls.objects.create(
            user=user, name=name, digest=tokens.digest(secret), hint=tokens.hint(secret)
        )
        return token, secret

    @classmethod
    def opened_by(cls, secret: str) -> ApiToken | None:
        """Return the usable token whose secret this is, with its user. One query.

        It is asked with each request; to have the ORM put it together costs more than its answer.
        """
        with connection.cursor() as cursor:
            cursor.execute(_opened_by(), [tokens.digest(secret)])
            row = cursor.fetchone()
        if row is None:
            return None
        names = _columns(cls)
        token = cls.from_db(connection.alias, names, row[: len(names)])
        token.user = User.from_db(connection.alias, _columns(User), row[len(names) :])
        return token


_OPENED_BY = """
SELECT {of_token}, {of_user}
FROM accounts_apitoken AS token JOIN accounts_user AS owner ON owner.id = token.user_id
WHERE token.digest = %s AND token.revoked_at IS NULL AND owner.is_active
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


class AuditEntry(models.Model):
    """One thing that somebody did. Rows are added and never changed: a trigger sees to it."""

    at = models.DateTimeField(auto_now_add=True)
    actor = models.CharField(max_length=200, help_text="user name, agent name, or 'system'")
    action = models.CharField(max_length=100, help_text="a stable token, such as fleet.apply")
    target = models.CharField(max_length=300, blank=True)
    detail = models.JSONField(default=dict)

    class Meta:
        ordering = ["-at", "-id"]
        indexes = [
            models.Index(fields=["at"], name="audit_at"),
            models.Index(fields=["action", "at"], name="audit_action_at"),
        ]
        verbose_name_plural = "audit entries"

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.actor} {self.action} {self.target}"


class AuditLink(models.Model):
    """The place of an entry in the chain, which a trigger gives it when its transaction ends.

    ``hash`` is the SHA-256 of ``previous``, the hash of the link before (zeros for the first), and
    of the entry's content. Positions have no gap.
    """

    position = models.BigIntegerField(primary_key=True)
    # No constraint: that an entry is gone is for the verification to say.
    entry = models.OneToOneField(
        AuditEntry, on_delete=models.DO_NOTHING, related_name="link", db_constraint=False
    )
    previous = models.BinaryField(max_length=32)
    hash = models.BinaryField(max_length=32)

    class Meta:
        ordering = ["position"]

    def __str__(self) -> str:
        return f"{self.position} {bytes(self.hash).hex()[:12]}"


class AuditShipment(models.Model):
    """How far the audit log has come to the syslog receiver. One row."""

    position = models.BigIntegerField(default=0, help_text="of the last link that arrived")
    shipped_at = models.DateTimeField(null=True, blank=True)
    failing_since = models.DateTimeField(null=True, blank=True)
    last_error = models.CharField(max_length=500, blank=True)

    def __str__(self) -> str:
        return f"up to {self.position}"
