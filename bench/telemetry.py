"""The cost of taking and keeping readings: Headroom, its ceiling and its peers, in one run.

Beside its peers Headroom takes the same readings as they do (``bench.readings``), encoded before
the clock starts, and sent in requests of 64 GPUs as fast as they are taken. What it does with more
than peers can be asked for, a backlog and a fleet at its pace, is measured as in ``bench.ingest``.

The figures of a whole run are written to ``bench/results/telemetry.json``.
"""

from __future__ import annotations

# What needs models is imported in functions: Django is set up when there is a server.
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from bench import django_in, ingest, peers, report, timelines
from bench.feed import NODE_GPUS, RACK_GPUS, Agents, RemoteWrites, enroll_agents
from bench.peers import Peer, Prometheus, VictoriaMetrics
from bench.readings import STEP_S, Readings, Step
from bench.stack import Stack, apart, running

GPUS = 10_240
#: Steps that are measured, after those in which everybody gets to know every GPU.
STEPS = 30
FIRST_STEPS = 2
#: Readings that lie on the disk for long: two hours of some racks.
KEPT_GPUS = 512
KEPT_STEPS = 720
#: A run that keeps its pace for less is a look, and its figures are not kept.
WHOLE_MINUTES = 10.0
NODE_BATCHES_S = 60.0
#: All agents come over all connections, so that either web process has to learn each of them, in
#: some rounds of ten seconds. A real agent stays with one.
NODE_BATCHES_WARM_UP_S = 60.0

#: For how long it is watched what the installation does by itself.
RESTING_S = 20.0
_DURABLE_S = 300.0
_POLL_S = 0.02


def run(*, minutes: float = WHOLE_MINUTES) -> None:
    """Measure all figures. ``minutes``: for how long 100,000 GPUs push every ten seconds."""
    for kind in peers.PEERS:
        peers.find(kind.program)  # better now than after a quarter of an hour
    figures = _way_in(minutes) | _kept() | _series() | _peers()
    notes = NOTES | {"machine_share_100k": f"of all cores, for {minutes:g} minutes"}
    report.show("telemetry", figures, notes)
    if minutes >= WHOLE_MINUTES:
        print(f"kept in {report.keep('telemetry', figures)}")


NOTES = {
    "copy_ceiling_rows_per_s": "binary COPY alone, of the same rows",
    "rows_per_s": "HTTP to durable row, in batches of 64 GPUs, the client on the same cores",
    "drain_rows_per_s": f"{ingest.BACKLOG_ROWS:,} rows that waited in the stream",
    "cpu_s_per_million_values": "web, worker, beat, Valkey and Postgres; the readings of the peers",
    "cpu_s_per_million_values_node_batches_resting": (
        f"of that: what goes on as well when nobody pushes, watched for {RESTING_S:g} s afterwards"
    ),
    "cpu_s_per_million_values_100k": "at the fleet's pace, with roll-ups and all else that goes on",
    "rows_per_s_100k": f"of {ingest.FLEET_ROWS_PER_S:,} that were to be pushed",
    "visible_p99_s": "then, from the reading to the live frame",
    "hot_bytes_per_value": "in Postgres, index included",
    "cold_bytes_per_value": "in the files of the cold tier",
    timelines.KEY: timelines.NOTE,
}


