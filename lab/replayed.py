"""A power series played on the twin in process, and how near the twin came to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from headroom.replay.recording import Recording
from lab.matrix.report import words
from lab.recorded import Demand, RecordedTwin, make_recorded_fleet

__all__ = ["Replayed", "replayed"]

#: The twin runs so long before the recording begins: caches of its parts are warm then, s.
_WARM_UP_S = 60.0


@dataclass(frozen=True)
class Replayed:
    """The result of a recording on the twin. Energies and powers are those of all nodes."""

    nodes: int
    played_s: float
    recorded_j: float
    twin_j: float
    recorded_peak_w: float
    twin_peak_w: float
    #: root mean square of the difference of the sum of all nodes, W
    rms_w: float

    def lines(self) -> list[str]:
        """Return the result in lines."""
        return [
            f"{words.count(self.nodes, 'node')}, {words.length(self.played_s)} played",
            f"  energy       {_pair(self.recorded_j, self.twin_j, 'J')}",
            f"  highest      {_pair(self.recorded_peak_w, self.twin_peak_w, 'W')}",
            f"  difference   {words.quantity(self.rms_w, 'W')} rms of all nodes together",
        ]


def _pair(recorded: float, twin: float, unit: str) -> str:
    return (
        f"{words.quantity(recorded, unit)} recorded, {words.quantity(twin, unit)} on the twin"
        f" ({words.change(recorded, twin, unit)})"
    )


def replayed(
    recording: Recording,
    *,
    step_s: float,
    seed: int,
    progress: Callable[[float], None] | None = None,
) -> Replayed:
    """Play ``recording`` on a fleet of as many nodes; no limit holds them back."""
    demand = Demand(recording)
    twin = RecordedTwin(make_recorded_fleet(len(demand)), demand, seed=seed)
    twin.advance(_WARM_UP_S)
    twin.begin()
    steps = max(1, int(recording.duration_s / step_s))
    wanted_w, drawn_w = np.empty(steps), np.empty(steps)
    for step in range(steps):
        # What is wanted at the end of a step is drawn through it.
        wanted_w[step] = demand.at(step * step_s).sum()
        twin.advance(step_s)
        drawn_w[step] = twin.node_w.sum()
        if progress is not None:
            progress((step + 1) * step_s)
    return Replayed(
        nodes=len(demand),
        played_s=steps * step_s,
        recorded_j=float(wanted_w.sum() * step_s),
        twin_j=float(drawn_w.sum() * step_s),
        recorded_peak_w=float(wanted_w.max()),
        twin_peak_w=float(drawn_w.max()),
        rms_w=float(np.sqrt(np.mean((drawn_w - wanted_w) ** 2))),
    )
