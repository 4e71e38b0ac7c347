"""How far the throttle tracker has got."""

from __future__ import annotations

from django.db import models


class TrackedRounds(models.Model):
    """How many rounds of readings of a shard the throttle tracker has taken in.

    The number grows in the transaction that stores the round. What a writer keeps of its tracker in
    Redis bears it, and is good only while the two are the same.
    """

    shard = models.SmallIntegerField(primary_key=True)
    rounds = models.BigIntegerField()

    def __str__(self) -> str:
        return f"shard {self.shard}: {self.rounds}"
