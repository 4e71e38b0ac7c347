"""Parsing of numbers and moments in query strings, forms and bodies.

A number is ASCII digits, no more than its greatest value has. A moment lies in a time in which
nothing overflows, whatever is added to it and whatever time zone it is told in.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Any

import django_filters
from django import forms
from django.core.exceptions import ValidationError
from django_filters.fields import IsoDateTimeField
from rest_framework import serializers

__all__ = [
    "BIGGEST_ID",
    "EARLIEST",
    "LATEST",
    "MomentField",
    "MomentFilter",
    "MomentFormField",
    "as_moment",
    "check_names",
    "whole_number",
]

#: Of what Postgres counts rows with.
BIGGEST_ID = 2**63 - 1
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)
_NO_MOMENT = f"Give a time from {EARLIEST:%Y} to {LATEST:%Y}."


def check_names(given: Iterable[str], known: Collection[str]) -> None:
    """Refuse a name in a query string that means nothing, with the closest that does.

    Left alone it would ask for everything. Raises DRF's ``ValidationError``.
    """
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            way_out = (
                f"Did you mean {close[0]}?" if close else f"Known: {', '.join(sorted(known))}."
            )
            raise serializers.ValidationError({name[:40]: f"There is no such parameter. {way_out}"})


def whole_number(text: str, *, least: int = 0, most: int) -> int | None:
    """Return ``text`` as a number; None where it is none, or not from ``least`` to ``most``."""
    if not (text.isascii() and text.isdecimal()):
        return None
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(most)):
        return None
    value = int(digits)
    return value if least <= value <= most else None


def as_moment(at: datetime) -> datetime:
    """Return ``at`` in UTC, which a moment without a zone is taken to be in. Raises ValueError."""
    # Years alone are compared: to move it to UTC first is what might overflow.
    if not EARLIEST.year < at.year < LATEST.year:
        raise ValueError(_NO_MOMENT)
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


class MomentField(serializers.DateTimeField):
    """A moment in a body."""

    def enforce_timezone(self, value: datetime) -> datetime:
        try:
            return as_moment(value)
        except ValueError as error:
            raise serializers.ValidationError(str(error)) from error


def _form_moment(value: Any) -> Any:
    try:
        return None if value is None else as_moment(value)
    except ValueError as error:
        raise ValidationError(str(error)) from error


class MomentFormField(forms.DateTimeField):
    """A moment in a form of a page."""

    def clean(self, value: Any) -> Any:
        return _form_moment(super().clean(value))


class _MomentParameter(IsoDateTimeField):  # type: ignore[misc]
    def clean(self, value: Any) -> Any:
        return _form_moment(super().clean(value))


class MomentFilter(django_filters.IsoDateTimeFilter):  # type: ignore[misc]
    """Rows before or after a moment of the query string."""

    field_class = _MomentParameter
