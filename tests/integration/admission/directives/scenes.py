"""Running jobs, the clock, and what machines answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from admission.core.response.fallback import UNWATCHED_S
from admission.cycle import dispatch
from admission.directives.models import Control, Directive
from admission.directives.step import Stepped, step
from admission.executors.models import Gang, NodeAssignment
from admission.jobs.models import Attempt, Phase
from tests.builders.fleet import SmallFleet
from tests.builders.jobs import make_attempt, make_job

RACK, OTHER_RACK = "oslo/A01", "oslo/A02"
#: of a GPU at work, and of one that idles
WORK_W, IDLE_W = 650.0, 70.0
#: a step every so often, s
EVERY_S = 15.0


def running(
    fleet: SmallFleet, name: str, nodes: Sequence[str], *, now: float, **given: Any
) -> Attempt:
    """Have a job run on whole nodes since ten minutes, and its machines know of it."""
    asks = {"preemptible": True, "checkpoint_interval_s": 1800.0, **given.pop("asks", {})}
    placement = {"power_cap_w": None, **given.pop("placement", {})}
    attempt_fields = given.pop("attempt", {})
    job = make_job(name, state="running", asks=asks, gpus=4 * len(nodes), **given)
    sites = sorted({fleet.nodes[node].rack.site.name for node in nodes})
    attempt = make_attempt(
        Phase.objects.get(job=job),
        {node: list(range(fleet.gpus_per_node)) for node in nodes},
        placement={"sites": sites, "peak_w": dict.fromkeys(nodes, 4_800.0), **placement},
        state=Attempt.State.DISPATCHED,
    )
    dispatch.dispatch([attempt], now)
    began = datetime.fromtimestamp(now, UTC) - timedelta(minutes=10)
    NodeAssignment.objects.filter(gang__key=attempt.key).update(
        state="running", started_at=began, store="s"
    )
    Gang.objects.filter(key=attempt.key).update(go_at=began)
    fields = {"state": "running", "started_at": began, **attempt_fields}
    Attempt.objects.filter(pk=attempt.pk).update(**fields)
    attempt.refresh_from_db()
    return attempt


def obey(attempt: Attempt, **given: Any) -> None:
    """Have all nodes of a gang have seen, and done, what it was told."""
    gang = Gang.objects.get(key=attempt.key)
    seqs = {"signals_seen": gang.signal_seq, "signals_done": gang.signal_seq}
    gang.assignments.update(**{**seqs, **given})


def end(attempt: Attempt, at: float, outcome: str = "preempted", **given: Any) -> None:
    """End an attempt, as reconciliation does."""
    ended_at = datetime.fromtimestamp(at, UTC)
    Attempt.objects.filter(pk=attempt.pk).update(
        state="ended", outcome=outcome, ended_at=ended_at, **given
    )
    Phase.objects.filter(pk=attempt.phase_id).update(state="queued")
    Gang.objects.filter(key=attempt.key).update(ended_at=ended_at, outcome="stopped")


def signals(attempt: Attempt) -> list[tuple[str, float | None]]:
    """Return what the gang was told and has not seen."""
    gang = Gang.objects.get(key=attempt.key)
    return [(each["kind"], each["value"]) for each in gang.signals]


def lines(row: Directive) -> list[str]:
    return [str(event.kind) for event in row.events.order_by("id")]


def only() -> Directive:
    return Directive.objects.get()


def control(attempt: Attempt) -> Control:
    return Control.objects.get(attempt=attempt)


class Clock:
    """Time that goes by in steps, with readings and machines that answer."""

    def __init__(self, fleet: SmallFleet, seconds_ago: float = 1200.0) -> None:
        self.fleet = fleet
        self.now = float(int(time.time() - seconds_ago))
        #: W of each GPU, by node
        self.power_w: dict[str, float] = dict.fromkeys(fleet.nodes, IDLE_W)
        self.temp_c = 60.0
        self.silent: set[str] = set()
        self.obedient: list[Attempt] = []

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.now, UTC)

    def read(self) -> None:
        heard = [node for node in self.fleet.nodes if node not in self.silent]
        if heard:
            self.fleet.report(
                at=self.now, only=heard, temp_c=self.temp_c,
                power_w=lambda node, _: self.power_w[node],
            )  # fmt: skip

    def step(self, *, reads: bool = True) -> Stepped:
        """Go on by one step in which nothing fails."""
        self.now += EVERY_S
        if reads:
            self.read()
        stepped = step(self.now)
        assert stepped.failed == []
        for attempt in self.obedient:
            obey(attempt)
        return stepped

    def rest(self, seconds: float) -> None:
        """Let so long go by with readings alone, and then do a step."""
        last = self.now + seconds
        while self.now < last - EVERY_S:
            self.now += EVERY_S
            self.read()
        self.step()

    def look(self, seconds: float) -> None:
        """Go on for so long, in as few steps as leave nothing unwatched."""
        last = self.now + seconds
        while self.now < last:
            self.now += UNWATCHED_S - EVERY_S
            self.step()

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> None:
        """Go on for so long, or until something is so."""
        last = self.now + seconds
        while self.now < last:
            self.step()
            if until is not None and until():
                return
        assert until is None, f"not within {seconds:g} s"
