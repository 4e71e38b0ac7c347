"""The interface of an actuator to a GPU: one kind of limit on one GPU."""

from __future__ import annotations

from typing import Protocol

__all__ = ["ActuatedGpu", "Knob", "KnobError"]


class KnobError(Exception):
    """A limit could not be set or read. ``is_refusal``: nothing was changed, and it never will."""

    def __init__(self, message: str, *, is_refusal: bool = False) -> None:
        super().__init__(message)
        self.is_refusal = is_refusal


class Knob(Protocol):
    """One kind of limit on one GPU, in the unit of the kind.

    All methods raise :class:`KnobError`, or ``GpuLostError`` of devices.py.
    """

    def in_force(self) -> float | None:
        """Return the limit in force; None where the driver does not tell."""
        ...

    def bounded(self, asked: float) -> float:
        """Return the settable value closest to ``asked``: at most that, where possible."""
        ...

    def set(self, value: float) -> None:
        """Hold the GPU to ``value``, which is a bounded one."""
        ...

    def restore(self, original: float | None) -> None:
        """Restore a value that :meth:`in_force` returned."""
        ...

    def violation(self, value: float) -> str:
        """Return how the GPU is seen to exceed ``value``, or ""."""
        ...


class ActuatedGpu(Protocol):
    """A GPU whose limits can be set."""

    @property
    def index(self) -> int:
        """Its index on the node."""
        ...

    @property
    def uuid(self) -> str:
        """The UUID of the GPU, which stays the same when indices change."""
        ...

    def knob(self, kind: str) -> Knob | None:
        """Return the knob for a kind of limit, or None for an unknown kind."""
        ...

    def mean_w(self, since_s: float) -> float | None:
        """Return the mean power from a monotonic time to the last reading, W; None if unknown."""
        ...
