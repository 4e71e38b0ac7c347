"""Checks of single values and of rows beside each other, shared by the models."""

from __future__ import annotations

import math
import zoneinfo
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from accounts.edge import names

#: Of the name of a label, and of its text.
MOST_LABEL_CHARACTERS = 1000
Validator: TypeAlias = Callable[[Any], None]


def finite(value: float) -> None:
    """Refuse NaN and infinity, which every comparison of bounds would let pass."""
    try:
        is_finite = math.isfinite(value)
    except OverflowError:  # a whole number of hundreds of digits
        is_finite = False
    if not is_finite:
        raise ValidationError("a finite number is needed")


def quantity(most: float, least: float = 0) -> list[Validator]:
    """Return the checks of a number from ``least`` to ``most``."""
    return [MinValueValidator(least), MaxValueValidator(most), finite]


def without_slash(value: str) -> None:
    """Refuse a slash, which would make "site/name" ambiguous."""
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
    for text in (*value, *value.values()):
        names.plain(text)
        if len(text) > MOST_LABEL_CHARACTERS:
            raise ValidationError(f"a label has at most {MOST_LABEL_CHARACTERS} characters")


def slices(value: Any) -> None:
    """Refuse anything but a list of texts."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValidationError('slices are a list of MIG profiles, such as ["3g.40gb", "3g.40gb"]')


def lacks(row: models.Model) -> bool:
    """Say whether a required field is empty. Its own check reports it, before ``clean``."""
    return any(
        getattr(row, field.attname) is None
        for field in row._meta.concrete_fields
        if not field.null and not field.primary_key
    )


def same_site(row: models.Model, *fields: str) -> None:
    """Refuse a reference of ``row`` to something at another site. May query each of them."""
    for field in fields:
        other = getattr(row, field)
        if other is not None and other.site_id != row.site_id:  # type: ignore[attr-defined]
            raise ValidationError({field: f"{other} is at another site"})


def site_stays(row: models.Model) -> None:
    """Refuse to move a row to another site: rows that refer to it would stay behind. One query."""
    if row.pk is None:
        return
    known = type(row)._default_manager.filter(pk=row.pk)
    if known.exclude(site=row.site_id).exists():  # type: ignore[attr-defined]
        raise ValidationError({"site": "it cannot move to another site: create it there"})
