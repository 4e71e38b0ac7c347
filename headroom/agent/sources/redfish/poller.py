"""From the resources of one Redfish service to readings of meters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from headroom.agent.devices import Block, Row
from headroom.agent.sources.periodic import SourceError
from headroom.agent.sources.redfish.readings import (
    QUANTITIES,
    Document,
    NotTold,
    is_enabled,
    links_in,
    pointed_at,
    quantity,
)
from headroom.agent.sources.redfish.service import Service

__all__ = ["RedfishMeter", "RedfishPoller"]

#: The resources that tell a quantity, by its name. Of several it is the sum.
_Places: TypeAlias = dict[str, tuple[str, ...]]

#: The metrics of a chassis' power supplies, which add up.
_SUPPLIES = ("PowerSubsystem", "PowerSupplies", "Members", "Metrics")
#: Where a chassis tells what, by the names of its links, best first. A longer path leads through
#: other resources.
_OF_CHASSIS: dict[str, tuple[tuple[str, ...], ...]] = {
    "power_w": (("EnvironmentMetrics",), ("Power",), _SUPPLIES),
    "energy_j": (("EnvironmentMetrics",),),
    "temp_c": (("ThermalSubsystem", "ThermalMetrics"), ("Thermal",), ("EnvironmentMetrics",)),
}


@dataclass(frozen=True)
class RedfishMeter:
    """A meter of the inventory, and where its readings are.

    ``chassis`` is a resource whose links lead to them. The others name a resource each, with the
    property in it after ``#`` where that is not plain.
    """

    meter: str
    chassis: str = ""
    power: str = ""
    energy: str = ""
    temp: str = ""

    @property
    def places(self) -> dict[str, str]:
        """The resources that were named, by quantity."""
        named = dict(zip(QUANTITIES, (self.power, self.energy, self.temp), strict=True))
        return {name: place for name, place in named.items() if place}


class RedfishPoller:
    """The meters of one service."""

    block: Block = "meters"

    def __init__(self, service: Service, meters: Sequence[RedfishMeter]) -> None:
        self._service = service
        self._meters = meters
        self._read: dict[str, Document | SourceError] = {}
        #: What was found on the chassis, so that it need not be looked for again.
        self._found: dict[str, _Places] = {}

    def poll(self) -> Iterable[Row]:
        """Yield one row for each meter with any reading; raise for values that cannot be read."""
        self._read = {}
        failures: list[str] = []
        were_read = True
        for meter in self._meters:
            places = self._places(meter, failures)
            row: dict[str, float | None] = {}
            for name, where in places.items():
                try:
                    row[name] = self._sum(name, where)
                except (SourceError, NotTold) as exc:
                    failures.append(f"{meter.meter}: {exc}")
                    row[name], were_read = None, False
            if any(value is not None for value in row.values()):
                yield {"meter": meter.meter, **row}
        if not were_read:
            self._found = {}
        if failures:
            raise SourceError("; ".join(failures))

    def close(self) -> None:
        """Close the session."""
        self._service.close()

    def _places(self, meter: RedfishMeter, failures: list[str]) -> _Places:
        named: _Places = {name: (place,) for name, place in meter.places.items()}
        if not meter.chassis:
            return named
        if meter.chassis not in self._found:
            try:
                self._found[meter.chassis] = self._find(meter.chassis)
            except SourceError as exc:
                failures.append(f"{meter.meter}: {exc}")
                return named
            found = self._found[meter.chassis] | named
            # It is said when the chassis is looked at, not with every poll: there may be none.
            if not found:
                del self._found[meter.chassis]
                failures.append(
                    f"{meter.meter}: {meter.chassis} tells neither power nor energy nor temperature"
                )
            elif not {"power_w", "energy_j"} & found.keys():
                failures.append(f"{meter.meter}: {meter.chassis} tells neither power nor energy")
        return self._found.get(meter.chassis, {}) | named

    def _find(self, chassis: str) -> _Places:
        """Return where the chassis tells each quantity, for those that it does."""
        self._get(chassis)
        found: _Places = {}
        for name, paths in _OF_CHASSIS.items():
            for path in paths:
                places = self._follow(chassis, path)
                if places and all(self._tells(place, name) for place in places):
                    found[name] = places
                    break
        return found

    def _follow(self, place: str, links: tuple[str, ...]) -> tuple[str, ...]:
        """Return the resources at the end of a path of links: parts that are not there left out."""
        places = [place]
        for link in links:
            documents = filter(None, map(self._get_or_none, places))
            places = [to for each in documents if is_enabled(each) for to in links_in(each, link)]
        return tuple(places)

    def _tells(self, place: str, name: str) -> bool:
        try:
            quantity(self._get(place), name)
        except (NotTold, SourceError):
            return False
        return True

    def _sum(self, name: str, places: tuple[str, ...]) -> float | None:
        """Return the sum over the parts that tell a quantity; None where one has no reading now."""
        values = [self._value(name, place) for place in places]
        known = [value for value in values if value is not None]
        return sum(known) if len(known) == len(values) else None

    def _value(self, name: str, place: str) -> float | None:
        path, _, pointer = place.partition("#")
        document = self._get(path)
        return pointed_at(document, pointer) if pointer else quantity(document, name)

    def _get_or_none(self, path: str) -> Document | None:
        try:
            return self._get(path)
        except SourceError:
            return None

    def _get(self, path: str) -> Document:
        """Return a resource, asked for once in a poll: several meters may share it.

        One that is slow, or broken, is not waited for again by the next of them.
        """
        if path not in self._read:
            try:
                self._read[path] = self._service.get(path)
            except SourceError as exc:
                self._read[path] = exc
        found = self._read[path]
        if isinstance(found, SourceError):
            raise found
        return found
