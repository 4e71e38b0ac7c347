"""Identities at the provider, and the roles of its groups."""

from __future__ import annotations

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models

from accounts.roles import Role


class Identity(models.Model):
    """One account at a provider, by its unchanging subject; it opens one account here.

    Names and addresses change hands, so they are never looked at to find an account.
    """

    user = models.ForeignKey("accounts.User", on_delete=models.CASCADE, related_name="identities")
    issuer = models.CharField(max_length=500, help_text="As OIDC_ISSUER has it")
    subject = models.CharField(max_length=255, help_text="The claim sub")
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        verbose_name_plural = "identities"
        constraints = [
            models.UniqueConstraint(fields=["issuer", "subject"], name="identity_once"),
        ]

    def __str__(self) -> str:
        return f"{self.subject} at {self.issuer}"

    def clean(self) -> None:
        """Refuse to link emergency accounts to the provider."""
        user_id = self.user_id  # None while the form has none
        if user_id and self.user.username in settings.EMERGENCY_USERS:
            raise ValidationError({"user": "An account for emergencies stays a local one."})


class GroupRole(models.Model):
    """The role of the members of a group of the provider."""

    group = models.CharField(
        max_length=255, unique=True, help_text="Exactly as the groups claim has it"
    )
    role = models.CharField(max_length=16, choices=Role.choices)

    class Meta:
        ordering = ["group"]
        verbose_name = "role of a group"
        verbose_name_plural = "roles of groups"

    def __str__(self) -> str:
        return f"{self.group}: {self.role}"
