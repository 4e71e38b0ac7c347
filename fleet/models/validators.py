"""Checks of single values and of rows beside each other, shared by the models."""

from __future__ import annotations

import math
import zoneinfo
from functools import cache
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models


def finite(value: float) -> None:
    """Refuse NaN and infinity, which every comparison of bounds would let pass."""
    if not math.isfinite(value):
        raise ValidationError("a finite number is needed")


def without_slash(value: str) -> None:
    """Refuse what would make "site/name" ambiguous."""
    if "/" in value:
        raise ValidationError("a site's name has no slash")


@cache
def time_zones() -> frozenset[str]:
    """Names that the time zone database knows."""
    return frozenset(zoneinfo.available_timezones())


def time_zone(value: str) -> None:
    if value not in time_zones():
        raise ValidationError(f"{value!r} is not a time zone, such as Europe/Oslo")


def labels(value: Any) -> None:
    """Refuse anything but names with texts."""
    texts = isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
    if not texts:
        raise ValidationError('labels are names with texts, such as {"pool": "train"}')


def same_site(row: models.Model, *fields: str) -> None:
    """Refuse a reference of ``row`` to something at another site. May query each of them."""
    for field in fields:
        other = getattr(row, field)
        if other is not None and other.site_id != row.site_id:  # type: ignore[attr-defined]
            raise ValidationError({field: f"{other} is at another site"})


def site_stays(row: models.Model) -> None:
    """Refuse to move a row to another site: what refers to it would be left behind. One query."""
    if row.pk is None:
        return
    known = type(row)._default_manager.filter(pk=row.pk)
    if known.exclude(site=row.site_id).exists():  # type: ignore[attr-defined]
        raise ValidationError({"site": "it cannot move to another site: create it there"})