def _way_in(minutes: float) -> dict[str, Any]:
    with running() as stack:
        django_in.set_up(stack)
        token_file = stack.state_dir / "bench-token"
        token_file.write_text(token := django_in.operator_token())
        trial = Trial.make(GPUS, STEPS)
        racks, nodes = (headroom_cost(stack, token, trial, g) for g in (RACK_GPUS, NODE_GPUS))
        fast_racks, fast_nodes = (
            ingest.full_speed(stack, token_file, batch_gpus=g) for g in (RACK_GPUS, NODE_GPUS)
        )
        drained = ingest.drain_backlog(stack, token)
        ceiling = ingest.copy_ceiling()
        paced = ingest.paced(stack, token_file, duration_s=minutes * 60)
        paced_nodes = ingest.paced(
            stack,
            token_file,
            batch_gpus=NODE_GPUS,
            duration_s=NODE_BATCHES_S,
            warm_up_s=NODE_BATCHES_WARM_UP_S,
        )
    return {
        "copy_ceiling_rows_per_s": ceiling,
        "rows_per_s": fast_racks.rows_per_s,
        "rows_per_s_node_batches": fast_nodes.rows_per_s,
        "drain_rows_per_s": drained,
        "drain_share_of_ceiling": drained / ceiling,
        "cpu_s_per_million_values": racks.total,
        "cpu_s_per_million_values_node_batches": nodes.total,
        **{f"cpu_s_per_million_values_node_batches_{n}": s for n, s in nodes.by_service.items()},
        "cpu_s_per_million_values_node_batches_resting": nodes.resting,
        "cpu_s_per_million_values_100k": paced.cpu_s_per_million_values,
        "rows_per_s_100k": paced.rows_per_s,
        "machine_share_100k": paced.machine_share,
        "client_share_100k": paced.client_share,
        "visible_p50_s": report.percentile(paced.ages_s, 0.5),
        "visible_p99_s": report.percentile(paced.ages_s, 0.99),
        "rows_per_s_100k_node_batches": paced_nodes.rows_per_s,
        "machine_share_100k_node_batches": paced_nodes.machine_share,
        "reconnects_100k_node_batches": paced_nodes.reconnects,
        "visible_p50_s_node_batches": report.percentile(paced_nodes.ages_s, 0.5),
        "visible_p99_s_node_batches": report.percentile(paced_nodes.ages_s, 0.99),
    }


def _kept() -> dict[str, Any]:
    kept = apart(headroom_bytes)
    return {"hot_bytes_per_value": kept.hot, "cold_bytes_per_value": kept.cold}


def _series() -> dict[str, Any]:
    return {timelines.KEY: report.percentile(apart(timelines.rack_day_ms), 0.95)}


def _peers() -> dict[str, Any]:
    trial, kept = Trial.make(GPUS, STEPS), Trial.make(KEPT_GPUS, KEPT_STEPS)
    return {
        "vm_cpu_s_per_million_values": peer_cost(VictoriaMetrics, trial),
        "vm_bytes_per_value": peer_bytes(VictoriaMetrics, kept),
        "prom_cpu_s_per_million_values": peer_cost(Prometheus, trial),
        "prom_bytes_per_value": peer_bytes(Prometheus, kept),
        "values_per_row": trial.values / trial.rows,
    }


@dataclass(frozen=True)
class Kept:
    """Bytes that a value takes while its row is in Postgres, index included, and afterwards."""

    hot: float
    cold: float


@dataclass(frozen=True)
class Trial:
    """Steps of one fleet. The first ones are not measured."""

    readings: Readings
    steps: list[Step]

    @staticmethod
    def make(gpus: int, steps: int) -> Trial:
        """Make readings that end now: none is from the future, and none too old."""
        start_s = time.time() - (steps + FIRST_STEPS + 1) * STEP_S
        readings = Readings(gpus, start_s=start_s)
        return Trial(readings, list(readings.steps(FIRST_STEPS + steps)))

    @property
    def values(self) -> int:
        return sum(step.count for step in self.steps[FIRST_STEPS:])

    @property
    def rows(self) -> int:
        return sum(len(step.ts) for step in self.steps[FIRST_STEPS:])


