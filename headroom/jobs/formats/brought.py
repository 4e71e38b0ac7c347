"""What comes of a job of another format: a specification, and what of it could not come along."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headroom.jobs import reading
from headroom.jobs.spec import JobSpec

__all__ = ["Brought", "FormatError", "Owner"]


class FormatError(ValueError):
    """A text that is no job of its format, or one that no specification can say."""


@dataclass(frozen=True, kw_only=True)
class Owner:
    """What a specification needs and other formats seldom say.

    What is given here counts before what a text says; None: what the text says.
    """

    project: str | None = None
    job_class: str | None = None
    walltime_s: float | None = None


@dataclass(frozen=True)
class Brought:
    """A specification as plain values, and ``lost``: a sentence for each thing left out."""

    values: Mapping[str, Any]
    lost: tuple[str, ...] = field(default=())

    @property
    def spec(self) -> JobSpec:
        """The specification. Raises :class:`headroom.jobs.reading.SpecError`."""
        return reading.convert(dict(self.values))
