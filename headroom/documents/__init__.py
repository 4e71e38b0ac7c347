"""Parts that readers of documents share: the text with the place of each value, and its errors."""

from __future__ import annotations

from headroom.documents.faults import (
    DocumentError,
    Refusal,
    closest,
    fault,
    field_names,
    refusal,
    told,
)
from headroom.documents.yaml_text import Document, Place, read

__all__ = [
    "Document",
    "DocumentError",
    "Place",
    "Refusal",
    "closest",
    "fault",
    "field_names",
    "read",
    "refusal",
    "told",
]
