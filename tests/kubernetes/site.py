"""A cluster with Kueue beside the small fleet, and all of Headroom between them, round by round."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import yaml

from admission.cycle import live, loop
from admission.jobs.models import Attempt, Job, Phase
from headroom.kueue.api import Api
from headroom.kueue.bridge import Bridge, BridgeSettings, Leading
from headroom.kueue.parameters import KIND
from tests.builders.fleet import SmallFleet
from tests.chart import CHART, REPOSITORY
from tests.kubernetes import objects, rights
from tests.kubernetes.client import Client, Refused
from tests.kubernetes.kueue import Kueue
from tests.kubernetes.server import ApiServer
from tests.slurm.conftest import Server

NAME = "hall-k"
CHECK = "headroom"
TEAM = "vision"
#: By which one of several bridges leads.
LEASE = "headroom-kueue"
#: A leader that falls silent is replaced within this time.
LEASE_S = 2.0

Document = dict[str, Any]
_numbers = itertools.count(1)


def eventually(what: Callable[[], object], within_s: float = 60.0, every_s: float = 0.05) -> None:
    """Wait until ``what`` holds; it may fail as long as it does not."""
    until = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < until, f"not within {within_s:g} s"
        time.sleep(every_s)


@dataclass
class Site:
    """A fleet, its cluster, and Headroom."""

    fleet: SmallFleet
    api_server: ApiServer
    client: Client
    server: Server
    kueue: Kueue
    bridges: list[Bridge] = field(default_factory=list)

    @property
    def bridge(self) -> Bridge:
        return self.bridges[0]

    def begin(self, identity: str = "") -> Bridge:
        """Start one more bridge."""
        settings = BridgeSettings(
            name=NAME,
            identity=identity or f"bridge-{next(_numbers)}",
            leading=Leading(
                name=LEASE, namespace=TEAM, lasts_s=LEASE_S, give_up_s=LEASE_S / 2, renew_s=0.2
            ),
            comments_per_s=1000,
        )
        api = Api(str(self.api_server.kubeconfig(self._token())))
        bridge = Bridge(settings, self.server, api)
        bridge.start()
        self.bridges.append(bridge)
        return bridge

    def _token(self) -> str:
        """Return a token with the rights that the chart gives the bridge, and no more."""
        return self.api_server.token_for("bridge", rights.of_bridge(TEAM, LEASE))

    def kill(self, bridge: Bridge) -> None:
        """End a bridge as kill -9 does: nobody lets the Lease go."""
        for watcher in bridge.watchers.values():
            watcher.stop()
        bridge.join(10.0)
        bridge._api.close()
        self.bridges.remove(bridge)

    def round(self, **readings: Any) -> None:
        """Read the fleet, tell of the cluster, decide, and carry out what was decided."""
        # As cool as GPUs at rest are: else it is learned that none can carry its load.
        self.fleet.report(**{"util": 0.0, "power_w": 80.0, "temp_c": 30.0, **readings})
        self.step()
        done = loop.cycle_once(time.time())
        assert done is not None
        assert not done.failed
        # All is one transaction here, by which rows are known to have changed.
        live._requests = live._Requests()
        self.step()

    def step(self) -> bool:
        """Have each bridge do a round; return whether any did something."""
        done = [bridge.step() for bridge in list(self.bridges)]
        return any(done)

    def until(self, what: Callable[[], object], within_s: float = 90.0, **readings: Any) -> None:
        """Do rounds until ``what`` holds."""

        def look() -> object:
            self.round(**readings)
            return what()

        eventually(look, within_s)

    # What people do

    def submit(self, name: str, *, annotations: dict[str, str] | None = None, **job: Any) -> str:
        """Submit a job; return its name."""
        document = objects.make_job(TEAM, name, **{"pods": 1, "gpus": 4, **job})
        template = document["spec"]["template"]["metadata"]
        template["annotations"] |= annotations or {}
        self.client.create(document)
        return name

    def finish(self, name: str) -> None:
        """Have the pods of a job end well."""
        over = {"status": {"phase": "Succeeded"}}
        for pod in self.pods(name):
            self.client.patch("Pod", pod["metadata"]["name"], over, TEAM, subresource="status")

    def choose(self, **spec: Any) -> None:
        """Change the parameters of the check."""
        self.client.patch(KIND, CHECK, {"spec": spec})

    # What there is to see

    def workload(self, name: str) -> Document:
        """Return the workload of a job."""
        found = [
            each
            for each in self.client.list("Workload", TEAM)["items"]
            if each["metadata"]["ownerReferences"][0]["name"] == name
        ]
        assert len(found) == 1, name
        document: Document = found[0]
        return document

    def has_workload(self, name: str) -> bool:
        try:
            return bool(self.workload(name))
        except AssertionError:
            return False

    def check(self, name: str) -> Document:
        """Return the state of our check of a job's workload."""
        checks = self.workload(name).get("status", {}).get("admissionChecks", ())
        return next((each for each in checks if each["name"] == CHECK), {})

    def condition(self, name: str, kind: str) -> Document:
        conditions = self.workload(name).get("status", {}).get("conditions", ())
        return next((each for each in conditions if each["type"] == kind), {})

    def sees(self, what: Callable[[], object], within_s: float = 60.0) -> None:
        """Have bridges do rounds, without a decision of ours, until ``what`` holds."""

        def look() -> object:
            self.step()
            return what()

        eventually(look, within_s)

    def holds(self, name: str, kind: str) -> bool:
        return bool(self.condition(name, kind).get("status") == "True")

    def pods(self, name: str) -> list[Document]:
        """Return the pods of a job that have not ended."""
        return [
            each
            for each in self.client.list("Pod", TEAM)["items"]
            if each["metadata"]["name"].rpartition("-")[0] == name
            and each.get("status", {}).get("phase") not in ("Succeeded", "Failed")
        ]

    def nodes_of(self, name: str) -> set[str]:
        return {pod["spec"].get("nodeName", "") for pod in self.pods(name)} - {""}

    def ours(self, name: str) -> str:
        """Return the name of our job for a job there."""
        return f"{NAME}-{TEAM}-{self.workload(name)['metadata']['name']}"

    def job(self, name: str) -> Job:
        return Job.objects.get(name=self.ours(name))

    def phase(self, name: str) -> Phase:
        return Phase.objects.get(job__name=self.ours(name))

    def attempts(self, name: str) -> list[Attempt]:
        found = Attempt.objects.filter(phase__job__name=self.ours(name))
        return list(found.order_by("number"))


