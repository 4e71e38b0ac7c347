"""Parts of published traces on which approaches are judged, chosen by a rule.

The rule was written down before the first run. The controller was made on three hours of Philly,
the default of :class:`~lab.approaches.comparison.Setup`, which no window overlaps. It was mended
three times since, after a look at what came of them: they are not unseen any more.

A window is two hours long and begins at a whole quarter of a day of its trace; jobs that run then
come with it. Windows are ranked by their demand, the GPUs that their jobs would hold on average if
none waited, and picked by rank, or by the share of the demand that gangs of two nodes and more
have. Then every so-and-so-manieth line of the trace is kept, so that the demand is what the kind of
window asks for. Openb has few jobs in two hours: there a day goes by in them.

================  ======  ==================================  ======  ========================
window            trace   which                               demand  what is short
================  ======  ==================================  ======  ========================
philly-saturated  Philly  90th percentile of demand           1.15    power, GPUs
philly-gangs      Philly  most of its demand by large gangs   1.15    power, GPUs
philly-hot        Philly  75th percentile of demand           1.0     cooling
openb-saturated   openb   most demand                         1.15    power, GPUs
openb-calm        openb   90th percentile of demand           0.7     nothing for long
helios-gangs      Helios  most demand                         1.15    power, GPUs
helios-links      Helios  median of demand                    0.9     links: a tenth is left
helios-others     Helios  75th percentile of demand           1.0     power; half is others'
================  ======  ==================================  ======  ========================

Demand is by GPU of the fleet, in the last by GPU that is not others'.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lab.approaches.comparison import LOADERS, Setup
from lab.traces import JobTrace

__all__ = ["SEEDS", "WINDOWS", "Window", "more_gpus", "setup_of"]

SEEDS = (1, 2, 3)
HOURS = 2.0
_EVERY_S = 6 * 3600.0
#: Gangs from this size on stand on two nodes at least.
_LARGE = 16
_FILES = {
    "philly": "philly-jobs/jobs.csv.gz",
    "openb": "alibaba-openb-jobs/pods_default.csv.gz",
    "helios": "helios-earth-vc-queue/vc6YE.csv.gz",
}
#: Feeds and sites carry what their racks may draw, and what is lost on the way to them.
_FEED_SHARE = 1.03
#: 30 % more GPUs under the same power, and the jobs for them: see :func:`more_gpus`.
MORE = 1.3


@dataclass(frozen=True, kw_only=True)
class Window:
    """One window. ``rank``: percentile of demand, or "gangs" for the largest share of them."""

    name: str
    form: Literal["philly", "openb", "helios"]
    rank: float | Literal["gangs"]
    demand: float
    gpus: int
    given: tuple[tuple[str, Any], ...] = ()

    @property
    def faster(self) -> float:
        """So many hours of the trace go by in one."""
        return 12.0 if self.form == "openb" else 1.0


WINDOWS = (
    Window(name="philly-saturated", form="philly", rank=90, demand=1.15, gpus=256),
    Window(name="philly-gangs", form="philly", rank="gangs", demand=1.15, gpus=256),
    Window(
        name="philly-hot", form="philly", rank=75, demand=1.0, gpus=256,
        given=(("power_share", 0.7), ("cooling_share", 0.8)),
    ),
    Window(name="openb-saturated", form="openb", rank=100, demand=1.15, gpus=48),
    Window(name="openb-calm", form="openb", rank=90, demand=0.7, gpus=48),
    Window(name="helios-gangs", form="helios", rank=100, demand=1.15, gpus=256),
    Window(
        name="helios-links", form="helios", rank=50, demand=0.9, gpus=256,
        given=(("links_share", 0.1),),
    ),
    Window(
        name="helios-others", form="helios", rank=75, demand=1.0, gpus=256,
        given=(("others_share", 0.5),),
    ),
)  # fmt: skip


def setup_of(window: Window, data: Path) -> Setup:
    """Return the run of a window; ``data`` is the folder of the traces.

    Raises :class:`~lab.traces.TraceError`.
    """
    path = data / _FILES[window.form]
    trace = LOADERS[window.form](path)
    from_s, demand = _chosen(window, trace)
    setup = Setup(
        trace=path,
        form=window.form,
        from_h=from_s / 3600.0,
        hours=HOURS,
        gpus=window.gpus,
        nodes_per_rack=4,
        carried=True,
        faster=window.faster,
        feed_share=_FEED_SHARE,
        **dict(window.given),
    )
    own = window.gpus * (1.0 - setup.others_share)
    return replace(setup, kept=min(window.demand * own / demand, 1.0))


def more_gpus(window: Window, data: Path) -> Iterator[Setup]:
    """Yield a window with power for all that its parts may draw, and with 30 % more GPUs below it.

    There is work for the GPUs that are more, and half again.
    """
    plenty = replace(window, demand=1.5 * MORE)
    setup = setup_of(plenty, data)
    setup = replace(setup, power_share=0.75)
    yield setup
    gpus = 8 * round(MORE * window.gpus / 8)
    yield replace(setup, gpus=gpus, power_share=0.75 * window.gpus / gpus)


def _chosen(window: Window, trace: JobTrace) -> tuple[float, float]:
    """Return where a window begins, s of its trace, and the demand there, GPUs."""
    lasts_s = HOURS * window.faster * 3600.0
    starts = np.arange(0.0, float(trace.submit_s[-1]) - lasts_s, _EVERY_S)
    if window.form == "philly":
        tuned_s = Setup.from_h * 3600.0
        starts = starts[(starts + lasts_s <= tuned_s) | (starts >= tuned_s + Setup.hours * 3600.0)]
    demand = np.array([trace.demand_gpus(at, at + lasts_s) for at in starts])
    if window.rank == "gangs":
        large = trace.gpus >= _LARGE
        gangs = np.array([trace.demand_gpus(at, at + lasts_s, large) for at in starts])
        # Of windows that can fill the fleet.
        enough = demand >= window.demand * window.gpus
        place = int(np.argmax(np.where(enough, gangs / np.maximum(demand, 1.0), -1.0)))
    else:
        order = np.argsort(demand, kind="stable")
        place = int(order[round(window.rank / 100.0 * (len(order) - 1))])
    return float(starts[place]), float(demand[place])
