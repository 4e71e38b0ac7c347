"""Mean powers of the last minutes by each source, from the roll-ups.

Some fifteen queries, whether one node is asked for or all are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from django.db.models import Q

from fleet.models import Gpu, Meter, MeterKind, Node
from telemetry import samples
from telemetry.rollups.spec import MINUTE_S, MINUTES
from telemetry.rollups.work import SETTLE_S
from telemetry.samples import Array, Table
from telemetry.store import reading as store
from telemetry.store.columns import Columns, Window, is_null
from telemetry.trust.compare import Judged, Source, Told, of_gpu, of_node

#: The time over which means are compared, s: it begins where the clock's face is divided by it.
WINDOW_S = 600
#: What is rolled up is there some seconds after it may be.
_LATE_S = 20
#: A source that tells less than this share of the time is none.
_LEAST_COVERED = 0.5


@dataclass(frozen=True)
class NodePower:
    """The sources of one node's power, and those of each of its GPUs by index, as judged."""

    node: Node
    sources: list[Judged]
    gpus: dict[int, list[Judged]] = field(default_factory=dict)


def window(now: float) -> Window:
    """Return the last whole span that is rolled up."""
    end = (now - SETTLE_S[MINUTE_S] - MINUTE_S - _LATE_S) // WINDOW_S * WINDOW_S
    return Window(end - WINDOW_S, end)


def compare(node_ids: Sequence[int] | None, now: float) -> Iterator[NodePower]:
    """Yield the judged sources of the nodes of which any is known; None: of all nodes."""
    span = window(now)
    chosen = Q() if node_ids is None else Q(pk__in=node_ids)
    nodes = list(Node.objects.filter(chosen).select_related("rack__site"))
    racks = {node.rack_id for node in nodes}
    # A rack's meter tells of one node by what all others draw.
    near = list(Node.objects.filter(rack_id__in=racks).only("pk", "rack_id"))
    is_all = node_ids is None
    facts = _Facts.read(None if is_all else [node.pk for node in near], racks, span)
    in_rack: dict[int, list[int]] = {}
    for node in near:
        in_rack.setdefault(node.rack_id, []).append(node.pk)
    told = {node.pk: facts.of_node(node.pk) for node in near}
    for node in nodes:
        in_its_rack = {pk: told[pk] for pk in in_rack[node.rack_id]}
        by_rack = facts.by_rack_meter(node.pk, node.rack_id, in_its_rack)
        sources = [*told[node.pk], *([by_rack] if by_rack else [])]
        gpus = {index: of_gpu(facts.of_gpu(gpu)) for gpu, index in facts.gpus.get(node.pk, [])}
        gpus = {index: judged for index, judged in gpus.items() if judged}
        if sources or gpus:
            yield NodePower(node, of_node(sources), gpus)


