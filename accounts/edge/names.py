"""Validation of names that people and programs give, for Django's models and forms."""

from __future__ import annotations

from django.core.exceptions import ValidationError

from headroom.contracts import PLAIN_IN_WORDS, odd_character

__all__ = ["plain"]


def plain(value: str) -> None:
    """Refuse line breaks, other control characters, and changes of the direction of writing."""
    odd = odd_character(value)
    if odd:
        raise ValidationError(
            f"U+{ord(odd):04X} is in it: it has to be {PLAIN_IN_WORDS}",
            code="control_character",
        )
