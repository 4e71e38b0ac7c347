"""What a job says, on its page: the end of the output of one node, as a browser can show it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from admission.jobs.models import Attempt
from admission.logs import reading
from admission.logs.reading import END, Selection, Source

__all__ = ["Log", "log_of", "readable"]

#: Of the output, bytes: what somebody looks at, not all that was said.
_SHOWN_BYTES = 16 * 1024
#: What colors text or moves the cursor, and titles of windows.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
#: Ranks that are a link, those that failed first.
_MOST_LINKS = 8


@dataclass(frozen=True, slots=True)
class Log:
    """The end of the output of one node. ``is_whole``: there is nothing before it.

    ``state`` is that of the node's part of the attempt; ``links`` are other ranks worth a look.
    """

    text: str
    is_whole: bool
    pending: bool
    over: bool
    gone: bool
    rank: int | None
    ranks: int
    node: str
    state: str
    links: Sequence[int]


def log_of(attempt: Attempt, rank: int | None, now: datetime) -> Log:
    """Return the end of what ``attempt`` said. Five queries at most. Raises NotThere.

    ``rank``: None for the node that failed first, or else the first.
    """
    source = reading.find(
        attempt.phase.job,
        Selection(phase=attempt.phase.name, attempt=attempt.number, rank=rank),
    )
    said = reading.read(source, END, _SHOWN_BYTES, now)
    part = source.part
    return Log(
        text=readable(said.text or said.tail),
        is_whole=said.start == 0 and bool(said.text),
        pending=said.pending,
        over=said.over,
        gone=source.is_gone,
        rank=part.rank if part else None,
        ranks=len(source.parts),
        node=part.node if part else "",
        state=part.state if part else "",
        links=_links(source),
    )


def _links(source: Source) -> list[int]:
    if len(source.parts) < 2:
        return []
    ranks = [part.rank for part in [*source.failed, *source.parts]]
    return list(dict.fromkeys(ranks))[:_MOST_LINKS]


def readable(text: str) -> str:
    """Return what a terminal would show of ``text``: no escapes, and of lines that were written
    over what they were last. NUL, which no page can hold, is spelled out as others are.
    """
    plain = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\0", "⟨U+0000⟩")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in plain.split("\n"))
