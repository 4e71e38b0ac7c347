from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

#: Where something is in an inventory: ``("sites", 0, "racks", 2, "feed_a")``.
Path: TypeAlias = tuple[str | int, ...]


#: More problems than this are of no use to anybody.
MAX_PROBLEMS = 100


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with an inventory, and where."""

    path: Path
    message: str
    #: from 1; None where there is no text
    line: int | None = None

    @property
    def field(self) -> str:
        """The path as people write it: ``sites[0].racks[2].feed_a``."""
        parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path)
        return "".join(parts).lstrip(".")

    def text(self, source: str) -> str:
        """Return ``source:line: field: message``, without unknown parts."""
        where = source if self.line is None else f"{source}:{self.line}"
        return ": ".join(part for part in (where, self.field, self.message) if part)


class InventoryError(Exception):
    """An invalid inventory. ``problems`` lists its faults, in the order of the text."""

    def __init__(self, problems: Iterable[Problem], source: str = "inventory") -> None:
        self.problems = list(problems)
        self.source = source
        super().__init__("\n".join(problem.text(source) for problem in self.problems))


class StalePlanError(Exception):
    """The inventory has changed since the plan was made. Plan again."""

    def __init__(self) -> None:
        super().__init__("the inventory has changed since the plan was made: plan again")
