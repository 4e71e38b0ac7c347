"""How far traces were sent."""

from __future__ import annotations

from django.db import models


class TracedUntil(models.Model):
    """The last job whose trace was let go, in order of end and id. There is one row at most."""

    ended_at = models.DateTimeField()
    job = models.BigIntegerField(help_text="Its id; 0: none yet, all before ended_at")

    def __str__(self) -> str:
        return f"until {self.ended_at:%Y-%m-%d %H:%M:%S}"
