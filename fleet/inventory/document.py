"""The types of an inventory file. docs/reference/inventory.md describes each field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NoReturn, TypeAlias

from msgspec import Meta, Struct, field

from fleet import bounds
from fleet.inventory import reader
from fleet.inventory.exceptions import InventoryError, Problem
from fleet.models.validators import MOST_LABEL_CHARACTERS
from headroom.contracts import PLAIN

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200, pattern=PLAIN)]
_SiteName: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=200, pattern=PLAIN.replace("[^", "[^/"))
]
_Text: TypeAlias = Annotated[str, Meta(max_length=200, pattern=PLAIN)]
_Label: TypeAlias = Annotated[str, Meta(max_length=MOST_LABEL_CHARACTERS, pattern=PLAIN)]
_Reference: TypeAlias = Name | None
_PartWatts: TypeAlias = Annotated[float, Meta(ge=0, le=bounds.MOST_PART_W)]
_PlaceWatts: TypeAlias = Annotated[float, Meta(ge=0, le=bounds.MOST_PLACE_W)]
_Celsius: TypeAlias = Annotated[float, Meta(ge=bounds.COLDEST_C, le=bounds.HOTTEST_C)]
_Megahertz: TypeAlias = Annotated[float, Meta(ge=0, le=bounds.MOST_MHZ)]
_BytesPerSecond: TypeAlias = Annotated[float, Meta(ge=0, le=bounds.MOST_BYTES_PER_S)]
_BitsPerSecond: TypeAlias = Annotated[float, Meta(ge=0, le=bounds.MOST_BITS_PER_S)]
_Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=bounds.MOST_SECONDS)]
_Units: TypeAlias = Annotated[int, Meta(ge=1, le=32_767)]
_Index: TypeAlias = Annotated[int, Meta(ge=0, le=32_767)]
_Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]


class _Part(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A mapping in an inventory."""


class HardwareEntry(_Part, kw_only=True):
    name: Name
    kind: Literal["gpu", "node"]
    vendor: _Text = ""
    rated_w: _PartWatts
    idle_w: _PartWatts = 0.0
    slowdown_c: _Celsius | None = None
    slowdown_mem_c: _Celsius | None = None
    shutdown_c: _Celsius | None = None
    sm_max_mhz: _Megahertz | None = None
    mem_bytes: Annotated[int, Meta(ge=0, le=bounds.MOST_BYTES)] | None = None
    cores: Annotated[int, Meta(ge=1, le=bounds.MOST_CORES)] | None = None


class PowerDomainEntry(_Part, kw_only=True):
    name: Name
    kind: Literal["utility", "feed", "panel", "pdu"]
    parent: _Reference = None
    capacity_w: _PlaceWatts
    derating: Annotated[float, Meta(ge=0.01, le=1)] = 1.0
    pair: _Text = ""
    side: Literal["A", "B", ""] = ""


class CoolingZoneEntry(_Part, kw_only=True):
    name: Name
    kind: Literal["air", "rear-door", "direct-to-chip", "immersion"]
    capacity_w: _PlaceWatts
    supply_c: _Celsius | None = None


class StorageEndpointEntry(_Part, kw_only=True):
    name: Name
    capacity_bytes_per_s: _BytesPerSecond | None = None


_Slices: TypeAlias = Annotated[list[Annotated[str, Meta(max_length=20)]], Meta(max_length=16)]


class GpuGroup(_Part, kw_only=True):
    """GPUs 0 to ``count`` - 1, of one model, all split into the same slices."""

    model: Name
    count: Annotated[int, Meta(ge=0, le=1024)]
    slices: _Slices = field(default_factory=list)


class GpuEntry(_Part, kw_only=True):
    index: _Index
    model: Name
    uuid: Annotated[str, Meta(max_length=64, pattern=PLAIN)] = ""
    slices: _Slices = field(default_factory=list)


class NodeEntry(_Part, kw_only=True):
    name: Name
    model: _Reference = None
    position_u: _Units | None = None
    height_u: _Units = 8
    switch_domain: _Text = ""
    storage_endpoint: _Reference = None
    labels: dict[_Label, _Label] = field(default_factory=dict)
    gpus: GpuGroup | list[GpuEntry] = field(default_factory=list)


class RackEntry(_Part, kw_only=True):
    name: Name
    row: Annotated[str, Meta(max_length=50, pattern=PLAIN)] = ""
    position: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    height_u: _Units = 48
    budget_w: _PlaceWatts
    feed_a: _Reference = None
    feed_b: _Reference = None
    cooling_zone: _Reference = None
    nodes: list[NodeEntry] = field(default_factory=list)


class SiteEntry(_Part, kw_only=True):
    name: _SiteName
    budget_w: _PlaceWatts | None = None
    time_zone: Annotated[str, Meta(min_length=1, max_length=64)] = "UTC"
    power_domains: list[PowerDomainEntry] = field(default_factory=list)
    cooling_zones: list[CoolingZoneEntry] = field(default_factory=list)
    storage_endpoints: list[StorageEndpointEntry] = field(default_factory=list)
    racks: list[RackEntry] = field(default_factory=list)


class LinkEntry(_Part, kw_only=True):
    name: Name
    kind: Literal["nvlink", "rail", "leaf-uplink", "spine", "wan"]
    site: Name
    rack: _Reference = None
    node: _Reference = None
    peer_site: _Reference = None
    capacity_bits_per_s: _BitsPerSecond
    latency_s: _Seconds | None = None
    control_share: _Share = 0.0


class MeterEntry(_Part, kw_only=True):
    name: Name
    kind: Literal["power", "temperature"] = "power"
    site: _Reference = None
    power_domain: _Reference = None
    cooling_zone: _Reference = None
    rack: _Reference = None
    node: _Reference = None


class Document(_Part, kw_only=True):
    hardware_models: list[HardwareEntry] = field(default_factory=list)
    sites: list[SiteEntry] = field(default_factory=list)
    links: list[LinkEntry] = field(default_factory=list)
    meters: list[MeterEntry] = field(default_factory=list)


@dataclass(frozen=True)
class Inventory:
    """A document, and the text that it came from, if any."""

    document: Document
    text: str = ""
    source: str = "inventory"

    def refuse(self, problems: list[Problem]) -> NoReturn:
        """Raise InventoryError with the lines of ``problems``."""
        raise InventoryError(with_lines(problems, self.text), self.source)


def with_lines(problems: list[Problem], text: str) -> list[Problem]:
    """Return ``problems`` with their lines in ``text``, in its order."""
    if not text:
        return problems
    lines = reader.locate(text, [problem.path for problem in problems])
    found = [Problem(each.path, each.message, lines.get(each.path, 1)) for each in problems]
    return sorted(found, key=lambda problem: problem.line or 0)
