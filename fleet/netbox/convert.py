"""NetBox's records as an inventory. Pure.

What is read beside NetBox's own fields: the custom fields ``power_budget_w`` (site, rack),
``capacity_w`` (power panel), ``row`` and ``row_position`` (rack), ``gpu_count`` and ``gpu_model``
(device; or the same two in its config context).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from typing import Any, Literal, TypeAlias

from fleet.inventory.document import (
    Document,
    GpuGroup,
    NodeEntry,
    PowerDomainEntry,
    RackEntry,
    SiteEntry,
)
from fleet.models.validators import time_zones
from fleet.netbox.records import Choice, Device, PowerFeed, PowerPanel, Rack, Records, Site

#: Pair and side by the id of a feed.
_Pairs: TypeAlias = dict[int, tuple[str, Literal["A", "B", ""]]]

#: Things with these statuses are not there, or not to be counted on.
_ABSENT = frozenset({"planned", "staging", "inventory", "decommissioning", "retired", "deprecated"})
_ABSENT_FEED = _ABSENT | {"offline"}


def convert(found: Records, hardware: Collection[str]) -> tuple[Document, list[str]]:
    """Return the inventory in ``found``, with notes of omissions and assumptions.

    ``hardware`` are the names of the hardware models that the fleet knows.
    """
    converter = _Converter(found, hardware)
    sites = [converter.site(site) for site in found.sites if _present(site.status)]
    return Document(sites=sites), converter.notes()


def _present(status: Choice | None, absent: frozenset[str] = _ABSENT) -> bool:
    return status is None or status.value not in absent


def _number(fields: dict[str, Any] | None, name: str) -> float | None:
    """Return a custom field as a number that is not negative, or None."""
    value = (fields or {}).get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def _capacity_w(feed: PowerFeed) -> float:
    """Rated capacity, W. Of direct current the sign of the voltage is its polarity."""
    phases = math.sqrt(3) if feed.phase is not None and feed.phase.value == "three-phase" else 1
    return abs(feed.voltage) * feed.amperage * phases


def _is_redundant(feed: PowerFeed) -> bool:
    return feed.type is not None and feed.type.value == "redundant"


class _Converter:
    def __init__(self, found: Records, hardware: Collection[str]) -> None:
        self._hardware = hardware
        self._left_out: Counter[str] = Counter()
        self._notes: list[str] = []
        self._heights_u = {each.id: each.u_height for each in found.device_types}
        self._panels: dict[int, list[PowerPanel]] = defaultdict(list)
        self._feeds_of_panel: dict[int, list[PowerFeed]] = defaultdict(list)
        self._feeds_of_rack: dict[int, list[PowerFeed]] = defaultdict(list)
        self._racks: dict[int, list[Rack]] = defaultdict(list)
        self._devices: dict[int, list[Device]] = defaultdict(list)
        self._rack_ids: set[int] = set()
        self._sort(found)

    def notes(self) -> list[str]:
        counted = [f"{count:,} x {what}" for what, count in sorted(self._left_out.items())]
        return self._notes + counted

    def _sort(self, found: Records) -> None:
        """Put each record to its owner; note those that are absent."""
        absent = {site.id for site in found.sites if not _present(site.status)}
        self._left_out.update({"site left out: not in use": len(absent)} if absent else {})
        for panel in found.power_panels:
            self._panels[panel.site.id].append(panel)
        for feed in found.power_feeds:
            if not _present(feed.status, _ABSENT_FEED):
                self._left_out["power feed left out: planned or offline"] += 1
                continue
            self._feeds_of_panel[feed.power_panel.id].append(feed)
            if feed.rack is not None:
                self._feeds_of_rack[feed.rack.id].append(feed)
        for rack in found.racks:
            if not _present(rack.status):
                self._left_out["rack left out: planned or deprecated"] += 1
            elif rack.site.id not in absent:
                self._racks[rack.site.id].append(rack)
                self._rack_ids.add(rack.id)
        for device in found.devices:
            self._put_device(device)

    def _put_device(self, device: Device) -> None:
        if not _gpu_count(device):
            self._left_out["device left out: no gpu_count"] += 1
        elif not _present(device.status):
            self._left_out["node left out: planned, in store, or on its way out"] += 1
        elif not device.name:
            self._notes.append(f"device {device.id} left out: it has GPUs but no name")
        elif device.rack is None:
            self._notes.append(f"node {device.name} left out: it is in no rack")
        elif device.rack.id not in self._rack_ids:
            self._left_out["node left out: its rack is"] += 1
        else:
            self._devices[device.rack.id].append(device)

    def site(self, site: Site) -> SiteEntry:
        racks = self._racks[site.id]
        pairs = self._pairs(racks)
        time_zone = site.time_zone or "UTC"
        if time_zone not in time_zones():
            self._notes.append(f"site {site.name}: unknown time zone {time_zone!r}; UTC is taken")
            time_zone = "UTC"
        name = site.name.replace("/", "-")
        if name != site.name:
            self._notes.append(f"site {site.name} is called {name}: names of sites have no slash")
        return SiteEntry(
            name=name,
            budget_w=_number(site.custom_fields, "power_budget_w"),
            time_zone=time_zone,
            power_domains=[
                domain for panel in self._panels[site.id] for domain in self._panel(panel, pairs)
            ],
            racks=self._placed(racks),
        )

    def _pairs(self, racks: Iterable[Rack]) -> _Pairs:
        """Return pair and side of each feed that is one of the two of its rack."""
        pairs: _Pairs = {}
        for rack in racks:
            feeds = self._feeds_of_rack[rack.id]
            sides = {_is_redundant(feed): feed for feed in reversed(feeds)}
            if len(sides) == 2:
                pairs[sides[False].id] = (rack.name, "A")
                pairs[sides[True].id] = (rack.name, "B")
            for feed in feeds:
                if feed is not sides[_is_redundant(feed)]:
                    kind = "redundant" if _is_redundant(feed) else "primary"
                    self._notes.append(
                        f"rack {rack.name}: its further {kind} feed {feed.name} is not on the "
                        "rack: a rack has one feed for each side"
                    )
        return pairs

    def _panel(self, panel: PowerPanel, pairs: _Pairs) -> Iterable[PowerDomainEntry]:
        feeds = self._feeds_of_panel[panel.id]
        capacity_w = _number(panel.custom_fields, "capacity_w")
        if capacity_w is None:
            capacity_w = sum(map(_capacity_w, feeds))
            self._left_out["power panel without capacity_w: the sum of its feeds is taken"] += 1
        yield PowerDomainEntry(name=panel.name, kind="panel", capacity_w=capacity_w)
        for feed in feeds:
            pair, side = pairs.get(feed.id, ("", ""))
            yield PowerDomainEntry(
                name=_feed_name(feed),
                kind="feed",
                parent=panel.name,
                capacity_w=_capacity_w(feed),
                derating=min(max(feed.max_utilization, 1), 100) / 100,
                pair=pair,
                side=side,
            )

    def _placed(self, racks: list[Rack]) -> list[RackEntry]:
        """Return racks with their places: as the custom fields say, else by name in a location."""
        entries = []
        filled: Counter[str] = Counter()
        for rack in sorted(racks, key=lambda rack: rack.name):
            row = rack.custom_fields.get("row")
            if not isinstance(row, str):
                row = rack.location.name if rack.location is not None else ""
            place = _number(rack.custom_fields, "row_position")
            position = filled[row] if place is None else int(place)
            entries.append(self._rack(rack, row[:50], position))
            filled[row] += 1
        return entries

    def _rack(self, rack: Rack, row: str, position: int) -> RackEntry:
        # The first of each side, as in _pairs().
        sides = {_is_redundant(feed): feed for feed in reversed(self._feeds_of_rack[rack.id])}
        budget_w = _number(rack.custom_fields, "power_budget_w")
        if budget_w is None:
            usable_w = [_capacity_w(feed) * feed.max_utilization / 100 for feed in sides.values()]
            if not usable_w:
                self._notes.append(
                    f"rack {rack.name}: neither power_budget_w nor a feed; its budget is 0 W"
                )
            # Either side has to carry the rack alone.
            budget_w = min(usable_w, default=0.0)
        return RackEntry(
            name=rack.name,
            row=row,
            position=position,
            height_u=rack.u_height,
            budget_w=budget_w,
            feed_a=_feed_name(sides[False]) if False in sides else None,
            feed_b=_feed_name(sides[True]) if True in sides else None,
            nodes=[self._node(rack, device) for device in self._devices[rack.id]],
        )

    def _node(self, rack: Rack, device: Device) -> NodeEntry:
        model = device.device_type.model
        if model not in self._hardware:
            self._left_out[
                f"node without hardware model: {model!r} is unknown, so its host's draw is too"
            ] += 1
        height_u = device.device_type.u_height
        if height_u is None:
            height_u = self._heights_u.get(device.device_type.id)
        labels = {} if device.role is None else {"role": device.role.slug or device.role.name}
        return NodeEntry(
            name=device.name or "",
            model=model if model in self._hardware else None,
            position_u=self._position_u(rack, device),
            height_u=max(math.ceil(height_u or 1), 1),
            labels=labels,
            gpus=self._gpus(device),
        )

    def _position_u(self, rack: Rack, device: Device) -> int | None:
        if device.position is None:
            return None
        if device.position != int(device.position):
            self._notes.append(f"node {device.name}: its position is a half unit; rounded down")
        return int(device.position) - rack.starting_unit + 1

    def _gpus(self, device: Device) -> GpuGroup | list[Any]:
        model = _either(device, "gpu_model")
        if not isinstance(model, str) or not model:
            self._notes.append(f"node {device.name}: no gpu_model, so its GPUs are left out")
            return []
        return GpuGroup(model=model, count=_gpu_count(device))


def _feed_name(feed: PowerFeed) -> str:
    """Return a name that is unique at the site: NetBox's is unique within its panel only."""
    return f"{feed.power_panel.name}/{feed.name}"


def _either(device: Device, name: str) -> Any:
    """Return a custom field, or the value of that name in the config context."""
    value = device.custom_fields.get(name)
    return (device.config_context or {}).get(name) if value is None else value


def _gpu_count(device: Device) -> int:
    value = _either(device, "gpu_count")
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
