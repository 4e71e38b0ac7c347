"""The result of a calibration: each quantity as measured, as simulated, and the error."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One quantity as measured on real machines and as simulated.

    ``error`` is in ``error_unit``, and at least 0; ``bar`` is the most that it may be: what was
    measured when the twin was calibrated, and a little. ``real`` and ``twin`` are None where a
    whole distribution is compared. ``held_out`` says that nothing was fitted to the readings that
    the twin is compared with here.
    """

    calibration: str
    quantity: str
    unit: str
    error: float
    error_unit: str
    bar: float
    real: float | None = None
    twin: float | None = None
    held_out: bool = False

    @property
    def holds(self) -> bool:
        """Whether the error is within its bar; one that is no number is not."""
        return self.error <= self.bar

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"holds": self.holds}

    def __str__(self) -> str:
        sides = (
            "" if self.real is None else f"real {self.real:.4g}, twin {self.twin:.4g} {self.unit}, "
        )
        held = "held out" if self.held_out else "fitted"
        return (
            f"{self.calibration}: {self.quantity}: {sides}"
            f"error {self.error:.3g} {self.error_unit} (bar {self.bar:.3g}, {held})"
        )


def by_share(
    calibration: str,
    quantity: str,
    unit: str,
    *,
    real: float,
    twin: float,
    bar: float,
    of: float | None = None,
    held_out: bool = False,
) -> Comparison:
    """Compare two numbers: the error is their difference in percent of ``real``, or of ``of``."""
    error = 100.0 * abs(twin - real) / abs(real if of is None else of)
    return Comparison(
        calibration=calibration,
        quantity=quantity,
        unit=unit,
        real=real,
        twin=twin,
        error=error,
        error_unit="%",
        bar=bar,
        held_out=held_out,
    )


def by_difference(
    calibration: str,
    quantity: str,
    unit: str,
    *,
    real: float,
    twin: float,
    bar: float,
    held_out: bool = False,
) -> Comparison:
    """Compare two numbers: the error is their difference, in their own unit."""
    return Comparison(
        calibration=calibration,
        quantity=quantity,
        unit=unit,
        real=real,
        twin=twin,
        error=abs(twin - real),
        error_unit=unit,
        bar=bar,
        held_out=held_out,
    )
