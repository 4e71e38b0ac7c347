"""The fields of NetBox's REST answers that are read (NetBox 3.5 and later)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct
from msgspec import field as default


class Choice(Struct):
    value: str


class Nested(Struct):
    id: int
    name: str = ""
    slug: str = ""


class Site(Struct):
    id: int
    name: str
    status: Choice | None = None
    time_zone: str | None = None
    custom_fields: dict[str, Any] = default(default_factory=dict)


class PowerPanel(Struct):
    id: int
    name: str
    site: Nested
    custom_fields: dict[str, Any] = default(default_factory=dict)


class PowerFeed(Struct):
    id: int
    name: str
    power_panel: Nested
    voltage: int
    amperage: int
    max_utilization: int
    rack: Nested | None = None
    status: Choice | None = None
    type: Choice | None = None
    phase: Choice | None = None


class Rack(Struct):
    id: int
    name: str
    site: Nested
    location: Nested | None = None
    status: Choice | None = None
    u_height: int = 42
    starting_unit: int = 1
    custom_fields: dict[str, Any] = default(default_factory=dict)


class DeviceType(Struct):
    id: int
    model: str = ""
    # Left out where it is nested in a device: the list of device types has it.
    u_height: float | None = None


class Device(Struct):
    id: int
    device_type: DeviceType
    site: Nested
    name: str | None = None
    role: Nested | None = None
    rack: Nested | None = None
    position: float | None = None
    status: Choice | None = None
    custom_fields: dict[str, Any] = default(default_factory=dict)
    config_context: dict[str, Any] | None = None


@dataclass(frozen=True)
class Records:
    """All that was read, as lists by NetBox's names."""

    sites: list[Site] = field(default_factory=list)
    power_panels: list[PowerPanel] = field(default_factory=list)
    power_feeds: list[PowerFeed] = field(default_factory=list)
    racks: list[Rack] = field(default_factory=list)
    device_types: list[DeviceType] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)
