"""The audit log as rows: entries, the chain that links them, and how far it was shipped."""

from __future__ import annotations

from django.db import models

__all__ = ["AuditEntry", "AuditLink", "AuditShipment"]


class AuditEntry(models.Model):
    """One action of somebody. Rows are added and never changed: a trigger sees to it."""

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
    """One row: the position up to which the syslog receiver has the audit log."""

    position = models.BigIntegerField(default=0, help_text="of the last link that arrived")
    shipped_at = models.DateTimeField(null=True, blank=True)
    failing_since = models.DateTimeField(null=True, blank=True)
    last_error = models.CharField(max_length=500, blank=True)

    def __str__(self) -> str:
        return f"up to {self.position}"
