"""Errors in an expression."""

from __future__ import annotations

from headroom.documents import DocumentError

__all__ = ["CelError"]


class CelError(DocumentError):
    """An expression cannot be used. Places are those within it."""
