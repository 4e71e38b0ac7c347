"""From the resources of one Redfish service to readings of meters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headroom.agent.devices import Block, Row
from headroom.agent.sources.periodic import SourceError
from headroom.agent.sources.redfish.readings import (
    QUANTITIES,
    Document,
    NotTold,
    pointed_at,
    quantity,
)
from headroom.agent.sources.redfish.service import Service

__all__ = ["RedfishMeter", "RedfishPoller"]

#: Where a chassis tells what, by the names of its links, best first. A path of two leads through
#: another resource.
_OF_CHASSIS: dict[str, tuple[tuple[str, ...], ...]] = {
    "power_w": (("EnvironmentMetrics",), ("Power",)),
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
        self._read: dict[str, Document] = {}
        #: What was found on the chassis, so that it need not be looked for again.
        self._found: dict[str, dict[str, str]] = {}

    def poll(self) -> Iterable[Row]:
        """Yield one row for each meter with any reading; raise for values that cannot be read."""
        self._read = {}
        failures: list[str] = []
        for meter in self._meters:
            row = {
                name: self._try(meter, name, place, failures)
                for name, place in self._places(meter, failures)
            }
            if any(value is not None for value in row.values()):
                yield {"meter": meter.meter, **row}
        if failures:
            self._found = {}
            raise SourceError("; ".join(failures))

    def close(self) -> None:
        """Close the session."""
        self._service.close()

    def _places(self, meter: RedfishMeter, failures: list[str]) -> list[tuple[str, str]]:
        found = dict(meter.places)
        if meter.chassis:
            try:
                if meter.chassis not in self._found:
                    self._found[meter.chassis] = self._find(meter.chassis)
                found = self._found[meter.chassis] | found
            except SourceError as exc:
                failures.append(f"{meter.meter}: {exc}")
        return list(found.items())

    def _find(self, chassis: str) -> dict[str, str]:
        """Return where the chassis tells each quantity, for those that it does."""
        found = {}
        for name, paths in _OF_CHASSIS.items():
            for path in paths:
                place = self._follow(chassis, path)
                if place and self._tells(place, name):
                    found[name] = place
                    break
        if not found:
            raise SourceError(f"{chassis} tells neither power nor energy nor temperature")
        return found

    def _follow(self, place: str, links: tuple[str, ...]) -> str:
        for link in links:
            target = self._get(place).get(link)
            place = str(target.get("@odata.id", "")) if isinstance(target, dict) else ""
            if not place:
                break
        return place

    def _tells(self, place: str, name: str) -> bool:
        try:
            quantity(self._get(place), name)
        except NotTold:
            return False
        return True

    def _try(self, meter: RedfishMeter, name: str, place: str, failures: list[str]) -> float | None:
        path, _, pointer = place.partition("#")
        try:
            document = self._get(path)
            return pointed_at(document, pointer) if pointer else quantity(document, name)
        except (SourceError, NotTold) as exc:
            failures.append(f"{meter.meter}: {exc}")
            return None

    def _get(self, path: str) -> Document:
        """Return a resource, asked for once in a poll: several meters may share it."""
        if path not in self._read:
            self._read[path] = self._service.get(path)
        return self._read[path]
