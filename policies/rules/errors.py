"""What may be wrong with a rule, with the place in what its author wrote."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One fault. Lines and columns count from 1; 0 stands for none."""

    message: str
    line: int = 0
    column: int = 0
    #: the path of the field, such as ``effects[0].scope``
    field: str = ""
    #: the way out
    hint: str = ""

    def __str__(self) -> str:
        place = f"line {self.line}, column {self.column}: " if self.line else ""
        field = f"{self.field}: " if self.field else ""
        return f"{place}{field}{self.message}"


class CelError(ValueError):
    """A condition cannot be used. ``problems`` says where and why."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


class RuleError(ValueError):
    """A rule's document cannot be used. ``problems`` says where and why."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems
