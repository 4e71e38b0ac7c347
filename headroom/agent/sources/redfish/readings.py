"""Power, energy and temperature from a Redfish resource, in W, J and °C.

The same quantity stands in different places: sensors (``Reading`` with ``ReadingUnits``), excerpts
of sensors in metrics resources (``PowerWatts``, ``EnergykWh``, …), and properties of the older
``Power`` and ``Thermal`` resources. Names and units from DMTF's Redfish schemas (DSP8010).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

__all__ = [
    "QUANTITIES",
    "Document",
    "NotTold",
    "is_enabled",
    "links_in",
    "pointed_at",
    "quantity",
]

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
        except NotTold:
            continue
    raise NotTold(f"{document.get('@odata.id', 'the resource')} does not tell {name}")


def pointed_at(document: Document, pointer: str) -> float | None:
    """Return the number that a JSON pointer (``/PowerControl/0/PowerConsumedWatts``) leads to."""
    steps = [int(step) if step.isdecimal() else step for step in pointer.strip("/").split("/")]
    try:
        return _number(_in(document, *steps))
    except NotTold as exc:
        raise NotTold(f"{document.get('@odata.id')} has no number at {pointer}") from exc


def links_in(document: Document, *path: str | int) -> list[str]:
    """Return the resources that a link, or a list of links, in ``document`` leads to."""
    try:
        found = _in(document, *path)
    except NotTold:
        return []
    links = found if isinstance(found, list) else [found]
    places = (each.get("@odata.id") for each in links if isinstance(each, dict))
    return [place for place in places if isinstance(place, str) and place]


def is_enabled(document: Any) -> bool:
    """Say whether the part is there and works. What does not say so is."""
    try:
        return bool(_in(document, "Status", "State") in (None, "Enabled"))
    except NotTold:
        return True


def _in(document: Any, *path: str | int) -> Any:
    """Return what is at ``path``, whatever it is. Raises :class:`NotTold`."""
    found = document
    for step in path:
        is_there = isinstance(found, dict) and step in found
        if isinstance(found, list) and isinstance(step, int) and step < len(found):
            is_there = True
        if not is_there:
            raise NotTold(f"has no {step}")
        found = found[step]
    return found


def _of_sensor(document: Document, name: str) -> float | None:
    factor = _UNITS[name].get(str(_in(document, "ReadingUnits")))
    if factor is None:
        raise NotTold("has another unit")
    reading = document.get("Reading")
    return _scaled(reading, factor) if is_enabled(document) else None


def _of_excerpt(document: Document, name: str) -> float | None:
    for key, factor in _EXCERPTS[name]:
        excerpt = document.get(key)
        if isinstance(excerpt, dict):
            # What a reset does not take back, where the device keeps that too.
            reading = excerpt.get("LifetimeReading")
            return _scaled(_in(excerpt, "Reading") if reading is None else reading, factor)
        if key in document:  # some write the number itself
            return _scaled(excerpt, factor)
    raise NotTold(name)


def _of_older_resource(document: Document, name: str) -> float | None:
    if name == "power_w":
        return _number(_in(document, "PowerControl", 0, "PowerConsumedWatts"))
    if name == "temp_c":
        return _intake_c(document)
    raise NotTold(name)


def _intake_c(document: Document) -> float | None:
    """Return the intake's temperature out of ``ThermalMetrics`` or ``Thermal``."""
    summary = document.get("TemperatureSummaryCelsius")
    if isinstance(summary, dict):
        excerpts = {place: each for place, each in summary.items() if isinstance(each, dict)}
        return _number(_in(_first(excerpts), "Reading"))
    listed = document.get("Temperatures")
    sensors = [each for each in listed if is_enabled(each)] if isinstance(listed, list) else []
    by_place = {
        str(each.get("PhysicalContext")): each
        for each in reversed(sensors)
        if isinstance(each, dict)
    }
    return _number(_in(_first(by_place), "ReadingCelsius"))


def _first(by_place: Mapping[str, Document]) -> Document:
    """Return what is at the intake, as far as anything is."""
    for place in _INTAKE:
        if place in by_place:
            return by_place[place]
    raise NotTold("temp_c")


def _scaled(reading: Any, factor: float) -> float | None:
    number = _number(reading)
    return None if number is None else number * factor


def _number(found: Any) -> float | None:
    """Return a number, or None for null. Raises :class:`NotTold` for everything else."""
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise NotTold(f"{str(found)[:40]!r} is no number")
    return float(found)
