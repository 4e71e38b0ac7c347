"""The roll-up tables: which columns a minute and an hour of each kind of reading have.

A field keeps its name and stands for the mean over the bucket; what only counts up, and masks,
stand for their last state (the greatest value, all bits). ``_min``, ``_max`` and ``_p95`` stand
beside the fields that people look at. ``_n`` is the number of readings of a field where that
differs from ``readings``, and null where it does not, so that it costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headroom.contracts import ThrottleCause
from headroom.traffic import TrafficClass, reading_of
from telemetry import samples
from telemetry.samples import Column, Table
from telemetry.store.columns import SupersedingTable

MINUTE_S, HOUR_S = 60, 3600

#: Two readings further apart than this are not joined: what was drawn in between is unknown, s.
MAX_GAP_S = 180

#: An energy counter that is read no further apart than this counts for all that lies in between, s.
MAX_COUNTED_GAP_S = 15

ALL = ("min", "max", "p95")
_PEAK = ("max",)

#: The cumulative counter of each cause, ns; None: it has only its bit in the mask.
CAUSES: dict[ThrottleCause, str | None] = {
    cause: f"throttle_{cause.token}_ns" for cause in ThrottleCause
} | {ThrottleCause.DISPLAY_CLOCK: None}


def seconds_of(cause: ThrottleCause) -> str:
    """Return the column with the seconds for which ``cause`` held."""
    return f"{cause.token}_s"


@dataclass(frozen=True)
class Rollup:
    """How one sample table is rolled up."""

    source: Table
    #: Fields whose mean is kept, each with what is kept besides.
    gauges: dict[str, tuple[str, ...]]
    #: Fields of which the greatest value is kept.
    counters: tuple[str, ...] = ()
    #: Fields of which all bits are kept.
    masks: tuple[str, ...] = ()
    #: Where power is read, the first that is known counts; empty: there is none.
    power: tuple[str, ...] = ()
    #: The cumulative counter of energy, which counts before power.
    energy: str | None = None
    causes: dict[ThrottleCause, str | None] = field(default_factory=dict)
    #: The column with the job that had most of the readings.
    job: str | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns of the source that have to be read."""
        names = [*self.gauges, *self.counters, *self.masks]
        names += [name for name in self.causes.values() if name] + ([self.job] if self.job else [])
        return tuple(dict.fromkeys(names))

    @property
    def edge_inputs(self) -> tuple[str, ...]:
        """The columns of which the reading before a bucket's first has to be known."""
        names = [*self.power, *([self.energy] if self.energy else []), *self.masks]
        return (*names, *(name for name in self.causes.values() if name))

    def table(self, width_s: int) -> SupersedingTable:
        """Return the table with buckets of ``width_s``."""
        suffix = {MINUTE_S: "minute", HOUR_S: "hour"}[width_s]
        name = self.source.name.replace("sample", suffix)
        return SupersedingTable(name, self.source.key, tuple(self._columns()))

    def _columns(self) -> list[Column]:
        types = {column.name: column.pg_type for column in self.source.columns}
        found = [Column("ts", "timestamptz"), Column(self.source.key, "int4")]
        found.append(Column("readings", "int4"))
        if self.power:
            found += [Column("suspect", "int4"), Column("used_j", "float8")]
            found.append(Column("covered_s", "float4"))
        for name, stats in self.gauges.items():
            found.append(Column(f"{name}_n", "int4"))
            found.append(Column(name, "float4"))
            found += [Column(f"{name}_{stat}", "float4") for stat in stats]
        found += [Column(name, types[name]) for name in (*self.counters, *self.masks)]
        found += [Column(seconds_of(cause), "float4") for cause in self.causes]
        return found + ([Column(self.job, "int4")] if self.job else [])


#: What nobody looks at over a day is left out: a cause's cumulative nanoseconds (its seconds in
#: each bucket are there), and the least and the 95th percentile of what only its peak matters of.
ROLLUPS: dict[str, Rollup] = {
    rollup.source.name: rollup
    for rollup in (
        Rollup(
            samples.GPU,
            gauges={
                **dict.fromkeys(("power_w", "temp_c", "temp_mem_c", "sm_mhz", "util"), ALL),
                **dict.fromkeys(
                    ("mem_used", "fan", "nvlink_tx", "nvlink_rx", "pcie_tx", "pcie_rx"), _PEAK
                ),
                **dict.fromkeys(("power_limit_w", "mem_mhz"), ("min",)),
                "temp_limit_c": (),
                **dict.fromkeys(("mem_util", "mem_bw_util"), _PEAK),
            },
            counters=("energy_j", "ecc", "xid", "mig_instances"),
            masks=("throttle",),
            power=("power_w",),
            energy="energy_j",
            causes=CAUSES,
            job="job_id",
        ),
        Rollup(
            samples.HOST,
            gauges={
                **dict.fromkeys(("power_w", "cpu_power_w", "cpu_util"), ALL),
                **dict.fromkeys(
                    ("psi_cpu", "psi_mem", "psi_io", "net_rx_bytes_per_s", "net_tx_bytes_per_s"),
                    _PEAK,
                ),
                "mem_used": _PEAK,
                "mem_total": (),
            },
            power=("power_w", "cpu_power_w"),
        ),
        Rollup(
            samples.LINK,
            gauges={
                **dict.fromkeys(
                    ("tx_bytes_per_s", "rx_bytes_per_s", "latency_s", "retransmits_per_s"), ALL
                ),
                **dict.fromkeys(map(reading_of, TrafficClass), _PEAK),
            },
            counters=("errors",),
        ),
        Rollup(
            samples.METER,
            gauges={"power_w": ALL, "temp_c": ("min", "max")},
            counters=("energy_j",),
            power=("power_w",),
            energy="energy_j",
        ),
        Rollup(
            samples.JOB,
            gauges={
                "step_time_s": ALL,
                **dict.fromkeys(("loss", "samples_per_s"), ("min", "max")),
                **dict.fromkeys(
                    ("tokens_per_s", "data_wait_s", "sync_s", "lost_share", "rank_spread"), _PEAK
                ),
                "rank_mem_bytes": _PEAK,
                "flops_per_step": (),
            },
            counters=("step",),
        ),
    )
}


def tables(width_s: int) -> dict[str, SupersedingTable]:
    """Return the tables of one width by their source's name."""
    return {name: rollup.table(width_s) for name, rollup in ROLLUPS.items()}


MINUTES, HOURS = tables(MINUTE_S), tables(HOUR_S)
