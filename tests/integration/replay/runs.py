"""The published training runs, read independently of the replay's own code, and moved to now.

Nothing of a run is changed but the day: gaps, doubled times, zero and negative readings stay.
"""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

#: Between two runs: longer than any gap that is bridged when power is integrated.
QUIET_S = 600
_MINUTE_S = 60


@dataclass
class Run:
    """One run as one kind of meter saw it. Times are seconds since its first reading."""

    recording: str
    run_id: str
    meter: str
    times_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    powers_w: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    #: When its first reading is to be, Unix s: a whole minute.
    start_s: int = 0

    @property
    def length_s(self) -> float:
        return max(times[-1] for times in self.times_s.values())

    @property
    def end_s(self) -> int:
        """The first whole minute after its last reading."""
        return self.start_s + (int(self.length_s) // _MINUTE_S + 1) * _MINUTE_S

    @property
    def readings(self) -> int:
        return sum(map(len, self.times_s.values()))

    @property
    def suspect(self) -> int:
        """How many readings are zero or negative."""
        return sum(power <= 0 for powers in self.powers_w.values() for power in powers)

    @property
    def energy_j(self) -> float:
        """The trapezoids between good readings of each node that follow each other, summed."""
        return sum(self._energy_of(node) for node in self.times_s)

    def _energy_of(self, node: str) -> float:
        power_w, t_s = np.array(self.powers_w[node]), np.array(self.times_s[node])
        is_good = (power_w[1:] > 0) & (power_w[:-1] > 0)
        pieces_j = (power_w[1:] + power_w[:-1]) / 2 * np.diff(t_s)
        return float(pieces_j[is_good].sum())

    def meter_of(self, node: str) -> str:
        """Return the name in the inventory of a node's meter."""
        return f"{self.recording}/{node}/{self.meter}"

    def columns(self) -> Iterator[tuple[str, float, float]]:
        """Yield (meter, Unix s, W) of every reading."""
        for node, times in self.times_s.items():
            for t_s, power_w in zip(times, self.powers_w[node], strict=True):
                yield self.meter_of(node), self.start_s + t_s, power_w


def load(files: Sequence[Path], *, until_s: float) -> list[Run]:
    """Read all runs of ``files``, those of one file one after the other, the last before until."""
    found = []
    for file in files:
        runs = _read(file)
        # By the run: its two meters saw it at the same time.
        starts: dict[str, int] = {}
        end_s = int(until_s) // _MINUTE_S * _MINUTE_S - QUIET_S
        for run in reversed(runs):
            if run.run_id not in starts:
                longest_s = max(r.length_s for r in runs if r.run_id == run.run_id)
                starts[run.run_id] = end_s - (int(longest_s) // _MINUTE_S + 1) * _MINUTE_S
                end_s = starts[run.run_id] - QUIET_S
            run.start_s = starts[run.run_id]
        found += runs
    return found


def _read(file: Path) -> list[Run]:
    title = file.name.split(".")[0].removeprefix("power_").replace("_", "-")
    runs: dict[tuple[str, str], Run] = {}
    with gzip.open(file, "rt") as lines:
        rows = [
            (int(row["t_ms"]) / 1000, row["run_id"], row["meter"], row["node"], row["power_w"])
            for row in csv.DictReader(lines)
        ]
    # Stable: readings of one time stay in the order of the file.
    rows.sort(key=lambda row: row[0])
    firsts: dict[str, float] = {}
    for t_s, run_id, meter, node, power_w in rows:
        run = runs.setdefault((run_id, meter), Run(title, run_id, meter))
        since_s = round(t_s - firsts.setdefault(run_id, t_s), 3)
        run.times_s[node].append(since_s)
        run.powers_w[node].append(float(power_w))
    return list(runs.values())