@contextmanager
def made(
    fleet: SmallFleet,
    api_server: ApiServer,
    *,
    quota: int = 64,
    nodes: Collection[str] | None = None,
    **rules: Any,
) -> Iterator[Site]:
    """Set a cluster up with the fleet's nodes, and a queue whose workloads our check looks at.

    ``nodes``: those that it has; None: all of the fleet.
    """
    client = Client(api_server.kubeconfig())
    client.create(yaml.safe_load((CHART / "files" / "headroomchecks.yaml").read_text()))
    client.create(objects.make_namespace(TEAM))
    for name in fleet.nodes if nodes is None else nodes:
        client.create(objects.make_node(name, gpus=fleet.gpus_per_node))
    client.create(objects.make_flavor("h200"))
    text = (REPOSITORY / "deploy/kueue/check.yaml").read_text()
    for document in yaml.safe_load_all(text):
        client.create(document)
    client.create(objects.make_cluster_queue("gpus", gpus=quota, checks=(CHECK,)))
    client.create(objects.make_local_queue(TEAM))
    with Kueue(client, **rules) as kueue:
        site = Site(fleet, api_server, client, Server(fleet.token), kueue)
        yield site
        for bridge in list(site.bridges):
            site.kill(bridge)


def refused(call: Callable[[], object]) -> int:
    """Return the code with which the API server refuses a call; 0: it does not."""
    try:
        call()
    except Refused as error:
        return error.code
    return 0
