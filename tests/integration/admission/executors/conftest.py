"""A gang on the small fleet, and machines that speak as runners do."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
import pytest
from django.test import Client as HttpClient

from admission.cycle import dispatch, reconciliation
from admission.cycle.reconciliation import Reconciled
from admission.executors import runners, sync
from admission.executors.models import Gang, Hearing, Runner
from admission.executors.node_queue import moment
from admission.jobs.models import Attempt, Job, Phase
from headroom.work.contract import WorkReports
from telemetry.directory import scope_of
from tests.builders.begun import begin_anew
from tests.builders.fleet import SmallFleet, small_fleet
from tests.builders.jobs import make_attempt, make_job

NODES = ("bergen-a01-n1", "bergen-a01-n2")


@pytest.fixture
def fleet(db: None) -> SmallFleet:
    made = small_fleet(sites=["bergen"], rows=["A"], racks_per_row=2)
    begin_anew()
    return made


@dataclass
class Machine:
    """One node's runner, as the server sees it."""

    token: str
    node: str
    store: str = ""
    #: what it holds, by attempt
    holds: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = self.store or f"store-of-{self.node}"

    def post(self, **given: Any) -> Any:
        """Report by HTTP, with fields ``given`` in place of its own."""
        body = {**self._message(), **given}
        return HttpClient(headers={"Authorization": f"Bearer {self.token}"}).post(
            "/api/v1/work", body, content_type="application/json"
        )

    def orders(self) -> dict[str, dict[str, Any]]:
        """Report, without HTTP, and return what is wanted, by attempt."""
        message = msgspec.convert(self._message(), WorkReports)
        scope = scope_of(self.token)
        assert scope is not None
        answer = sync.sync(scope, message, time.time())
        return {order.attempt: msgspec.to_builtins(order) for order in answer.orders}

    def _message(self) -> dict[str, Any]:
        reports = [
            {"attempt": key, "node": self.node, **report} for key, report in self.holds.items()
        ]
        return {"store": self.store, "nodes": [self.node], "reports": reports}

    def wanted(self) -> dict[str, str]:
        return {key: order["wanted"] for key, order in self.orders().items()}

    def hold(self, key: str, state: str, **report: Any) -> None:
        self.holds[key] = {"state": state, **report}

    def obey(self) -> None:
        """Do at once what is wanted: claim, start, stop, forget."""
        for key, wanted in self.wanted().items():
            if wanted == "claim":
                self.hold(key, "claimed")
            elif wanted == "run" and self.holds[key]["state"] == "claimed":
                self.hold(key, "running", started_at=time.time())
            elif wanted == "stop":
                is_running = self.holds.get(key, {}).get("state") == "running"
                outcome = "stopped" if is_running else "never_started"
                self.hold(key, "ended", outcome=outcome)
            elif wanted == "forget":
                del self.holds[key]


@dataclass
class Scene:
    fleet: SmallFleet
    machines: list[Machine]
    now: float = field(default_factory=time.time)
    #: of the machine that the worker is on
    uptime_s: float = 1000.0

    def attempt(
        self,
        name: str = "llama",
        nodes: Sequence[str] = NODES,
        *,
        restart: Mapping[str, Any] | None = None,
        **given: Any,
    ) -> Attempt:
        """Make an attempt that was admitted and not dispatched."""
        job = Job.objects.filter(name=name).first()
        if job is None:
            job = make_job(name, gpus=4 * len(nodes), state="starting")
            job.spec["phases"][0]["restart"] = dict(restart or {})
            job.save(update_fields=["spec"])
        phase = job.phases.get()
        Phase.objects.filter(pk=phase.pk).update(state="starting")
        fields: dict[str, Any] = {"state": Attempt.State.DISPATCHED, "started_at": None, **given}
        return make_attempt(phase, {node: range(4) for node in nodes}, **fields)

    def released(self, name: str = "llama", **given: Any) -> Attempt:
        attempt = self.attempt(name, **given)
        dispatch.dispatch([attempt], self.now)
        return attempt

    def running(self, name: str = "llama", **given: Any) -> Attempt:
        """Make an attempt that all of its nodes run, and that is known to."""
        attempt = self.released(name, **given)
        for _ in range(4):
            self.go_round()
        self.reconcile()
        attempt.refresh_from_db()
        assert attempt.state == "running"
        return attempt

    def go_round(self) -> None:
        for machine in self.machines:
            machine.obey()

    def end(self, attempt: Attempt, **report: Any) -> None:
        """Have the command end on all nodes, and the server hear of it."""
        for machine in self.machines:
            machine.hold(attempt.key, "ended", **report)
        self.go_round()
        self.reconcile()
        attempt.refresh_from_db()

    def reconcile(self, after_s: float = 0.0) -> Reconciled:
        self.now = max(self.now + after_s, time.time())
        self.uptime_s += after_s
        return reconciliation.reconcile(self.now)

    def listen(self, for_s: float, *, hears: str = "") -> None:
        """Go on for so long, with looks often enough; ``hears`` names who speaks meanwhile."""
        for _ in range(round(for_s / 5)):
            if hears:
                heard_s = Hearing.objects.get().listened_s
                Runner.objects.filter(node=hears).update(seen_at=self.at, heard_s=heard_s)
            self.reconcile(5.0)

    @property
    def at(self) -> datetime:
        return moment(self.now)

    def gang(self, attempt: Attempt) -> Gang:
        return Gang.objects.get(key=attempt.key)

    def phase(self, attempt: Attempt) -> Phase:
        return Phase.objects.get(pk=attempt.phase_id)


@pytest.fixture
def scene(fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene(fleet, [Machine(fleet.token, node) for node in NODES])
    monkeypatch.setattr(runners, "uptime", lambda: runners.Uptime("here", made.uptime_s))
    return made
