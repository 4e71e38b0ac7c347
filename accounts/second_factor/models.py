"""Second factors beside a password: an authenticator app, and recovery codes."""

from __future__ import annotations

from django.db import models


class Authenticator(models.Model):
    """The app that shows a code of six digits every 30 s (TOTP, RFC 6238)."""

    user = models.OneToOneField(
        "accounts.User", on_delete=models.CASCADE, related_name="authenticator"
    )
    #: encrypted, see accounts.second_factor.secret
    secret = models.BinaryField(editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    #: number of the 30 s of the last code that was taken: none is taken twice, nor an older one
    last_timecode = models.BigIntegerField(default=0, editable=False)
    #: wrong codes in a row, and when the last of them came
    failures = models.PositiveIntegerField(default=0, editable=False)
    failed_at = models.DateTimeField(null=True, editable=False)

    def __str__(self) -> str:
        return f"authenticator of {self.user}"


class RecoveryCode(models.Model):
    """A code for the day on which the app is lost. It goes when it is used."""

    user = models.ForeignKey(
        "accounts.User", on_delete=models.CASCADE, related_name="recovery_codes"
    )
    digest = models.BinaryField(max_length=32, editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "digest"], name="recovery_code_once"),
        ]

    def __str__(self) -> str:
        return f"recovery code of {self.user}"
