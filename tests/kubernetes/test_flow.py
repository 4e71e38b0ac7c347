"""Many workloads at once: gangs, quota given back, evictions, and restarts in the midst."""

from __future__ import annotations

import random
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from admission.directives import actions as directives
from admission.executors.schedulers import registered
from admission.jobs.models import Attempt, Job
from headroom.kueue import names
from tests.builders.begun import begin_anew
from tests.builders.fleet import small_fleet
from tests.builders.policies import lift_all, lower_budget
from tests.kubernetes.server import ApiServer
from tests.kubernetes.site import TEAM, Site, made

pytestmark = pytest.mark.django_db

_DRAWN = 20261123
#: How long each runs: on a busy machine a round takes a second, and some are to be seen running.
_RUN_S = "3"
_ALIVE = "status.phase!=Succeeded,status.phase!=Failed"
#: A message of one that waits for power: in numbers, where, when, and how many are before it.
_WATTS = r"[\d.,]+ k?W"
_MESSAGE = re.compile(
    rf"SitePowerHeadroom: needs {_WATTS} on site bergen, "
    rf"which (has {_WATTS}|is {_WATTS} over): short {_WATTS}"
    r"; (likely to start (now|in .+)|when it will start cannot be said(: .+)?"
    r"|never starts as it is, were the fleet all its own: .+)"
    r"; position [\d,]+ in the queue"
)


@pytest.fixture
def count(request: pytest.FixtureRequest) -> int:
    """How many jobs there are."""
    return int(request.param)


@pytest.fixture
def site(db: None, api_server: ApiServer, count: int) -> Iterator[Site]:
    """Nodes for about a twelfth of them at once."""
    fleet = small_fleet(sites=["bergen"], rows=["A"], racks_per_row=max(4, count // 30))
    begin_anew()
    with made(fleet, api_server, quota=4 * len(fleet.nodes)) as found:
        found.choose(
            neverPossible="Wait", giveBack={"afterSeconds": 4, "leastSeconds": 1, "mostSeconds": 2}
        )
        found.begin()
        yield found
    registered.invalidate()


@dataclass
class Watch:
    """What was seen of pods: which have run under each lease, and who was evicted."""

    site: Site
    uids: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    mixed: list[str] = field(default_factory=list)
    gave_back: set[str] = field(default_factory=set)
    #: what was read, by job: the reason, need, have, short, where, and when it is likely to start
    told: dict[str, str] = field(default_factory=dict)

    def look(self, fields: str = _ALIVE) -> None:
        """See the pods that run; those that have ended stay, to be seen at the end."""
        leases: dict[str, set[str]] = defaultdict(set)
        for pod in self.site.client.list("Pod", TEAM, fieldSelector=fields)["items"]:
            metadata = pod["metadata"]
            lease = metadata.get("annotations", {}).get(names.LEASE, "")
            self.uids[lease, metadata["name"]].add(metadata["uid"])
            if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
                leases[metadata["name"].rpartition("-")[0]].add(lease)
        self.mixed += [job for job, found in leases.items() if len(found) > 1]

    def look_at_workloads(self) -> None:
        for workload in self.site.client.list("Workload", TEAM)["items"]:
            name = workload["metadata"]["name"]
            for each in workload.get("status", {}).get("admissionChecks", ()):
                if each.get("retryCount"):
                    self.gave_back.add(name)
                if "PowerHeadroom" in each.get("message", ""):
                    self.told[name] = each["message"]


_BESIDE = pytest.mark.slow(
    beside="tests/kubernetes/test_bridge.py::"
    "test_the_leader_is_replaced_when_it_is_killed_and_nobody_runs_twice"
)


@pytest.mark.parametrize(
    "count",
    [pytest.param(12, marks=_BESIDE), pytest.param(1000, marks=_BESIDE)],
    indirect=True,
    ids=["a dozen", "a thousand"],
)
def test_all_end_and_none_runs_twice_under_one_lease(site: Site, count: int) -> None:
    drawn = random.Random(_DRAWN)
    watch = Watch(site)
    lower_budget("site", "bergen", 8_000.0)
    for number in range(count):
        pods = 3 if number % 10 == 0 else 1
        gpus = 4 if pods > 1 else drawn.choice([1, 2, 4])
        site.submit(f"t{number}", pods=pods, gpus=gpus, annotations={"tests/run-s": _RUN_S})
    for _ in range(10):
        site.round()
        watch.look_at_workloads()
        time.sleep(0.5)
    lift_all()
    most = max(2, count // 50)
    over, evicted, broken = 0, 0, {count // 3: "bridge", count // 2: "server"}
    until = time.monotonic() + 120 + 2 * count
    while over < count:
        assert time.monotonic() < until, f"{over} of {count} have ended"
        site.round()
        watch.look()
        over = Job.objects.filter(state="succeeded").count()
        running = list(Attempt.objects.filter(state="running").values_list("key", flat=True))
        if evicted < most and running:
            key = drawn.choice(sorted(running))
            now = datetime.now(UTC)
            evicted += len(directives.preempt([key], for_key="x/y", why="it is full", now=now))
        for at in [each for each in broken if over >= each]:
            _break(site, broken.pop(at))
    assert not broken
    assert evicted == most
    watch.look("")
    assert watch.gave_back
    assert watch.told
    assert [text for text in watch.told.values() if not _MESSAGE.fullmatch(text)] == []
    assert watch.mixed == []
    assert {key: len(found) for key, found in watch.uids.items() if len(found) > 1} == {}
    assert "" not in {lease for lease, _ in watch.uids}
    ends = set(Attempt.objects.values_list("outcome", flat=True))
    assert ends <= {"succeeded", "preempted", "withdrawn"}
    site.until(lambda: not _labels(site))


def _labels(site: Site) -> list[str]:
    """Return the labels of leases that are left on nodes."""
    found = site.client.list("Node")["items"]
    return [key for node in found for key in node["metadata"]["labels"] if key.startswith("lease.")]


def _break(site: Site, what: str) -> None:
    if what == "bridge":
        site.begin()
        site.kill(site.bridge)
    else:
        site.api_server.stop()
        site.step()
        site.api_server.store.compact()
        site.api_server.start()
