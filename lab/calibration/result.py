"""The result of a calibration: each quantity as measured, as simulated, and the error."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Role(StrEnum):
    """What the twin knew of the readings that it is compared with."""

    #: its constants were fitted to these very readings
    FITTED = "fitted"
    #: they were fitted to others of the same kind of job, GPU or cluster
    REPEAT = "repeat"
    #: nothing was fitted to anything of this kind of job, GPU or cluster
    UNSEEN = "unseen"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One quantity as measured on real machines and as simulated.

    ``error`` is in ``error_unit``, and at least 0. ``bar`` is the most that decisions bear
    (:mod:`lab.calibration.needs`); None: none rests on this quantity. ``was`` is what was measured
    when the twin was calibrated, and a little: more says that something has become worse. ``naive``
    is the error of what one would say without a twin. ``real`` and ``twin`` are None where a whole
    distribution is compared.
    """

    calibration: str
    quantity: str
    unit: str
    error: float
    error_unit: str
    was: float | None = None
    bar: float | None = None
    naive: float | None = None
    real: float | None = None
    twin: float | None = None
    role: Role = Role.FITTED

    @property
    def holds(self) -> bool:
        """Whether the error is within its bar; one that is no number is not."""
        return self.bar is None or self.error <= self.bar

    @property
    def is_as_good_as_it_was(self) -> bool:
        """Whether the error is no larger than when the twin was calibrated."""
        return self.was is None or self.error <= self.was

    @property
    def beats_naive(self) -> bool:
        """Whether the twin is nearer than the naive prediction, where there is one."""
        return self.naive is None or self.error < self.naive

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"holds": self.holds, "beats_naive": self.beats_naive}

    def __str__(self) -> str:
        sides = (
            "" if self.real is None else f"real {self.real:.4g}, twin {self.twin:.4g} {self.unit}, "
        )
        told = [f"{self.role}"]
        told += [] if self.bar is None else [f"bar {self.bar:.3g}"]
        told += [] if self.was is None else [f"was {self.was:.3g}"]
        told += [] if self.naive is None else [f"naive {self.naive:.3g}"]
        return (
            f"{self.calibration}: {self.quantity}: {sides}"
            f"error {self.error:.3g} {self.error_unit} ({', '.join(told)})"
        )


def by_share(
    calibration: str,
    quantity: str,
    unit: str,
    *,
    real: float,
    twin: float,
    of: float | None = None,
    was: float | None = None,
    bar: float | None = None,
    naive: float | None = None,
    role: Role = Role.FITTED,
) -> Comparison:
    """Compare two numbers: the error is their difference in percent of ``real``, or of ``of``.

    ``naive`` is a number like ``twin``: what one would say without it.
    """
    base = abs(real if of is None else of)
    return Comparison(
        calibration=calibration,
        quantity=quantity,
        unit=unit,
        real=real,
        twin=twin,
        error=100.0 * abs(twin - real) / base,
        error_unit="%",
        was=was,
        bar=bar,
        naive=None if naive is None else 100.0 * abs(naive - real) / base,
        role=role,
    )


def by_difference(
    calibration: str,
    quantity: str,
    unit: str,
    *,
    real: float,
    twin: float,
    was: float | None = None,
    bar: float | None = None,
    naive: float | None = None,
    role: Role = Role.FITTED,
) -> Comparison:
    """Compare two numbers: the error is their difference, in their own unit.

    ``naive`` is a number like ``twin``: what one would say without it.
    """
    return Comparison(
        calibration=calibration,
        quantity=quantity,
        unit=unit,
        real=real,
        twin=twin,
        error=abs(twin - real),
        error_unit=unit,
        was=was,
        bar=bar,
        naive=None if naive is None else abs(naive - real),
        role=role,
    )
