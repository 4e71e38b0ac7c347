"""HTML of pages as tests compare it, however its template is laid out."""

from __future__ import annotations

import re
from typing import Protocol

#: Elements at whose edges a browser drops white space.
_BLOCKS = (
    "article|aside|body|button|dd|details|div|dl|dt|fieldset|footer|form|h[1-6]|head|header|html|"
    "legend|li|link|main|meta|nav|ol|option|p|section|select|summary|table|tbody|td|th|thead|tr|ul"
)
_TAG = re.compile(r"<[^<>]+>")
_EDGE = re.compile(rf" ?(</?(?:{_BLOCKS})\b[^<>]*>) ?")


def flat(html: str) -> str:
    """Return ``html`` with the white space that a browser shows, and no other."""
    closed = _TAG.sub(lambda tag: re.sub(r"\s+(?=/?>)", "", re.sub(r"\s+", " ", tag[0])), html)
    return _EDGE.sub(r"\1", re.sub(r"\s+", " ", closed))


class _Answer(Protocol):
    @property
    def content(self) -> bytes: ...


def html_of(response: _Answer) -> str:
    """Return the HTML of an answer, flat."""
    return flat(response.content.decode())
