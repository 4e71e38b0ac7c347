"""The mark in a job's AdminComment that says whose its hold is, or under which lease it may start.

``[headroom hold]``, ``[headroom hold owner]`` (its owner holds it, too) or
``[headroom lease KEY NUMBER]``, then words for people. Only administrators write there. NUMBER is
how many starts the job has had before: a lease is good for one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["MARK", "Mark", "clean", "held", "leased", "read", "said"]

MARK = "[headroom"
_HOLD = re.compile(r"\[headroom hold( owner)?\]")
_LEASE = re.compile(r"\[headroom lease (\S+) (\d+)\]")
#: What could end an argument of scontrol, or the line of one.
_ODD = re.compile(r"[\x00-\x1f\x7f\"'\\]")
_LONGEST = 600


@dataclass(frozen=True)
class Mark:
    """A mark: a hold of ours, or a lease and the starts before it."""

    is_hold: bool
    by_owner: bool = False
    lease: str = ""
    restarts: int = 0


def read(admin_comment: str) -> Mark | None:
    """Return the mark that a comment begins with; None: it has none."""
    # scontrol keeps the quotes of what it is given line by line.
    admin_comment = admin_comment.lstrip('"')
    if hold := _HOLD.match(admin_comment):
        return Mark(is_hold=True, by_owner=bool(hold[1]))
    if lease := _LEASE.match(admin_comment):
        return Mark(is_hold=False, lease=lease[1], restarts=int(lease[2]))
    return None


def held(text: str = "", *, by_owner: bool = False) -> str:
    """Return the comment of a job that we hold."""
    mark = "[headroom hold owner]" if by_owner else "[headroom hold]"
    return clean(f"{mark} {text}")


def leased(key: str, restarts: int, nodes: str) -> str:
    """Return the comment of a job that may start once on ``nodes``."""
    lease = Mark(is_hold=False, lease=key, restarts=restarts)
    return said(lease, f"admitted on {nodes}")


def said(mark: Mark, text: str) -> str:
    """Return the comment of a job that has ``mark`` and is told ``text``."""
    if mark.is_hold:
        return held(text, by_owner=mark.by_owner)
    return clean(f"[headroom lease {mark.lease} {mark.restarts}] {text}")


def clean(text: str) -> str:
    """Return ``text`` as one argument that needs no quotes but those around it."""
    return _ODD.sub(" ", text).strip()[:_LONGEST]
