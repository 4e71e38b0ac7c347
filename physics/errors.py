"""What the laws refuse."""

from __future__ import annotations

from collections.abc import Iterable


class PhysicsError(ValueError):
    """Root of the errors of this package."""


class ImpossibleArgumentError(PhysicsError):
    """An argument that no real system can have: NaN, infinite, or outside its range."""

    def __init__(self, argument: str, requirement: str) -> None:
        super().__init__(f"{argument} must be {requirement}")
        self.argument = argument
        self.requirement = requirement


class ShapeMismatchError(PhysicsError):
    """Arguments whose shapes do not broadcast, or series of unlike lengths."""

    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        super().__init__(f"arguments do not fit each other: {listed}")
        self.shapes = shapes


class UnfittableError(PhysicsError):
    """Measurements that do not determine what a fit looks for."""


class UnknownKeyError(PhysicsError):
    """A name that a catalogue does not have."""

    def __init__(self, kind: str, key: str, known: Iterable[str]) -> None:
        self.kind = kind
        self.key = key
        self.known = tuple(known)
        self.closest = _closest(key, self.known)
        hint = f"did you mean {self.closest}?" if self.closest else f"there is {_some(self.known)}"
        super().__init__(f"{kind} has no {key}; {hint}")


def _closest(key: str, known: tuple[str, ...]) -> str | None:
    import difflib  # only for an error: not worth the time of every import of this package

    lowered = {each.casefold(): each for each in known}
    matches = difflib.get_close_matches(key.casefold(), lowered, n=1)
    return lowered[matches[0]] if matches else None


def _some(known: tuple[str, ...]) -> str:
    return ", ".join(known) if known else "nothing"
