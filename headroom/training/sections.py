"""Where the time of a loop goes: named sections, and windows over several steps. Pure but for time.

Sections begin and end as those of NVIDIA's resiliency extension do, windows as Zeus' do, and lost
time has the names of ml-goodput-measurement.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from headroom.errors import HeadroomError

__all__ = ["LOST", "Counts", "Measurement", "Section", "SectionError", "Sections"]


class Section(enum.StrEnum):
    """Sections that are known by name; a loop may have others of its own."""

    #: initialization of the accelerator
    ACCELERATOR_INITIALIZATION = "tpu_initialization"
    TRAINING_PREPARATION = "training_prep"
    PROGRAM_STARTUP = "program_startup"
    #: a step waits for its data
    DATA_LOADING = "data_loading_sync"
    CHECKPOINT_SAVE = "unproductive_checkpoint_save_time"
    CHECKPOINT_RESTORE = "unproductive_checkpoint_restore_time"
    EVALUATION = "evaluation"
    #: a step waits for the gradients of others. Part of the step: not among those that are lost
    GRADIENT_SYNC = "gradient_sync"
    #: it stands still, since it was told to
    PAUSE = "pause"


#: Sections outside of steps: what a step takes is reckoned without them.
LOST = frozenset(Section) - {Section.DATA_LOADING, Section.GRADIENT_SYNC}


class SectionError(HeadroomError):
    """A section or a window was begun twice, or ended without a beginning."""


@dataclass
class Counts:
    """Steps, samples and tokens, and seconds by section."""

    steps: int = 0
    samples: int = 0
    tokens: int = 0
    sections: dict[str, float] = field(default_factory=dict)

    def since(self, earlier: Counts) -> Counts:
        """Return what was counted after ``earlier``."""
        return Counts(
            self.steps - earlier.steps,
            self.samples - earlier.samples,
            self.tokens - earlier.tokens,
            {
                name: spent - before
                for name, spent in self.sections.items()
                if (before := earlier.sections.get(name, 0.0)) < spent
            },
        )

    def copy(self) -> Counts:
        """Return the counts of this moment."""
        return Counts(self.steps, self.samples, self.tokens, dict(self.sections))


@dataclass(frozen=True)
class Measurement:
    """What a window held: its length, s, and what was counted in it."""

    time_s: float
    steps: int
    samples: int
    tokens: int
    sections: dict[str, float]


class Sections:
    """Sections and windows of one rank. They may overlap; each name is open once at a time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.counts = Counts()
        self._open: dict[str, float] = {}
        self._windows: dict[str, tuple[float, Counts]] = {}

    def now(self) -> float:
        """Return the time by the clock of all that is measured here, s."""
        return self._clock()

    def start_section(self, name: str) -> None:
        """Begin a section. Raises :class:`SectionError` where it is open."""
        if name in self._open:
            raise SectionError(f"the section {name!r} is open already")
        self._open[name] = self._clock()

    def end_section(self, name: str) -> None:
        """End a section. Raises :class:`SectionError` where it is not open."""
        began_s = self._open.pop(name, None)
        if began_s is None:
            raise SectionError(f"the section {name!r} is not open")
        self.spent(name, self._clock() - began_s)

    def end_all_sections(self) -> None:
        """End all sections that are open."""
        for name in list(self._open):
            self.end_section(name)

    def spent(self, name: str, seconds: float) -> None:
        """Count time as that of a section."""
        spent = self.counts.sections
        spent[name] = spent.get(name, 0.0) + seconds

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Have a block be a section."""
        self.start_section(name)
        try:
            yield
        finally:
            self.end_section(name)

    def begin_window(self, name: str) -> None:
        """Begin to measure. Raises :class:`SectionError` where the window is open."""
        if name in self._windows:
            raise SectionError(f"the window {name!r} is open already")
        self._windows[name] = (self._clock(), self.counts.copy())

    def end_window(self, name: str) -> Measurement:
        """Return what the window held. Raises :class:`SectionError` where it is not open."""
        begun = self._windows.pop(name, None)
        if begun is None:
            raise SectionError(f"the window {name!r} is not open")
        began_s, before = begun
        held = self.counts.since(before)
        return Measurement(
            self._clock() - began_s, held.steps, held.samples, held.tokens, held.sections
        )