# --- Headroom ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """CPU s per million values of the whole way in, and what of that is no batch's.

    ``resting``: what the same installation uses in as much time while nobody pushes.
    """

    by_service: dict[str, float]
    resting: float

    @property
    def total(self) -> float:
        return sum(self.by_service.values())


def headroom_cost(stack: Stack, token: str, trial: Trial, batch_gpus: int) -> Cost:
    """Return the cost of the whole way in: HTTP, Redis, Celery, durable rows."""
    agents = enroll_agents(stack.url, token, trial.readings, batch_gpus)
    agents.encode(trial.steps)
    agents.push(0, FIRST_STEPS)
    _wait_until_durable(agents, FIRST_STEPS)
    before, began = stack.cpu_seconds(), time.monotonic()
    agents.push(FIRST_STEPS, len(trial.steps))
    _wait_until_durable(agents, len(trial.steps))
    took_s, used = time.monotonic() - began, _used_since(before, stack)
    before = stack.cpu_seconds()
    time.sleep(RESTING_S)
    resting = sum(_used_since(before, stack).values()) / RESTING_S * took_s
    millions = trial.values / 1e6
    return Cost({name: cpu_s / millions for name, cpu_s in used.items()}, resting / millions)


def _used_since(before: dict[str, float], stack: Stack) -> dict[str, float]:
    return {name: now - before[name] for name, now in stack.cpu_seconds().items()}


def _wait_until_durable(agents: Agents, seq: int) -> None:
    from telemetry.models import IngestPosition

    done = IngestPosition.objects.filter(boot_id=agents.boot_id, mark__gte=seq)
    end = time.monotonic() + _DURABLE_S
    while done.count() < len(agents.names):
        if time.monotonic() > end:
            raise TimeoutError(f"not all batches are durable after {_DURABLE_S} s")
        time.sleep(_POLL_S)


def headroom_bytes() -> Kept:
    """Return how many bytes a value takes in Postgres, and then in the cold tier."""
    trial = Trial.make(KEPT_GPUS, KEPT_STEPS)
    values = sum(step.count for step in trial.steps)
    rows = sum(len(step.ts) for step in trial.steps)
    with running() as stack:
        django_in.set_up(stack)
        agents = enroll_agents(stack.url, django_in.operator_token(), trial.readings, RACK_GPUS)
        agents.encode(trial.steps)
        agents.push(0, len(trial.steps))
        _wait_until_durable(agents, len(trial.steps))
        return Kept(hot=_bytes_in_postgres() / values, cold=_move_to_cold(rows) / values)


def _bytes_in_postgres() -> int:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits"
            " WHERE inhparent = 'gpu_sample'::regclass"
        )
        return int(cursor.fetchone()[0])


def _move_to_cold(rows: int) -> int:
    """Let the housekeeper believe that a day and more has passed; return the bytes of its files."""
    from django.conf import settings
    from django.db.models import Sum

    from telemetry import housekeeping
    from telemetry.cold.models import ColdFile

    later = datetime.now(UTC) + timedelta(hours=settings.TELEMETRY_HOT_H + 2)
    files = ColdFile.objects.filter(table="gpu_sample")
    end = time.monotonic() + _DURABLE_S
    while files.aggregate(rows=Sum("rows"))["rows"] != rows:
        if time.monotonic() > end:
            raise TimeoutError(f"the cold tier has {files.aggregate(rows=Sum('rows'))} of {rows}")
        with housekeeping.only_one() as held:
            if held:
                # What was not rolled up does not leave Postgres.
                housekeeping.roll_up(later.timestamp())
                housekeeping.move_to_cold(later)
        time.sleep(_POLL_S)
    return int(files.aggregate(bytes=Sum("bytes"))["bytes"])


# --- Its peers -----------------------------------------------------------------------------------


def peer_cost(kind: type[Peer], trial: Trial) -> float:
    """Return CPU s per million values of a peer on the same readings, once it knows all series."""
    writes = RemoteWrites(trial.readings, trial.steps[0])
    encoded = [writes.encoded(step) for step in trial.steps]
    with peers.running(kind) as peer:
        peer.push(encoded[:FIRST_STEPS])
        peer.settle()
        before = peer.cpu_seconds()
        peer.push(encoded[FIRST_STEPS:])
        peer.settle()
        used_s = peer.cpu_seconds() - before
        _check_all_there(peer, trial)
    return used_s / trial.values * 1e6


def peer_bytes(kind: type[Peer], trial: Trial) -> float:
    """Return how many bytes a value takes on a peer's disk, once it is at rest."""
    writes = RemoteWrites(trial.readings, trial.steps[0])
    with peers.running(kind) as peer:
        peer.push([writes.encoded(step) for step in trial.steps])
        _check_all_there(peer, trial)
        samples, size = peer.stored()
    return size / samples


def _check_all_there(peer: Peer, trial: Trial) -> None:
    expected = sum(step.count for step in trial.steps)
    if peer.samples() != expected:
        raise peers.PeerError(f"{peer.program} has {peer.samples()} of {expected} values")
