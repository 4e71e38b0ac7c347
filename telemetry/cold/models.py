"""The catalogue of the cold tier: which files hold which rows."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models


class ColdFile(models.Model):
    """A Parquet file with the rows of one table, of a range of times and of ids.

    Several files may cover the same range; what came later has a higher id.
    """

    table = models.CharField(max_length=63)
    start = models.DateTimeField()
    end = models.DateTimeField(help_text="Not included")
    first_id = models.IntegerField()
    last_id = models.IntegerField()
    columns = ArrayField(models.CharField(max_length=63))
    path = models.CharField(max_length=300, unique=True, help_text="Below the cold tier's URL")
    rows = models.BigIntegerField()
    bytes = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["table", "start"], name="cold_file_table_start")]

    def __str__(self) -> str:
        return self.path


class DetachedPartition(models.Model):
    """A partition on its way into the cold tier: a table of its own, to which nothing is added."""

    table = models.CharField(max_length=63)
    relation = models.CharField(max_length=63, unique=True)
    start = models.DateTimeField()
    end = models.DateTimeField(help_text="Not included")
    moved_below = models.IntegerField(
        default=0, help_text="Rows of things with lower ids are in files already"
    )

    def __str__(self) -> str:
        return self.relation
