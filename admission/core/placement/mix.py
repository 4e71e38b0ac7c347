"""The mix of jobs on both arms of a rollout, and on which arm the next one keeps it alike. Pure.

Jobs of a class are to take the same share of the GPUs of either arm, so that what is read of the
arms differs by the change and not by who runs there; and a gang is to stand on one arm, since one
that stands on both tells of neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from admission.core.placement.topology import Bools, Ints
from admission.core.request import Placement, Request
from fleet.tables import FleetArrays

__all__ = ["Arms", "Mix"]

_NEITHER, _CHANGED, _CONTROL = range(3)
_ARMS = 3


@dataclass(frozen=True, eq=False)
class Arms:
    """The arms of a rollout: ``of_node`` is 0 on neither, 1 on what was changed, 2 on the rest."""

    of_node: Ints
    #: GPUs of each arm, in the same order
    gpus: Ints

    @staticmethod
    def of(fleet: FleetArrays, changed: Iterable[str], control: Iterable[str]) -> Arms | None:
        """Return the arms by the paths of their racks; None: one of them has no GPU."""
        paths = fleet.racks.paths.astype(str)
        of_rack = np.full(len(paths), _NEITHER)
        for arm, racks in ((_CHANGED, changed), (_CONTROL, control)):
            of_rack[np.isin(paths, list(racks))] = arm
        of_node = of_rack[fleet.nodes.rack]
        gpus = np.bincount(of_node, fleet.node_gpus, _ARMS).astype(np.int64)
        return Arms(of_node, gpus) if gpus[_CHANGED] and gpus[_CONTROL] else None


@dataclass(eq=False)
class Mix:
    """The GPUs that jobs of each class hold on each arm. It changes as gangs come and go."""

    arms: Arms
    held: dict[str, Ints] = field(default_factory=dict)

    def copy(self) -> Mix:
        """Return a mix that can be changed without this one."""
        return Mix(self.arms, {name: count.copy() for name, count in self.held.items()})

    def count(
        self, placement: Placement, request: Request, node_of_gpu: Ints, *, taken: bool
    ) -> None:
        """Count a gang in, or out. Phases on cores are of no arm."""
        if request.cores:
            return
        arm = self.arms.of_node[node_of_gpu[list(placement.gpus)]]
        held = self.held.setdefault(request.job_class, np.zeros(_ARMS, dtype=np.int64))
        held += np.bincount(arm, minlength=_ARMS) * (1 if taken else -1)

    def instead(self, request: Request, by_node: Mapping[int, int]) -> list[Bools]:
        """Return the nodes to look on in place of those that were found: arms, the best first.

        None where the gang would stand on neither arm, or on one of them as well as on the other.
        """
        found = set(self.arms.of_node[list(by_node)].tolist())
        if request.cores or found == {_NEITHER}:
            return []
        apart = self._apart(request.job_class, sum(by_node.values()))
        arms = sorted(apart, key=apart.__getitem__)
        if len(found) == 1:
            (there,) = found
            arms = [arm for arm in arms if apart[arm] < apart[there]]
        return [self.arms.of_node == arm for arm in arms]

    def _apart(self, job_class: str, gpus: int) -> dict[int, float]:
        """Return how far apart the shares of a class are with ``gpus`` more, by where they are."""
        held = self.held.get(job_class, np.zeros(_ARMS, dtype=np.int64))
        found = {}
        for arm in (_CHANGED, _CONTROL):
            more = held.copy()
            more[arm] += gpus
            share = more[[_CHANGED, _CONTROL]] / self.arms.gpus[[_CHANGED, _CONTROL]]
            found[arm] = abs(float(share[0] - share[1]))
        return found
