"""What slurmd itself wrote down of starts and ends, and what follows from it."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.slurm.whole import Machines

__all__ = ["Stay", "over_budget_s", "overlaps", "stays"]


@dataclass(frozen=True)
class Stay:
    """A job on a node, from prolog to epilog, Unix s."""

    job: str
    node: str
    gpus: int
    began: float
    ended: float


def stays(folder: Path) -> list[Stay]:
    """Return all stays, from a file for each node with what its prologs and epilogs wrote.

    An epilog after a restart of its slurmd names no GPUs ("-").
    Raises ValueError where one has not ended, or began without GPUs.
    """
    found = []
    for path in sorted(folder.iterdir()):
        begun: dict[str, tuple[float, int]] = {}
        for line in path.read_text().splitlines():
            kind, job, gpus, at = line.split()
            if kind == "node_prolog":
                if gpus == "-":
                    raise ValueError(f"{job} has no GPUs on {path.name}")
                begun[job] = float(at), len(gpus.split(","))
            elif job in begun:
                began, count = begun.pop(job)
                found.append(Stay(job, path.name, count, began, float(at)))
        if begun:
            raise ValueError(f"{sorted(begun)} have not ended on {path.name}")
    return found


def over_budget_s(machines: Machines, found: Iterable[Stay]) -> dict[str, float]:
    """Return for how long each rack, and the site, drew more than its budget, s.

    Every GPU of a job draws its peak from the first to the last moment of its stay.
    """
    rack_of = {node: rack for rack, nodes in machines.racks.items() for node in nodes}
    changes: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for each in found:
        for scope in (rack_of[each.node], machines.site):
            changes[scope] += [(each.began, each.gpus), (each.ended, -each.gpus)]
    nodes = {**{rack: len(names) for rack, names in machines.racks.items()}}
    nodes[machines.site] = machines.nodes
    budgets = dict.fromkeys(machines.racks, machines.rack_w) | {machines.site: machines.site_w}
    idle_w, of_gpu_w = machines.draws_w(0), machines.draws_w(1) - machines.draws_w(0)
    over = {}
    for scope, moves in changes.items():
        room = (budgets[scope] - nodes[scope] * idle_w) / of_gpu_w
        over[scope] = _above_s(sorted(moves), room)
    return over


def _above_s(moves: Iterable[tuple[float, int]], most: float) -> float:
    """Return how long the sum of ``moves`` was above ``most``; ends come before starts."""
    above_s, busy, since = 0.0, 0, 0.0
    for at, change in moves:
        if busy > most + 1e-9:
            above_s += at - since
        busy, since = busy + change, at
    return above_s


def overlaps(spans: Mapping[str, Iterable[tuple[float, float]]]) -> list[str]:
    """Return the jobs of which two runs were alive at one time."""
    found = []
    for job, each in spans.items():
        ordered = sorted(each)
        if any(ended >= began for (_, ended), (began, _) in itertools.pairwise(ordered)):
            found.append(job)
    return found
