"""The glossary: what terms of the trade mean, from ``dashboard/glossary.yaml``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import yaml

__all__ = ["meaning", "page", "terms"]

_FILE = Path(__file__).with_name("glossary.yaml")
#: A link of Markdown that begins a sentence of its own, or stands behind "see": on a page it leads
#: nowhere.
_SEE = re.compile(r"(?:[;:.]? ?[Ss]ee |[;:,] )?\[([^]]*)\]\([^)]*\)\.?$")
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


@cache
def terms() -> Mapping[str, str]:
    """Return all terms with their meanings, in Markdown."""
    found: dict[str, str] = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    return found


@cache
def meaning(term: str) -> str:
    """Return what a term means, as a sentence of plain text. Raises ``KeyError`` of one unknown."""
    text = _LINK.sub(r"\1", _SEE.sub("", terms()[term])).replace("`", "")
    return f"{text[0].upper()}{text[1:].rstrip('.')}."


def page() -> str:
    """Return the reference page of all terms, in Markdown."""
    rows = (f"| {term} | {text} |" for term, text in terms().items())
    return "\n".join(["# Glossary", "", "| word | meaning |", "|---|---|", *rows, ""])
