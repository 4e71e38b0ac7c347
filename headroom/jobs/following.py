"""Follows what a job says, stretch by stretch, through the API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from headroom.client import Unavailable
from headroom.jobs.asking import Answer, Jobs

__all__ = ["Reader"]

#: How often to ask again for output that a machine was asked for, s, and for how long.
_AGAIN_S, _PATIENCE_S = 0.5, 15.0
#: While it is followed it is asked for this often, s.
_FOLLOW_S = 1.0
#: Of one stretch, bytes: as many as an answer has at most.
_MOST_BYTES = "262144"


@dataclass
class Reader:
    """Reads what the job ``name`` says; ``chosen`` says of which phase, attempt and rank.

    The part that is read first is read on, whatever begins after it. ``complain`` is told once
    when the server is away while a job is followed.
    """

    jobs: Jobs
    name: str
    chosen: Mapping[str, str]
    sleep: Callable[[float], None]
    complain: Callable[[str], None]
    _part: dict[str, str] = field(default_factory=dict)

    def end(self) -> Answer:
        """Return the last that it has said, once its machine has answered, or after 15 s."""
        found, waited_s = self._ask({}), 0.0
        while _is_asked(found) and waited_s < _PATIENCE_S:
            self.sleep(_AGAIN_S)
            waited_s += _AGAIN_S
            found = self._ask({})
        return found

    def on_from(self, offset: int, *, follow: bool) -> Iterator[Answer]:
        """Yield what it says from ``offset`` on, up to now; with ``follow`` until it has ended.

        The last is still ``pending`` where its machine does not answer within 15 s.
        """
        silent_s, is_away = 0.0, False
        while follow or silent_s < _PATIENCE_S:
            try:
                found = self._ask({"offset": str(offset), "most": _MOST_BYTES})
            except Unavailable as exc:
                if not follow:
                    raise
                if not is_away:
                    self.complain(str(exc))
                is_away = True
                self.sleep(max(_FOLLOW_S, exc.retry_after_s or 0.0))
                continue
            is_away = False
            yield found
            is_all = not found["text"] and not _is_asked(found)
            if found["over"] or (is_all and not follow):
                return
            offset, silent_s = found["next_offset"], 0.0 if found["text"] else silent_s + _AGAIN_S
            if not found["text"]:
                self.sleep(_FOLLOW_S if is_all else _AGAIN_S)

    def _ask(self, params: Mapping[str, str]) -> Answer:
        found = self.jobs.logs(self.name, {**self.chosen, **self._part, **params})
        if found["rank"] is not None:
            self._part = {name: str(found[name]) for name in ("phase", "attempt", "rank")}
        return found


def _is_asked(found: Answer) -> bool:
    """Say whether a machine was asked for more. One that has not begun is asked for nothing."""
    return bool(found["pending"]) and found["rank"] is not None
