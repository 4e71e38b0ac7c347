"""The demo: a fleet of simulated machines that pushes through the public API as real agents do."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from headroom import heartbeat
from headroom.agent.devices import ColumnBuffer
from headroom.agent.versions import Versions
from headroom.client import Client
from headroom.contracts import JobColumns, NodeReport
from lab import enroll
from lab.delivery import Delivery, Sender
from lab.enroll import Server
from lab.fleet import GPUS_PER_NODE, Fleet, inventory_yaml, make_fleet, queue_nodes
from lab.limits import LimitPolls, Limits
from lab.outbox import Outbox
from lab.readings import Frame, Sensors, join, join_reports, unheard, xid_columns
from lab.surges import Surges, file_of_demo
from lab.teams import Teams
from lab.twin import Twin
from lab.twin.network import Network
from lab.twin.storage import Storage
from lab.versions import versions_of
from lab.work import Machines, WorkPolls

log = logging.getLogger(__name__)

#: The twin has run for so long, and its last part is pushed, before the demo begins.
WARM_UP_S = 1200.0
HISTORY_S = 600.0
#: At most twice the reading interval: charts of nodes and racks take wider steps for gaps.
HISTORY_STEP_S = 10.0
#: Above this size there is no history: it would take memory, and no chart needs it.
HISTORY_MAX_GPUS = 16_384
TWIN_STEP_S = 1.0
#: After a pause of the whole machine the twin does not catch up more than this.
MAX_CATCH_UP_S = 10.0
TICK_S = 0.1
REPORT_S = 60.0
PUSH_THREADS = 2
#: One of them for the thread that asks for limits, and one for that which asks for work.
CONNECTIONS = PUSH_THREADS + 2
#: With more nodes than this, agents stand for several nodes each.
MAX_NODE_AGENTS = 256
#: Readings kept while the server is away, over all agents: half an hour of 1,536 GPUs at 5 s.
MAX_PENDING_BYTES = 96 * 2**20
#: Agents' clocks are off by about this; one of them by more.
CLOCK_SPREAD_S = 0.02
ODD_CLOCK_S = -1.6
#: Machines of the twin have no kernel to ask for versions.
NO_SYS = Path("/nonexistent")


@dataclass(frozen=True)
class Settings:
    """The options of the demo. ``speed``: seconds of the twin in each second.

    ``teams``: whether some nodes run what is queued, and ML teams queue jobs for them.
    """

    gpus: int = 1536
    sample_s: float = 5.0
    seed: int = 7
    speed: float = 1.0
    teams: bool = False


@dataclass(frozen=True)
class Source:
    """One agent: the nodes that it reads, or the site whose links and meters it collects."""

    name: str
    sender: Sender
    client: Client
    clock_off_s: float
    limits: Limits
    nodes: tuple[int, ...] = ()
    #: of each of these by its name, what is to be told of its versions
    versions: Mapping[str, Versions] = field(default_factory=dict)
    site: int | None = None
    #: the machines of the site that run what is queued
    machines: Machines | None = None


@dataclass(frozen=True)
class Stage:
    """The setting of a demo: a twin, the inventory of its fleet, and the fleet's agents."""

    twin: Twin
    inventory: str
    agents: Sequence[enroll.AgentSpec]
    #: what nodes report of their versions, by their names: of those that are not there nothing
    versions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: what is to happen once the agents push
    begin: Callable[[], None] = lambda: None
    #: what is to happen before each step of the twin
    before_step: Callable[[], None] = lambda: None


def demo_stage(settings: Settings) -> Stage:
    """Return the demo fleet."""
    fleet = make_fleet(gpus=settings.gpus)
    queued = queue_nodes(fleet) if settings.teams else None
    twin = Twin(fleet, seed=settings.seed, queued=queued)
    return Stage(twin, inventory_yaml(fleet), agent_specs(fleet), versions_of(fleet))


