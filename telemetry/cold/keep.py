"""Keeping the cold tier: merging late rows in, retiring old files, removing orphans."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.db.models import Count, Sum

from telemetry import tiers
from telemetry.cold import scan
from telemetry.cold.catalog import File
from telemetry.cold.models import ColdFile
from telemetry.cold.move import FILE_ROWS, Unit, in_order, write
from telemetry.cold.places import place
from telemetry.samples import Table
from telemetry.store.columns import Window, concatenate
from telemetry.store.hot import IdRange

log = structlog.get_logger(__name__)

#: A unit with so many files more than its rows need is written anew.
_SPARE_FILES = 8
#: A file that the catalogue does not know is removed when it is this old: until then, a database
#: that was restored from a back-up may still be given the newer one's catalogue.
ORPHAN_AGE = timedelta(days=1)


def merge(table: Table) -> bool:
    """Merge the files of the unit with the most of them, if too many; tell whether it did."""
    crowded = (
        ColdFile.objects.filter(table=table.name)
        .values("start", "end")
        .annotate(files=Count("pk"), total=Sum("rows"))
        .order_by("-files")[:1]
    )
    for unit in crowded:
        if unit["files"] > _SPARE_FILES + 2 * unit["total"] / FILE_ROWS:
            _merge(table, Unit(unit["start"], unit["end"]))
            return True
    return False


def _merge(table: Table, unit: Unit) -> None:
    old = list(
        ColdFile.objects.filter(table=table.name, start=unit.start, end=unit.end).order_by("pk")
    )
    new = list(_rewritten(table, unit, old))
    with transaction.atomic():
        ColdFile.objects.filter(pk__in=[file.pk for file in old]).delete()
        ColdFile.objects.bulk_create(new)
    _delete(old)
    log.info("cold_files_merged", table=table.name, start=unit.start, old=len(old), new=len(new))


def _rewritten(table: Table, unit: Unit, old: list[ColdFile]) -> Iterator[ColdFile]:
    names = [column.name for column in table.columns]
    window = Window(unit.start.timestamp(), unit.end.timestamp())
    files = [
        File(each.pk, each.path, tuple(each.columns), each.first_id, each.last_id) for each in old
    ]
    first, last = min(each.first_id for each in old), max(each.last_id for each in old)
    per_id = max(1.0, sum(each.rows for each in old) / (last - first + 1))
    size = max(1, int(FILE_ROWS / per_id))
    for start in range(first, last + 1, size):
        found = scan.fetch(files, table, names, window, IdRange(start, start + size))
        if found and len((rows := in_order(table, concatenate(found)))["ts"]):
            yield write(table, rows, unit)


def retire(now: datetime) -> list[str]:
    """Remove the files past their retention and return their paths.

    Of each table only the oldest unit: a clock that is wrong for a moment costs little.
    """
    gone = []
    for kept in tiers.kept():
        expired = ColdFile.objects.filter(table=kept.table.name, end__lte=now - kept.total)
        oldest = expired.order_by("end").first()
        if oldest is not None:
            gone += list(expired.filter(end=oldest.end))
    ColdFile.objects.filter(pk__in=[file.pk for file in gone]).delete()
    _delete(gone)
    return [file.path for file in gone]


def clean(now: datetime) -> list[str]:
    """Remove files that the catalogue does not know, and return their paths."""
    known = set(ColdFile.objects.values_list("path", flat=True))
    old = (found.path for found in place().listed() if found.at < now - ORPHAN_AGE)
    orphans = [path for path in old if path not in known]
    for path in orphans:
        place().delete(path)
    return orphans


def damaged() -> Iterator[str]:
    """Yield the path of each file that is missing, or whose bytes are not those written."""
    for path, sha256 in ColdFile.objects.order_by("pk").values_list("path", "sha256"):
        try:
            data = place().get(path)
        except FileNotFoundError:
            yield path
            continue
        if hashlib.sha256(data).hexdigest() != sha256:
            yield path


def _delete(files: Iterable[ColdFile]) -> None:
    for file in files:
        place().delete(file.path)