@dataclass(frozen=True)
class _Facts:
    """Mean powers, W, by id; what is not known is not there."""

    counted: Mapping[int, float]
    told: Mapping[int, float]
    host: Mapping[int, float]
    host_floor: Mapping[int, float]
    node_meter: Mapping[int, float]
    rack_meter: Mapping[int, float]
    #: Id and index of the GPUs of each node.
    gpus: Mapping[int, list[tuple[int, int]]]

    @staticmethod
    def read(nodes: Sequence[int] | None, racks: set[int], span: Window) -> _Facts:
        """Read what is known of ``nodes``, None: of all, and of ``racks``."""
        gpus: dict[int, list[tuple[int, int]]] = {}
        of_nodes = Q() if nodes is None else Q(node__in=nodes)
        rows = Gpu.objects.filter(of_nodes).values_list("pk", "index", "node_id")
        for pk, index, node in rows.order_by("node_id", "index"):
            gpus.setdefault(node, []).append((pk, index))
        ids = [pk for each in gpus.values() for pk, _ in each]
        of_gpus = _means(samples.GPU, ids, ("power_w", "used_j", "covered_s", "energy_j"), span)
        hosts = _means(samples.HOST, nodes, ("power_w", "cpu_power_w"), span)
        places = Meter.objects.filter(kind=MeterKind.POWER)
        at_nodes = places.filter(of_nodes, node__isnull=False)
        at_racks = places.filter(Q(rack__isnull=False) if nodes is None else Q(rack__in=racks))
        by_node = dict(at_nodes.values_list("pk", "node_id"))
        by_rack = dict(at_racks.values_list("pk", "rack_id"))
        meters = _means(samples.METER, [*by_node, *by_rack], ("power_w",), span)["power_w"]
        has_counter, covered_s = of_gpus["energy_j"], of_gpus["covered_s"]
        counted = {
            pk: used_j / covered_s[pk]
            for pk, used_j in of_gpus["used_j"].items()
            if pk in has_counter and covered_s.get(pk, 0.0) > 0
        }
        return _Facts(
            counted=counted,
            told=of_gpus["power_w"],
            host=hosts["power_w"],
            host_floor=hosts["cpu_power_w"],
            node_meter=_summed(meters, by_node),
            rack_meter=_summed(meters, by_rack),
            gpus=gpus,
        )

    def of_gpu(self, gpu: int) -> list[Source]:
        pairs = ((Told.ENERGY_COUNTER, self.counted), (Told.POWER_READING, self.told))
        return [Source(told_by, means[gpu]) for told_by, means in pairs if gpu in means]

    def of_node(self, node: int) -> list[Source]:
        found = []
        gpus = [gpu for gpu, _ in self.gpus.get(node, [])]
        is_floor = node not in self.host
        host_w = self.host_floor.get(node, 0.0) if is_floor else self.host[node]
        for told_by, means in (
            (Told.ENERGY_COUNTER, self.counted), (Told.POWER_READING, self.told)
        ):  # fmt: skip
            if gpus and all(gpu in means for gpu in gpus):
                total_w = sum(means[gpu] for gpu in gpus) + host_w
                found.append(Source(told_by, total_w, is_floor))
        if node in self.node_meter:
            found.append(Source(Told.NODE_METER, self.node_meter[node]))
        return found

    def by_rack_meter(
        self, node: int, rack: int, told: Mapping[int, Sequence[Source]]
    ) -> Source | None:
        """Return what a rack's meter leaves for ``node``; None where another's draw is unknown.

        ``told``: the sources of each node in the rack.
        """
        if rack not in self.rack_meter:
            return None
        others_w = 0.0
        for other, sources in told.items():
            if other == node:
                continue
            # The meter stands last.
            known = [each for each in sources if not each.is_floor]
            if not known:
                return None
            others_w += known[-1].mean_w
        return Source(Told.RACK_METER, self.rack_meter[rack] - others_w)


def _means(
    table: Table, ids: Sequence[int] | None, names: Sequence[str], span: Window
) -> dict[str, dict[int, float]]:
    """Return the mean of each field over ``span`` by id: of sums the sum, of counters the last.

    ``ids``: of which things; None: of all.
    """
    if ids is not None and not ids:
        return {name: {} for name in names}
    sums = {name: "max" if name == "energy_j" else "sum" for name in names}
    rows = store.bins(MINUTES[table.name], sums, span, ids, WINDOW_S)
    if rows is None:  # some moved already: the clock of this machine is far off
        return {name: {} for name in names}
    told = np.sum([~is_null(rows[name]) for name in names], axis=0)
    # Beside a minute that lacks a field its mean would be too low.
    is_whole = rows["known"] == rows["rows"] * told
    enough = is_whole & (rows["rows"] >= _LEAST_COVERED * WINDOW_S / MINUTE_S)
    return {name: _by_id(rows, table.key, name, enough) for name in names}


def _by_id(rows: Columns, key: str, name: str, enough: Array) -> dict[int, float]:
    values = rows[name].astype("f8")
    if name.endswith("power_w"):
        values = values / rows["rows"]
    chosen = enough & ~np.isnan(values)
    return dict(zip(rows[key][chosen].tolist(), values[chosen].tolist(), strict=True))


def _summed(means: Mapping[int, float], place_of: Mapping[int, int]) -> dict[int, float]:
    """Return the sums over the meters of each place all of which tell."""
    found: dict[int, float] = {}
    silent = {place for meter, place in place_of.items() if meter not in means}
    for meter, place in place_of.items():
        if place not in silent:
            found[place] = found.get(place, 0.0) + means[meter]
    return found
