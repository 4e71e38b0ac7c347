"""Jobs of scenarios and traces, as they are submitted to a server through its public API."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from headroom.client import HeadroomError, Refused, Unavailable
from lab.delivery import Gate
from lab.world.arrival import Arrival

__all__ = ["Document", "Manner", "Submitter", "job_document", "set_up_project"]

log = logging.getLogger(__name__)

Document = dict[str, Any]

#: What artifacts are pinned to: nobody fetches them, and jobs that may begin again need some.
_PINNED = hashlib.sha256(b"twin").hexdigest()
#: The shortest walltime that is asked for, s.
_LEAST_WALLTIME_S = 60.0
#: Refusals that are told of; the rest is counted.
_TOLD = 5


@dataclass(frozen=True, kw_only=True)
class Manner:
    """The settings of submission that all jobs of a run share."""

    #: in the names of all of them: names are unique on a server
    run: str
    project: str
    job_class: str = "high-density-training"
    #: where they may run; none: anywhere
    sites: tuple[str, ...] = ()
    #: times that they run are divided by this
    faster: float = 1.0


def job_document(arrival: Arrival, manner: Manner) -> Document:
    """Return the specification of the job of ``arrival``.

    What it does on the machines of the twin stands in its environment: see :mod:`lab.work`.
    """
    request = arrival.request
    env = {"TWIN_KIND": "train", "TWIN_WORK_S": f"{arrival.runs_s / manner.faster:.1f}"}
    if arrival.activity is not None:
        env["TWIN_ACTIVITY"] = f"{arrival.activity:.3f}"
    phase: Document = {
        "name": request.phase,
        "gang": {"gpus": request.gpus, "min_gpus": request.min_gpus},
        "walltime_s": max(request.walltime_s / manner.faster, _LEAST_WALLTIME_S),
        "power": _given(
            expected_peak_w=request.gpu_peak_w, lowest_cap_w=request.lowest_cap_w
        ),
        "locality": {
            "required": request.required.name.lower(),
            "preferred": request.preferred.name.lower(),
            "sites": list(manner.sites),
        },
        "throttling": _throttling(arrival),
        "restart": {"tolerance": "disruption", "max_restarts": arrival.max_restarts},
        "artifacts": {
            "image": f"sha256:{_PINNED}", "code_revision": _PINNED[:40], "data": {},
        },
        "command": ["python", "train.py"],
        "env": env,
    }  # fmt: skip
    if request.checkpoint_interval_s is not None:
        every_s = request.checkpoint_interval_s / manner.faster
        env["TWIN_CHECKPOINT_S"] = f"{every_s:.1f}"
        phase["checkpoint"] = {
            "interval_s": every_s,
            "cross_site": "optional" if arrival.moves else "none",
        }
    return {
        "name": f"{manner.run}-{request.job}",
        "project": manner.project,
        "class": manner.job_class,
        "phases": [phase],
        "labels": {"run": manner.run, "asked-by": request.project},
    }


def _throttling(arrival: Arrival) -> Document:
    agreed, request = arrival.throttling, arrival.request
    responses = ["continue"]
    if agreed.shrink_below is not None:
        responses.append("shrink-batch")
    if agreed.pause_below is not None:
        responses.append("pause")
    if arrival.moves:
        responses.append("migrate")
    return {
        "responses": responses,
        "max_slowdown": request.max_slowdown,
        **_given(
            shrink_below=agreed.shrink_below,
            pause_below=agreed.pause_below,
            min_batch_scale=agreed.batch_scale if agreed.shrink_below is not None else None,
        ),
    }


def _given(**values: float | None) -> Document:
    return {name: value for name, value in values.items() if value is not None}


class JobServer(Protocol):
    """The server that jobs are submitted to, such as :class:`headroom.client.Client`."""

    def get(self, path: str, params: Any = None) -> Any: ...

    def post(self, path: str, document: Any, params: Any = None) -> Any: ...

    def post_body(
        self, path: str, body: bytes, content_type: str, params: Any = None, headers: Any = None
    ) -> Any: ...


#: A trace has more waiting, and faster, than people have.
_ROOM_FOR_A_TRACE = {
    "max_pending_jobs": 100_000,
    "max_pending_phases": 200_000,
    "submissions_per_s": 500.0,
}


def set_up_project(server: JobServer, name: str, description: str) -> None:
    """Make a project if it is not there."""
    found = server.get("/api/v1/projects", {"page_size": "1000"})["results"]
    if name not in {each["name"] for each in found}:
        server.post(
            "/api/v1/projects", {"name": name, "description": description, **_ROOM_FOR_A_TRACE}
        )


@dataclass
class Submitter:
    """Submits jobs when they are due, in order. While the server is away they wait.

    ``due_s`` has the moment of each job, in the time of whoever calls :meth:`step`.
    """

    server: JobServer
    documents: Sequence[Document]
    due_s: Sequence[float]
    place: int = 0
    accepted: list[str] = field(default_factory=list)
    refused: int = 0
    #: the first refusals, in words
    refusals: list[str] = field(default_factory=list)
    _gate: Gate = field(default_factory=Gate)

    @property
    def done(self) -> bool:
        return self.place == len(self.documents)

    def step(self, now_s: float, *, most: int = 50) -> None:
        """Submit the jobs that are due at ``now_s``, ``most`` jobs at most."""
        for _ in range(most):
            if self.done or self.due_s[self.place] > now_s or self._gate.wait_s() > 0.0:
                return
            if not self._submit(self.documents[self.place]):
                return
            self.place += 1

    def _submit(self, document: Document) -> bool:
        """Submit one job. Return whether the server has accepted or refused it."""
        # A request that was cut off may have been taken: the key tells that it is the same.
        key = {"Idempotency-Key": document["name"]}
        body = msgspec.json.encode(document)
        try:
            self.server.post_body("/api/v1/jobs", body, "application/json", None, key)
        except Refused as exc:
            self.refused += 1
            if len(self.refusals) < _TOLD:
                self.refusals.append(f"{document['name']}: {exc}")
        except Unavailable as exc:
            self._gate.failed(exc.retry_after_s)
            return False
        else:
            self._gate.succeeded()
            self.accepted.append(document["name"])
        return True

    def cancel(self, why: str) -> None:
        """Cancel accepted jobs that have not ended, as far as the server can be reached."""
        for name in self.accepted:
            try:
                self.server.post(f"/api/v1/jobs/{name}/cancel", {"why": why})
            except Refused:
                continue  # it has ended
            except HeadroomError as exc:
                log.warning("jobs are left to the server", extra={"why": exc})
                return
