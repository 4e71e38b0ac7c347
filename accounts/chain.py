"""The chain of the audit log: its links, and checks of them. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ["START", "Broken", "Head", "Link", "check", "check_anchor", "hash_of"]


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a chain, or of a known part of one: the position and hash of its last link."""

    position: int
    hash: bytes


#: Of an empty chain.
START = Head(0, bytes(32))


@dataclass(frozen=True, slots=True)
class Link:
    """A link with the content of its entry; None where the entry is gone."""

    position: int
    entry_id: int
    previous: bytes
    hash: bytes
    content: str | None


@dataclass
class Broken(Exception):
    """The chain does not hold. ``entry_id``: the first wrong entry, where one is known."""

    message: str
    position: int
    entry_id: int | None = None

    def __str__(self) -> str:
        named = "" if self.entry_id is None else f", entry {self.entry_id}"
        return f"position {self.position}{named}: {self.message}"


def hash_of(previous: bytes, content: str) -> bytes:
    """Return the 32 bytes of the link that follows ``previous``."""
    return hashlib.sha256(previous + content.encode()).digest()


def check(links: Iterable[Link], after: Head = START) -> Iterator[Head]:
    """Yield each link's head, in order. Raises :class:`Broken` at the first that is wrong."""
    head = after
    for link in links:
        _check_one(link, head)
        head = Head(link.position, link.hash)
        yield head


def _check_one(link: Link, head: Head) -> None:
    place = (link.position, link.entry_id)
    if link.position != head.position + 1:
        lost = f"{head.position + 1} to {link.position - 1}"
        raise Broken(f"positions {lost} before it are missing", *place)
    if link.previous != head.hash:
        raise Broken("it does not follow the one before: links were exchanged or inserted", *place)
    if link.content is None:
        raise Broken("the entry was removed", *place)
    if hash_of(link.previous, link.content) != link.hash:
        raise Broken("the entry was changed", *place)


def check_anchor(anchor: Head, found: Head | None, end: Head) -> None:
    """Compare an anchor with ``found`` at its position and the chain's end.

    Raises :class:`Broken`.
    """
    if end.position < anchor.position:
        raise Broken(
            f"the log ends at {end.position}, but reached {anchor.position} by the anchor:"
            " its end was cut off",
            end.position + 1,
        )
    if found is None or found.hash != anchor.hash:
        raise Broken(
            "it is another than the anchor's: entries up to here were rewritten", anchor.position
        )
