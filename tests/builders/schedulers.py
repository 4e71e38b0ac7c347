"""A scheduler that people have already, invented, with its bridge: it does what it is told."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.test import Client as HttpClient

from admission.cycle import loop
from tests.builders.fleet import SmallFleet

NAME = "hall-a"
NODES = ["bergen-a01-n1", "bergen-a01-n2", "bergen-a02-n1", "bergen-a02-n2"]


@dataclass
class Invented:
    """A scheduler that does what it is told, and its bridge."""

    fleet: SmallFleet
    token: str
    session: str = "s1"
    kind: str = "slurm"
    name: str = NAME
    has: Sequence[str] = tuple(NODES)
    is_new: bool = True
    #: node and index of a GPU of which NVML shows two MIG instances
    mig: tuple[str, int] | None = None
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)

    def post(self, **given: Any) -> Any:
        body = {
            "kind": self.kind, "session": self.session, "complete": self.is_new,
            "jobs": [{"ref": ref, **each} for ref, each in self.jobs.items()],
            "nodes": [
                {"node": node, "state": "up", **self.nodes.get(node, {})} for node in self.has
            ],
            **given,
        }  # fmt: skip
        client = HttpClient(headers={"Authorization": f"Bearer {self.token}"})
        return client.post(f"/api/v1/schedulers/{self.name}", body, content_type="application/json")

    def tell(self, **given: Any) -> dict[str, Any]:
        answer = self.post(**given)
        assert answer.status_code == 200, answer.content
        self.is_new = False
        found: dict[str, Any] = answer.json()
        return found

    def submit(self, ref: str, **given: Any) -> None:
        self.jobs[ref] = {
            "state": "held", "user": "ada", "account": "vision", "submitted_at": time.time() - 60,
            "gpus": 4, "gpus_per_node": 4, "nodes_wanted": 1, "model": "h100",
            "time_limit_s": 3600.0, "can_requeue": True, **given,
        }  # fmt: skip

    def obey(self) -> list[dict[str, Any]]:
        """Do what is wanted of jobs, at once; return the orders."""
        orders: list[dict[str, Any]] = self.tell().get("jobs", [])
        for order in orders:
            job = self.jobs[order["ref"]]
            if order["wanted"] == "run":
                job |= {
                    "state": "running", "lease": order["lease"], "nodes": order["nodes"],
                    "started_at": time.time(),
                }  # fmt: skip
            elif order["wanted"] == "evict":
                job |= {
                    "state": "held",
                    "lease": "",
                    "nodes": [],
                    "restarts": 1 + job.get("restarts", 0),
                }
            elif order["wanted"] == "cancel":
                job |= {"state": "ended", "ended_as": "cancelled", "nodes": []}
        return orders

    def _instances(self, node: str, gpu: int) -> float | None:
        return 2 if (node, gpu) == self.mig else None

    def cycle(self, *, may_be_short: bool = False) -> None:
        self.fleet.report(util=0.0, power_w=80.0, mig_instances=self._instances)
        done = loop.cycle_once(time.time(), may_be_short=may_be_short)
        assert done is not None
        assert not done.failed

    def round(self) -> None:
        self.obey()
        self.cycle()
        self.obey()
        self.tell()
