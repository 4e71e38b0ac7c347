"""Reading the audit log's chain out of the database, and out of exports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from django.core import signing
from django.db import connection
from django.utils.crypto import constant_time_compare

from accounts.chain import START, Broken, Head, Link, check, check_anchor

__all__ = [
    "Anchor",
    "Exported",
    "NotOurs",
    "anchor",
    "check_links",
    "head",
    "links",
    "read_anchor",
    "read_export",
    "verify",
]

#: Links in one query.
_PAGE = 5000
_SIGNER = signing.Signer(salt="headroom.audit.anchor")

_LINKS = """
SELECT link.position, link.entry_id, link.previous, link.hash,
    CASE WHEN entry.id IS NOT NULL THEN accounts_audit_content(entry) END
FROM accounts_auditlink AS link LEFT JOIN accounts_auditentry AS entry ON entry.id = link.entry_id
WHERE link.position > %s ORDER BY link.position LIMIT %s
"""

_HEAD = "SELECT position, hash FROM accounts_auditlink ORDER BY position DESC LIMIT 1"

_UNLINKED = """
SELECT min(entry.id), count(*) FROM accounts_auditentry AS entry
WHERE NOT EXISTS (SELECT FROM accounts_auditlink AS link WHERE link.entry_id = entry.id)
"""


class NotOurs(Exception):
    """The given anchor is none, or was signed with another SECRET_KEY."""


class Exported(msgspec.Struct, frozen=True):
    """A link as it leaves the server: a line of an export, hashes in hex."""

    position: int
    previous: str
    hash: str
    content: str

    @classmethod
    def of(cls, link: Link) -> Exported:
        """Return a link for export; where its entry is gone, the content is empty."""
        return cls(link.position, link.previous.hex(), link.hash.hex(), link.content or "")

    def link(self) -> Link:
        """Return the link, with the id of the entry that its content names."""
        entry = msgspec.json.decode(self.content or "{}").get("id", 0)
        previous, made = bytes.fromhex(self.previous), bytes.fromhex(self.hash)
        return Link(self.position, entry, previous, made, self.content)


class Anchor(msgspec.Struct, frozen=True):
    """A signed head: to be kept where nobody with access to the database comes."""

    position: int
    hash: str
    signature: str


def links(after: int = 0, limit: int | None = None) -> Iterator[Link]:
    """Yield the links behind a position, at most ``limit``, in order. A query for each 5,000."""
    left = limit
    while left is None or left > 0:
        page = _PAGE if left is None else min(_PAGE, left)
        rows = _fetch(_LINKS, [after, page])
        for position, entry_id, previous, made, content in rows:
            yield Link(position, entry_id, bytes(previous), bytes(made), content)
        if len(rows) < page:
            return
        after = rows[-1][0]
        left = None if left is None else left - page


def head() -> Head:
    """Return the last link that there is now."""
    rows = _fetch(_HEAD, [])
    return Head(rows[0][0], bytes(rows[0][1])) if rows else START


def verify(known: Head | None = None) -> Head:
    """Check the whole log, also against an anchor; return its end. Raises :class:`Broken`."""
    end = check_links(links(), known)
    ((first, count),) = _fetch(_UNLINKED, [])
    if count:
        raise Broken(f"{count} entries are in no chain: they were inserted", end.position, first)
    return end


def check_links(found: Iterable[Link], known: Head | None = None, *, after: Head = START) -> Head:
    """Check the links that follow ``after``, also against an anchor. Raises :class:`Broken`."""
    end, at_anchor = after, after if known and known.position == after.position else None
    for each in check(found, after):
        end = each
        if known is not None and each.position == known.position:
            at_anchor = each
    if known is not None:
        check_anchor(known, at_anchor, end)
    return end


def anchor(of: Head) -> Anchor:
    """Return a head with our signature."""
    made = of.hash.hex()
    return Anchor(of.position, made, _SIGNER.signature(f"{of.position}:{made}"))


def read_anchor(text: str) -> Head:
    """Return the head that an anchor (JSON), or ``POSITION:HASH``, names. Raises NotOurs."""
    position, colon, made = text.strip().partition(":")
    try:
        if colon and position.isdigit():
            return Head(int(position), bytes.fromhex(made))
        found = msgspec.json.decode(text, type=Anchor)
        of = Head(found.position, bytes.fromhex(found.hash))
    except ValueError as error:
        raise NotOurs(f"it is neither an anchor nor POSITION:HASH: {error}") from None
    if not constant_time_compare(anchor(of).signature, found.signature):
        raise NotOurs("the anchor's signature is not ours: it was made with another SECRET_KEY")
    return of


def read_export(lines: Iterable[str]) -> Iterator[Link]:
    """Yield the links of an export, without the anchor at its end. Raises :class:`Broken`."""
    last = 0
    for line in lines:
        try:
            found = msgspec.json.decode(line, type=dict[str, Any])
            if "signature" in found:
                continue
            link = msgspec.convert(found, Exported).link()
        except ValueError:
            raise Broken("the line after it cannot be read", last) from None
        last = link.position
        yield link


def _fetch(query: str, values: list[int]) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        return list(cursor.fetchall())
