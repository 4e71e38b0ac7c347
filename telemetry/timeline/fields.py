"""The fields of each kind of thing, and how several values of a field become one."""

from __future__ import annotations

from enum import Enum, StrEnum, auto

from headroom.contracts import ThrottleCause
from telemetry import samples
from telemetry.rollups.spec import ROLLUPS, seconds_of
from telemetry.samples import Table


class Kind(StrEnum):
    """The kind of a series. ``id`` is that of the thing; of a host that of its node."""

    GPU = "gpu"
    NODE = "node"
    RACK = "rack"
    LINK = "link"
    METER = "meter"
    HOST = "host"
    JOB = "job"
    ZONE = "zone"
    POWER_DOMAIN = "power_domain"
    SITE = "site"


class Over(Enum):
    """How several values become one."""

    MEAN = auto()
    GREATEST = auto()
    LEAST = auto()
    BITS = auto()
    SUM = auto()


#: Places of several racks: the sum of what their GPUs and nodes report.
PLACES = (Kind.ZONE, Kind.POWER_DOMAIN, Kind.SITE)

#: Where the readings of a kind are.
TABLES: dict[Kind, Table] = {
    Kind.GPU: samples.GPU,
    Kind.HOST: samples.HOST,
    Kind.LINK: samples.LINK,
    Kind.METER: samples.METER,
    Kind.JOB: samples.JOB,
}

#: What a row adds up to: how many readings it is of, and what ended in it.
READINGS, SUSPECT, USED, COVERED = "readings", "suspect", "used_j", "covered_s"
_SECONDS = tuple(seconds_of(cause) for cause in ThrottleCause)
SUMS = frozenset((READINGS, SUSPECT, USED, COVERED, *_SECONDS))

_OVER_TIME = {
    "throttle": Over.BITS,
    **dict.fromkeys(("energy_j", "ecc", "xid", "errors", "step", "mig_instances"), Over.GREATEST),
    **{c.name: Over.GREATEST for c in samples.GPU.fields if c.name.endswith("_ns")},
    **dict.fromkeys(SUMS, Over.SUM),
}

#: How the values of the GPUs of a node, a rack or a job become one.
ACROSS = {
    **dict.fromkeys(("power_limit_w", "energy_j", "mem_used", "ecc"), Over.SUM),
    **dict.fromkeys(("nvlink_tx", "nvlink_rx", "pcie_tx", "pcie_rx"), Over.SUM),
    **dict.fromkeys(("temp_c", "temp_mem_c"), Over.GREATEST),
    "temp_limit_c": Over.LEAST,
    **dict.fromkeys(("sm_mhz", "mem_mhz", "util", "mem_util", "mem_bw_util", "fan"), Over.MEAN),
    "throttle": Over.BITS,
    **dict.fromkeys(_SECONDS, Over.SUM),
}
#: What a node, a rack or a job has besides: its draw and energy, that of its GPUs alone, and what
#: both rest on.
POWER_FIELDS = ("power_w", "gpu_power_w", "nodes_reporting", "gpus_reporting", USED)

_GROUP_FIELDS = (*POWER_FIELDS, *ACROSS)
_WHOLE = frozenset(("nodes_reporting", "gpus_reporting", READINGS, SUSPECT))


def over_time(name: str) -> Over:
    """Return how the readings of one thing in one bucket become one value."""
    return _OVER_TIME.get(name, Over.MEAN)


def _own(kind: Kind) -> tuple[str, ...]:
    table = TABLES[kind]
    sums = {c.name for c in ROLLUPS[table.name].table(60).columns} & SUMS
    return (*(c.name for c in table.fields if not c.is_id), *sorted(sums))


#: What may be asked for, by kind.
FIELDS: dict[Kind, tuple[str, ...]] = {
    **{kind: _own(kind) for kind in TABLES},
    Kind.NODE: _GROUP_FIELDS,
    Kind.RACK: _GROUP_FIELDS,
    Kind.JOB: (*_own(Kind.JOB), *_GROUP_FIELDS),
    **dict.fromkeys(PLACES, POWER_FIELDS),
}
_MAIN = ("power_w", "power_limit_w", "temp_c", "sm_mhz", "util")
#: What is given when nothing is asked for.
DEFAULT_FIELDS: dict[Kind, tuple[str, ...]] = {
    **{kind: tuple(name for name in _own(kind) if name not in SUMS) for kind in TABLES},
    Kind.GPU: (*_MAIN, "throttle"),
    Kind.NODE: (*_MAIN, "throttle", "nodes_reporting", "gpus_reporting"),
    Kind.RACK: (*_MAIN, "throttle", "nodes_reporting", "gpus_reporting"),
    **dict.fromkeys(PLACES, tuple(name for name in POWER_FIELDS if name != USED)),
}


def is_whole(kind: Kind, name: str) -> bool:
    """Tell whether a field's values are whole numbers."""
    return name in _WHOLE or _pg_type(kind, name).startswith("int")


def is_single(kind: Kind, name: str) -> bool:
    """Tell whether a field has the 24 bits of a float4, and no more digits are to be shown."""
    return name not in SUMS and _pg_type(kind, name) == "float4"


def _pg_type(kind: Kind, name: str) -> str:
    # What is put together from GPUs has the types of theirs.
    for table in (TABLES.get(kind, samples.GPU), samples.GPU):
        for column in table.fields:
            if column.name == name:
                return column.pg_type
    return "float4"
