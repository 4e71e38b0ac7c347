"""Power, energy and temperature from a Redfish resource, in W, J and °C.

The same quantity stands in different places: sensors (``Reading`` with ``ReadingUnits``), excerpts
of sensors in metrics resources (``PowerWatts``, ``EnergykWh``, …), and properties of the older
``Power`` and ``Thermal`` resources. Names and units from DMTF's Redfish schemas (DSP8010).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

__all__ = ["QUANTITIES", "Document", "NotTold", "pointed_at", "quantity"]

Document: TypeAlias = Mapping[str, Any]

_KWH_J = 3.6e6
#: What one of a unit is in ours. Redfish writes units in UCUM.
_UNITS: dict[str, dict[str, float]] = {
    "power_w": {"W": 1.0, "mW": 1e-3, "kW": 1e3},
    "energy_j": {"J": 1.0, "kJ": 1e3, "W.h": 3600.0, "kW.h": _KWH_J},
    "temp_c": {"Cel": 1.0},
}
#: Excerpts of sensors, best first, and what one of their unit is in ours.
_EXCERPTS: dict[str, tuple[tuple[str, float], ...]] = {
    "power_w": (("PowerWatts", 1.0), ("InputPowerWatts", 1.0)),
    "energy_j": (("EnergyJoules", 1.0), ("EnergykWh", _KWH_J)),
    "temp_c": (("TemperatureCelsius", 1.0),),
}
#: Of the places where a chassis is measured, the one that says how cool the air is that it gets.
_INTAKE = ("Intake", "Ambient")

QUANTITIES = tuple(_UNITS)


class NotTold(Exception):
    """The resource says nothing of the quantity."""


def quantity(document: Document, name: str) -> float | None:
    """Return one of ``QUANTITIES`` from a resource; None where its sensor has no reading now.

    Raises :class:`NotTold` where the resource is not one that could tell it.
    """
    readers: tuple[Callable[[Document, str], float | None], ...] = (
        _of_sensor,
        _of_excerpt,
        _of_older_resource,
    )
    for reader in readers:
        try:
            return reader(document, name)
        except (KeyError, IndexError, TypeError):
            continue
    raise NotTold(f"{document.get('@odata.id', 'the resource')} does not tell {name}")


def pointed_at(document: Document, pointer: str) -> float | None:
    """Return the number that a JSON pointer (``/PowerControl/0/PowerConsumedWatts``) leads to."""
    found: Any = document
    try:
        for step in pointer.strip("/").split("/"):
            found = found[int(step)] if isinstance(found, list) else found[step]
    except (KeyError, IndexError, TypeError, ValueError) as exc:
        raise NotTold(f"{document.get('@odata.id')} has no {pointer}") from exc
    return _number(found)


def _of_sensor(document: Document, name: str) -> float | None:
    unit, reading = document["ReadingUnits"], document.get("Reading")
    if unit not in _UNITS[name]:
        raise KeyError(unit)
    return _scaled(reading, _UNITS[name][unit]) if _is_enabled(document) else None


def _of_excerpt(document: Document, name: str) -> float | None:
    for key, factor in _EXCERPTS[name]:
        if key in document:
            excerpt = document[key]
            # What a reset does not take back, where the device keeps that too.
            reading = excerpt.get("LifetimeReading", excerpt["Reading"])
            return _scaled(reading, factor)
    raise KeyError(name)


def _of_older_resource(document: Document, name: str) -> float | None:
    if name == "power_w":
        return _number(document["PowerControl"][0]["PowerConsumedWatts"])
    if name == "temp_c":
        return _intake_c(document)
    raise KeyError(name)


def _intake_c(document: Document) -> float | None:
    """Return the intake's temperature out of ``ThermalMetrics`` or ``Thermal``."""
    summary = document.get("TemperatureSummaryCelsius")
    if summary is not None:
        return _number(_first(summary.get(place) for place in _INTAKE)["Reading"])
    sensors = [each for each in document["Temperatures"] if _is_enabled(each)]
    by_place = {each.get("PhysicalContext"): each for each in reversed(sensors)}
    return _number(_first(by_place.get(place) for place in _INTAKE)["ReadingCelsius"])


def _first(candidates: Iterable[Document | None]) -> Document:
    """Return the first existing one. Raises ``IndexError``."""
    return [each for each in candidates if each is not None][0]  # noqa: RUF015 -- not StopIteration


def _is_enabled(document: Document) -> bool:
    return bool(document.get("Status", {}).get("State", "Enabled") == "Enabled")


def _scaled(reading: Any, factor: float) -> float | None:
    number = _number(reading)
    return None if number is None else number * factor


def _number(found: Any) -> float | None:
    """Return a number, or None for null. Raises ``TypeError`` for everything else."""
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise TypeError(f"{found!r} is no number")
    return float(found)