class Demo:
    """Owns the twin, its agents and the threads that push, until ``stop`` is set."""

    def __init__(
        self,
        server: Server,
        settings: Settings,
        *,
        stop: threading.Event,
        stage: Stage | None = None,
        surges: Path | None = None,
    ) -> None:
        """``surges``: the file that says which load goes up; None: that of ``lab surge``."""
        self._server = server
        self._settings = settings
        self._stop = stop
        self._stage = stage or demo_stage(settings)
        self.twin = self._stage.twin
        self.fleet = self._stage.twin.fleet
        self.network = Network(self.twin, seed=settings.seed)
        self._storage = Storage(self.fleet, self.twin.conditions)
        self._sensors = Sensors()
        self.sources: list[Source] = []
        self._heard_at = 0.0
        self._delivery: Delivery | None = None
        self._surges = Surges(file_of_demo() if surges is None else surges)
        #: How much of the log of Xid errors each source has told; what is not to be told.
        self._xids_told: dict[str, int] = {}
        self._xids_before = 0

    def run(self) -> None:
        """Enrol, push the history, then push readings until stopped.

        Raises :class:`headroom.client.Refused` when the server will not have the fleet.
        """
        self._warm_up()
        self._enroll()
        self._delivery = Delivery(threads=PUSH_THREADS, stop=self._stop)
        self._push_history()
        others: list[LimitPolls | WorkPolls | Teams] = [self._limit_polls(), self._work_polls()]
        if self._settings.teams:
            others.append(Teams(self._server.setup, stop=self._stop))
        for each in others:
            each.start()
        self._stage.begin()
        try:
            self._loop()
        finally:
            self._delivery.join(timeout_s=2.0)
            for each in others:
                each.join(timeout_s=2.0)

    def _work_polls(self) -> WorkPolls:
        """Have the collector of each site poll for work for its machines that run queued jobs."""
        agents = [(each.client, each.machines) for each in self.sources if each.machines]
        return WorkPolls(agents, stop=self._stop)

    def _limit_polls(self) -> LimitPolls:
        """Have the agents of nodes ask for limits, but those that say nothing."""
        agents = [source for source in self.sources if source.nodes]

        def is_silent(place: int) -> bool:
            return bool(unheard(self.twin)[list(agents[place].nodes)].all())

        return LimitPolls(
            [(agent.client, agent.limits) for agent in agents],
            stop=self._stop,
            is_silent=is_silent,
        )

    def _obey(self) -> None:
        now = time.monotonic()
        for source in self.sources:
            source.limits.step(self.twin, now)

    def _warm_up(self) -> None:
        for _ in range(int(WARM_UP_S / HISTORY_STEP_S)):
            self._advance(HISTORY_STEP_S)
        self._xids_before = len(self.twin.xid_log)

    def _advance(self, dt_s: float) -> None:
        self._stage.before_step()
        self.twin.workload.train(
            dt_s, self.twin.pace_by_slot, network=self.network, storage=self._storage
        )
        for source in self.sources:
            if source.machines is not None:
                source.machines.step(self.twin, dt_s)
        self.twin.advance(dt_s)
        self.network.advance(dt_s)

    def _enroll(self) -> None:
        enroll.apply_inventory(self._server.setup, self._stage.inventory, stop=self._stop)
        specs = list(self._stage.agents)
        self._heard_at = enroll.last_seen(self._server.setup, specs[-1].name, stop=self._stop)
        tokens = enroll.enroll(self._server.setup, specs, stop=self._stop)
        self.sources = self._make_sources(specs, tokens)
        log.info(
            "fleet enrolled",
            extra={
                "sites": len(self.fleet.sites),
                "gpus": self.fleet.gpu_count,
                "agents": len(specs),
            },
        )

    def _make_sources(self, specs: list[enroll.AgentSpec], tokens: dict[str, str]) -> list[Source]:
        rng = np.random.default_rng([self._settings.seed, 2])
        off_s = rng.normal(0.0, CLOCK_SPREAD_S, len(specs))
        off_s[rng.integers(len(specs))] = ODD_CLOCK_S
        number = {name: i for i, name in enumerate(self.fleet.nodes)}
        share = MAX_PENDING_BYTES // len(specs)
        sites = {site: i for i, site in enumerate(self.fleet.sites)}
        clients = [self._server.client(tokens[spec.name]) for spec in specs]
        return [
            Source(
                name=spec.name,
                sender=Sender(Outbox(spec.name, max_bytes=share), client),
                client=client,
                clock_off_s=float(off),
                limits=Limits({name: number[name] for name in spec.nodes}),
                nodes=tuple(number[name] for name in spec.nodes),
                versions={name: self._versions(name) for name in spec.nodes},
                site=sites[spec.sites[0]] if spec.sites else None,
                machines=self._machines(sites[spec.sites[0]]) if spec.sites else None,
            )
            for spec, client, off in zip(specs, clients, off_s, strict=True)
        ]

    def _versions(self, node: str) -> Versions:
        """Return what tells of the versions of a node, as its agent does."""
        return Versions(node, [lambda: self._stage.versions.get(node, {})], sys=NO_SYS)

    def _machines(self, site: int) -> Machines | None:
        """Return the machines of a site that run queued jobs; None: there are none."""
        here = self.fleet.site_of_rack[self.fleet.rack_of_node] == site
        numbers = np.flatnonzero(self.twin.queued & here).tolist()
        return Machines({self.fleet.nodes[i]: i for i in numbers}) if numbers else None

    def _push_history(self) -> None:
        """Push the last minutes before now, one batch for each agent.

        After a restart: only what an earlier demo has not told, or charts would show two pasts.
        """
        if self.fleet.gpu_count > HISTORY_MAX_GPUS:
            return
        now = time.time()
        ages: list[float] = []
        frames: list[Frame] = []
        for age in np.arange(HISTORY_S - HISTORY_STEP_S, -1.0, -HISTORY_STEP_S).tolist():
            self._advance(HISTORY_STEP_S)
            if now - age > self._heard_at:
                ages.append(age)
                frames.append(Frame(self.twin, self.network, self._sensors))
        for source in self.sources:
            if self._stop.is_set() or not frames:
                return
            self._add(source, frames, [now + source.clock_off_s - age for age in ages])

    def _add(self, source: Source, frames: list[Frame], at: list[float]) -> None:
        """Put readings of ``source`` at the times of ``frames`` into its outbox, as one batch."""
        moments = list(zip(frames, at, strict=True))
        if source.site is not None:
            source.sender.outbox.add(
                links=join([frame.links(source.site, ts) for frame, ts in moments]),
                meters=join([frame.meters(source.site, ts) for frame, ts in moments]),
                sent_at=at[-1],
            )
            self._add_progress(source, at[-1])
        else:
            reports = [
                join_reports(heard)
                for node in source.nodes
                if (heard := [f.node(node, ts) for f, ts in moments if not f.silent[node]])
            ]
            if not reports:
                return
            self._add_xids(source, reports, at[-1])
            source.sender.outbox.add(
                nodes=reports,
                limits=source.limits.take_reports(),
                versions=[
                    told for report in reports for told in source.versions[report.node].due()
                ],
                sent_at=frames[-1].node_time(source.nodes[0], at[-1]),
            )
        # What a site that is cut off has to tell waits, and is told once it is not.
        if self._delivery is not None and not self._is_cut_off(source):
            self._delivery.submit(source.sender)

    def _add_progress(self, source: Source, ts: float) -> None:
        """Put what loops have reported into a batch of its own: the others go as rows."""
        buffer = ColumnBuffer(JobColumns)
        for row in source.machines.progress() if source.machines is not None else ():
            buffer.append(ts, row)
        if (jobs := buffer.take()) is not None:
            source.sender.outbox.add(jobs=jobs, sent_at=ts)

    def _is_cut_off(self, source: Source) -> bool:
        site = source.site
        if site is None:
            site = int(self.fleet.site_of_rack[self.fleet.rack_of_node[source.nodes[0]]])
        return bool(self.twin.conditions.site_isolated[site])

    def _add_xids(self, source: Source, reports: list[NodeReport], ts: float) -> None:
        """Add to each report the XID lines that its node's kernel logged since the last one."""
        log = self.twin.xid_log
        told = self._xids_told.get(source.name, self._xids_before)
        self._xids_told[source.name] = len(log)
        for report in reports if told < len(log) else ():
            lines = [
                line
                for line in log[told:]
                if self.fleet.nodes[line.gpu // GPUS_PER_NODE] == report.node
            ]
            if lines:
                report.xids = xid_columns(lines, self.twin.now_s, ts)

    def _loop(self) -> None:
        """Step the twin each second and let the agents sample in turn, spread over the period."""
        period_s = self._settings.sample_s / len(self.sources)
        begun = stepped = reported = time.monotonic()
        turn = 0
        frame = Frame(self.twin, self.network, self._sensors)
        while not self._stop.wait(TICK_S):
            heartbeat.beat()
            now = time.monotonic()
            if now - stepped >= TWIN_STEP_S:
                self._obey()
                self._surges.step(self.twin, time.time())
                self._advance(min(now - stepped, MAX_CATCH_UP_S) * self._settings.speed)
                frame = Frame(self.twin, self.network, self._sensors)
                stepped = now
            due = int((now - begun) / period_s)
            # A machine that slept owes no more than one round.
            for i in range(max(turn, due - len(self.sources)), due):
                source = self.sources[i % len(self.sources)]
                self._add(source, [frame], [time.time() + source.clock_off_s])
            turn = due
            if now - reported >= REPORT_S:
                self._report()
                reported = now

    def _report(self) -> None:
        outboxes = [source.sender.outbox for source in self.sources]
        log.info(
            "demo",
            extra={
                "kw": round(float(self.twin.rack_w.sum()) / 1000, 1),
                "busy_gpus": int(self.twin.busy.sum()),
                "queue_gpus": int((self.twin.busy & self.twin.queued.repeat(GPUS_PER_NODE)).sum()),
                "throttled_gpus": int((self.twin.throttle > 1).sum()),
                "silent_nodes": int(self.twin.silent.sum()),
                "stored_batches": sum(box.counts.stored_batches for box in outboxes),
                "pending_batches": sum(len(box) for box in outboxes),
                "dropped_batches": sum(box.counts.dropped_batches for box in outboxes),
                "refused_batches": sum(box.counts.refused_batches for box in outboxes),
                "cpu_s": round(time.process_time(), 1),
            },
        )


def agent_specs(fleet: Fleet) -> list[enroll.AgentSpec]:
    """Return the agents of the nodes and a collector of links and meters for each site."""
    collectors = [enroll.AgentSpec(name=f"{site}-collector", sites=(site,)) for site in fleet.sites]
    return [*node_agents(fleet), *collectors]


def node_agents(fleet: Fleet) -> list[enroll.AgentSpec]:
    """Return an agent for each node; for several, if there are many."""
    per_agent = -(-len(fleet.nodes) // MAX_NODE_AGENTS)
    groups = [fleet.nodes[i : i + per_agent] for i in range(0, len(fleet.nodes), per_agent)]
    return [enroll.AgentSpec(name=group[0], nodes=tuple(group)) for group in groups]
