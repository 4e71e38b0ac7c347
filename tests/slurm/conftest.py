"""A real Slurm beside the small fleet, and all of Headroom between them, round by round."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.test import Client as HttpClient

from admission.cycle import loop
from admission.jobs.models import Attempt, Job, Phase
from fleet.models import Meter, PowerDomain
from headroom.errors import HeadroomError
from headroom.schedulers.contract import SchedulerOrders, SchedulerReport
from headroom.slurm.bridge import Bridge, BridgeSettings
from telemetry import stream
from tests.builders.begun import begin_anew
from tests.builders.fleet import SmallFleet, small_fleet
from tests.slurm.cluster import SlurmCluster, is_installed, slurm_cluster, wait

NAME = "hall-a"


@pytest.fixture(scope="module", autouse=True)
def nothing_in_valkey() -> None:
    """No file finds in Valkey what another left."""
    stream.connection().flushall()


@dataclass
class Server:
    """The server over HTTP, as the bridge has it; ``is_away``: it does not answer."""

    token: str
    is_away: bool = False
    last: SchedulerOrders | None = None

    def scheduler(self, name: str, report: SchedulerReport) -> SchedulerOrders:
        if self.is_away:
            raise HeadroomError("the server cannot be reached")
        client = HttpClient(headers={"Authorization": f"Bearer {self.token}"})
        answer = client.post(
            f"/api/v1/schedulers/{name}",
            msgspec.json.encode(report),
            content_type="application/json",
        )
        if answer.status_code != 200:
            raise HeadroomError(f"{answer.status_code} {answer.content!r}")
        self.last = msgspec.json.decode(answer.content, type=SchedulerOrders)
        return self.last

    def scheduler_news(self, name: str, after: str) -> str:
        raise NotImplementedError("rounds are done one by one")


@dataclass
class Site:
    """A fleet, its Slurm, and Headroom."""

    fleet: SmallFleet
    cluster: SlurmCluster
    server: Server
    settings: BridgeSettings
    bridge: Bridge

    @classmethod
    def of(cls, fleet: SmallFleet, cluster: SlurmCluster, name: str = NAME) -> Site:
        """Put a bridge beside a cluster."""
        server = Server(fleet.token)
        shared = cluster.folder / "shared"
        settings = BridgeSettings(
            name=name, run_dir=cluster.run_dir, shared_dir=shared, comments_per_s=1000
        )
        bridge = Bridge(settings, server, slurm=cluster.slurm)
        return cls(fleet, cluster, server, settings, bridge)

    def restart_bridge(self) -> None:
        """Begin the bridge's life anew."""
        self.bridge = Bridge(self.settings, self.server, slurm=self.cluster.slurm)

    def round(self, **readings: Any) -> None:
        """Read the fleet, tell of Slurm, decide, and carry out what was decided."""
        self.fleet.report(**{"util": 0.0, "power_w": 80.0, **readings})
        for node in self.cluster.cpu_nodes:
            self.fleet.report_host(node, power_w=120.0)
        self.bridge.step()
        done = loop.cycle_once(time.time())
        assert done is not None
        assert not done.failed
        self.bridge.step()

    def until(self, what: Callable[[], bool], **readings: Any) -> None:
        """Do rounds until ``what`` holds."""

        def look() -> bool:
            self.round(**readings)
            return what()

        wait(look, every_s=0.1)

    def name(self, ref: str) -> str:
        return f"{self.settings.name}-{ref}"

    def job(self, ref: str) -> Job:
        return Job.objects.get(name=self.name(ref))

    def phase(self, ref: str) -> Phase:
        return Phase.objects.get(job__name=self.name(ref))

    def attempts(self, ref: str) -> list[Attempt]:
        return list(Attempt.objects.filter(phase__job__name=self.name(ref)).order_by("number"))

    def said(self, ref: str) -> str:
        """Return the output of a job."""
        path = self.cluster.folder / "out" / ref
        return path.read_text() if path.exists() else ""

    def spans(self, ref: str) -> list[tuple[float, float]]:
        """Return when each process of a job first and last wrote down that it lives, Unix s."""
        files = (self.cluster.folder / "out").glob(f"{ref}.*")
        said = [path.read_text().split() for path in files]
        return [(float(times[0]), float(times[-1])) for times in said if times]

    def shown(self, ref: str) -> str:
        """Return what scontrol shows a job's owner."""
        return self.cluster.as_user("scontrol", "show", "job", ref)


@pytest.fixture
def folder() -> Iterator[Path]:
    # Others than root look into it: pytest's own folders are closed to them.
    made = Path(tempfile.mkdtemp(prefix="headroom-slurm-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def fleet(db: None) -> SmallFleet:
    made = small_fleet(sites=["bergen"], rows=["A"], racks_per_row=2)
    begin_anew()
    return made


@pytest.fixture
def fleet_of_two(db: None) -> SmallFleet:
    """Two sites, of which each has a feed meter."""
    made = small_fleet(sites=["bergen", "oslo"], rows=["A"], racks_per_row=1)
    for feed in PowerDomain.objects.filter(name="feed-a1").select_related("site"):
        Meter.objects.create(name=f"{feed.site.name}-feed-a1", power_domain=feed)
    begin_anew()
    return made


@pytest.fixture
def site(fleet: SmallFleet, folder: Path) -> Iterator[Site]:
    if not is_installed():
        pytest.skip("Slurm is not installed: sh tests/slurm/ensure-slurm.sh as root")
    with slurm_cluster(folder, list(fleet.nodes), slurmd_timeout_s=5) as cluster:
        yield Site.of(fleet, cluster)
