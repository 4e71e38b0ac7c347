"""A small fleet in the database, and readings of it that go the real way: stream, drain, frame."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from fleet import snapshot
from fleet.models import (
    CoolingZone,
    Gpu,
    HardwareModel,
    Link,
    Node,
    PowerDomain,
    Rack,
    Site,
)
from headroom.contracts import (
    GpuColumns,
    HostColumns,
    LinkColumns,
    NodeReport,
    TelemetryBatch,
)
from telemetry import rows, stream
from telemetry.directory import AgentScope, names_of
from telemetry.models import Agent
from telemetry.writer import Writer
from tests.builders.agents import make_agent

#: A value for every GPU, or a function of node name and GPU index.
Value: TypeAlias = float | Callable[[str, int], float | str | None] | None

GPU_RATED_W = 700.0
SLOWDOWN_C = 87.0
SM_MAX_MHZ = 1980.0
HOST_RATED_W = 2000.0
HOST_IDLE_W = 600.0


@dataclass
class SmallFleet:
    """What was made, by name, and an agent that speaks for all of it."""

    agent: Agent
    token: str
    gpus_per_node: int
    sites: dict[str, Site] = field(default_factory=dict)
    #: by "site/rack"
    racks: dict[str, Rack] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    links: dict[str, Link] = field(default_factory=dict)
    seq: int = 0

    def nodes_of(self, path: str) -> list[str]:
        """Return the names of the nodes in the rack ``site/name``."""
        return [n for n, node in self.nodes.items() if node.rack_id == self.racks[path].pk]

    def gpu(self, node: str, index: int = 0) -> Gpu:
        return Gpu.objects.get(node=self.nodes[node], index=index)

    def report(
        self,
        *,
        at: float | None = None,
        only: Collection[str] | None = None,
        links: dict[str, float] | None = None,
        link_classes: dict[str, float] | None = None,
        **values: Value,
    ) -> None:
        """Have nodes (``only``, or all) read their GPUs once, and store it.

        ``links``: bytes/s sent on each link; ``link_classes``: of each class, on each of them.
        Values default to a GPU at work.
        """
        ts = time.time() if at is None else at
        given: dict[str, Value] = {
            "power_w": 400.0,
            "power_limit_w": GPU_RATED_W,
            "temp_c": 60.0,
            "sm_mhz": 1800.0,
            "util": 95.0,
            "throttle": 0,
            **values,
        }
        names = [n for n in self.nodes if only is None or n in only]
        batch = TelemetryBatch(
            agent=self.agent.name,
            boot_id="boot-1",
            seq=self._next(),
            oldest_seq=1,
            sent_at=ts,
            nodes=[NodeReport(node=n, gpus=self._columns(n, ts, given)) for n in names],
            links=_links(ts, links, link_classes or {}) if links else None,
        )
        push(self.agent, batch, received_at=ts)

    def report_host(self, node: str, *, power_w: float, at: float | None = None) -> None:
        """Have a node without GPUs say what its host draws, and store it."""
        ts = time.time() if at is None else at
        batch = TelemetryBatch(
            agent=self.agent.name, boot_id="boot-1", seq=self._next(), oldest_seq=1, sent_at=ts,
            nodes=[NodeReport(node=node, host=HostColumns(ts=[ts], power_w=[power_w]))],
        )  # fmt: skip
        push(self.agent, batch, received_at=ts)

    def _next(self) -> int:
        self.seq += 1
        return self.seq

    def _columns(self, node: str, ts: float, given: dict[str, Value]) -> GpuColumns:
        indexes = range(self.gpus_per_node)
        columns: dict[str, Any] = {
            name: [value(node, i) if callable(value) else value for i in indexes]
            for name, value in given.items()
        }
        return GpuColumns(ts=[ts] * len(indexes), gpu=list(indexes), **columns)


def _links(ts: float, sent: dict[str, float], classes: dict[str, float]) -> LinkColumns:
    of_classes: dict[str, Any] = {
        f"tx_{name}_bytes_per_s": [value] * len(sent) for name, value in classes.items()
    }
    return LinkColumns(
        ts=[ts] * len(sent),
        link=list(sent),
        tx_bytes_per_s=list(sent.values()),
        rx_bytes_per_s=[0.0] * len(sent),
        **of_classes,
    )


def push(agent: Agent, batch: TelemetryBatch, *, received_at: float) -> None:
    """Store a batch as web process and worker do it together."""
    shard = stream.shard_of(agent.name)
    node_ids = frozenset(agent.nodes.values_list("pk", flat=True))
    site_ids = frozenset(agent.sites.values_list("pk", flat=True))
    scope = AgentScope(agent.pk, agent.name, node_ids, site_ids)
    packed = rows.pack(batch, scope, names_of(snapshot.fresh()))
    stream.append(shard, stream.Message.of(batch, agent.pk, packed, received_at))
    writer = Writer(shard)
    while writer.step():
        pass


def small_fleet(
    *,
    sites: Collection[str] = ("bergen", "oslo"),
    racks_per_row: int = 3,
    rows: Collection[str] = ("A", "B"),
    nodes_per_rack: int = 2,
    gpus_per_node: int = 4,
    budget_w: float = 12_000.0,
) -> SmallFleet:
    """Make sites with a power tree (utility, one A/B pair), racks, nodes, GPUs and uplinks."""
    agent, token = make_agent("small-fleet")
    made = SmallFleet(agent, token, gpus_per_node)
    gpu_model = HardwareModel.objects.create(
        name="H100", kind="gpu", rated_w=GPU_RATED_W, idle_w=70,
        slowdown_c=SLOWDOWN_C, sm_max_mhz=SM_MAX_MHZ,
    )  # fmt: skip
    node_model = HardwareModel.objects.create(
        name="host", kind="node", rated_w=HOST_RATED_W, idle_w=HOST_IDLE_W
    )
    for name in sites:
        count = racks_per_row * len(rows)
        made.sites[name] = site = Site.objects.create(name=name, budget_w=count * budget_w)
        feeds = _power_tree(site, count * budget_w)
        zone = CoolingZone.objects.create(
            site=site, name="hall-1", kind="rear-door", capacity_w=count * budget_w
        )
        racks = Rack.objects.bulk_create(
            Rack(
                site=site, name=f"{row}{position + 1:02}", row=row, position=position,
                height_u=8 * (nodes_per_rack + 1), budget_w=budget_w, cooling_zone=zone,
                feed_a=feeds["A"], feed_b=feeds["B"],
            )
            for row in rows
            for position in range(racks_per_row)
        )  # fmt: skip
        made.racks |= {f"{name}/{rack.name}": rack for rack in racks}
        _fill(made, racks, nodes_per_rack, gpu_model, node_model)
    agent.sites.set(made.sites.values())
    return made


def _power_tree(site: Site, load_w: float) -> dict[str, PowerDomain]:
    utility = PowerDomain.objects.create(
        site=site, name="utility", kind="utility", capacity_w=1.5 * load_w, derating=0.8
    )
    return {
        side: PowerDomain.objects.create(
            site=site, name=f"feed-{side.lower()}1", kind="feed", parent=utility,
            capacity_w=load_w, derating=0.8, pair="feed-1", side=side,
        )
        for side in ("A", "B")
    }  # fmt: skip


def _fill(
    made: SmallFleet,
    racks: Sequence[Rack],
    nodes_per_rack: int,
    gpu_model: HardwareModel,
    node_model: HardwareModel,
) -> None:
    """Make nodes, GPUs and uplinks, a statement for all of each: hundreds of tests wait for it."""
    nodes = Node.objects.bulk_create(
        Node(
            name=f"{rack.site.name}-{rack.name.lower()}-n{number + 1}", rack=rack,
            model=node_model, position_u=1 + 8 * number, height_u=8,
        )
        for rack in racks
        for number in range(nodes_per_rack)
    )  # fmt: skip
    Gpu.objects.bulk_create(
        Gpu(node=node, index=index, model=gpu_model)
        for node in nodes
        for index in range(made.gpus_per_node)
    )
    links = Link.objects.bulk_create(
        Link(
            name=f"{rack.site.name}/{rack.name}/uplink", kind="leaf-uplink", site=rack.site,
            rack=rack, capacity_bits_per_s=8e11,
        )
        for rack in racks
    )  # fmt: skip
    made.nodes |= {node.name: node for node in nodes}
    made.links |= {link.name: link for link in links}
