"""What goes wrong with checkpoints, one class per cause."""

from __future__ import annotations

from headroom.errors import HeadroomError

__all__ = ["Damaged", "Fenced", "NoCheckpoint", "NotTaken", "NotWhole"]


class Damaged(HeadroomError):
    """What is stored is not what was stored once."""


class NoCheckpoint(HeadroomError):
    """There is no whole checkpoint."""


class NotTaken(HeadroomError):
    """This cannot be a checkpoint."""


class NotWhole(HeadroomError):
    """Chunks of the checkpoint are missing or damaged.

    ``missing`` says what is wrong with each of them, by digest.
    """

    def __init__(self, message: str, missing: dict[str, str]) -> None:
        super().__init__(message)
        self.missing = missing


class Fenced(HeadroomError):
    """A later start of the same run has checkpoints there: this one counts no more."""
