"""Published failures on nodes of a fleet, and what attribution makes of them.

``python -m bench failures`` shows tables and the figures. :mod:`bench.failures_evidence` (Acme) and
:mod:`bench.failures_llama` (Llama 3) say what each published reason leaves, and by which rule. As
many failures of each reason as were published are drawn, put at random moments of twelve days on
nodes that are free then, and go the way of any: lines of kernels' logs through the agent's reader,
the intake and the writer; ends of commands with their output through the machines' reports and
reconciliation; all of it into Postgres. Then :mod:`admission.failures` is asked.

- **Shares.** Of causes and of the papers' categories, beside what was published. A share agrees
  where it lies in the 95 % interval of a binomial share of as many failures.
- **Reasons.** A reason's count agrees where it lies in the 95 % interval of a Poisson count.
- **Confusion.** How many of each reason were attributed to which cause.

Acme was seen while the reader of output was being written, so that it is a test of the whole way.
Llama 3 judges: its evidence was written when the reader was committed. Acme calls infrastructure
what is anything but software here; its frameworks and scripts are both software.
"""

from __future__ import annotations

# What needs models is imported in functions: Django is set up when there is a server.
import json
import logging
import os
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from scipy import stats

from admission.core.failures import CAUSES, Cause, Kind
from bench import report
from bench.failures_evidence import ACME, Reason, Trace
from bench.failures_llama import LLAMA_3
from headroom.agent.sources.kernel_log import KernelLog
from headroom.contracts import NodeReport, TelemetryBatch, XidColumns, encode_batch
from headroom.work.contract import WorkOutcome, WorkReport, WorkReports, WorkState

if TYPE_CHECKING:
    from tests.builders.fleet import SmallFleet

__all__ = ["Attributed", "attributed", "confusion", "figures", "servers"]

SEED = 20
NOTES = {
    "acme_infrastructure_share": "published 0.109",
    "llama_infrastructure_share": "published 0.866",
    "acme_infrastructure_gpu_time": "of all GPU time of failures; published 0.821",
}
_DAY_S, _SPAN_S = 86_400.0, 12 * 86_400.0
_GPUS_PER_NODE, _MOST_NODES = 8, 8
#: Nodes are left alone for so long before and after a failure, s: on a cluster of hundreds of nodes
#: over half a year failures of one node are days apart.
_APART_S = 7200.0
#: Within so long of the node that fails its peers end, and the server has heard of all of them, s.
_PEERS_END_S, _HEARD_S = 2.0, 5.0
#: So many are reconciled together: attempts end when the server heard of it, not when it looks.
_AT_ONCE = 50
_STORE = "bench"
#: The bus of the GPU that lines of the kernel's log name, and its index.
_PCI = {(0, 0x9B, 0): 4}


@dataclass(frozen=True, slots=True)
class Drawn:
    """A failure that is to happen: an attempt of so many nodes that fails at ``at``, Unix s."""

    key: str
    reason: Reason
    trace: Trace
    at: float
    nodes: tuple[str, ...]
    #: the node of ``nodes`` that fails
    failing: str


@dataclass(frozen=True, slots=True)
class Attributed:
    """A published failure and what it was attributed to. ``kind`` None: it was not told of."""

    reason: Reason
    kind: Kind | None

    @property
    def cause(self) -> Cause | None:
        return None if self.kind is None else CAUSES[self.kind]


def run() -> None:
    with servers():
        found = attributed((*ACME, *LLAMA_3), np.random.default_rng(SEED))
    told: dict[str, Any] = {}
    for name, reasons in (("acme", ACME), ("llama", LLAMA_3)):
        of_them = [each for each in found if each.reason in reasons]
        told |= figures(name, reasons, of_them)
        print(f"\n{name}", *confusion(reasons, of_them), sep="\n")
    report.show("failures", told, NOTES)
    print(f"kept in {report.keep('failures', told)}")


@contextmanager
def servers() -> Iterator[None]:
    """Start Postgres and Valkey, with nothing else that runs, and set Django up on them. Once."""
    from config.embedded import EmbeddedServers

    with tempfile.TemporaryDirectory(prefix="headroom-failures-") as folder:
        Path(folder).chmod(0o711)
        started = EmbeddedServers(Path(folder) / "state", durable=False)
        started.start()
        try:
            os.environ |= {**started.environment, "HEADROOM_STATE_DIR": str(Path(folder) / "state"),
                           "SECRET_KEY": secrets.token_urlsafe(50),
                           "DATABASE_OWNER_URL": started.owner_url or "",
                           "DJANGO_SETTINGS_MODULE": "config.settings"}  # fmt: skip
            import django
            from django.core.management import call_command

            django.setup()
            call_command("migrate", verbosity=0)
            yield
        finally:
            started.stop()


# --- Failures happen ------------------------------------------------------------------------------


def attributed(reasons: Sequence[Reason], random: np.random.Generator) -> list[Attributed]:
    """Have as many failures of ``reasons`` happen as were published, and return what is told.

    The database has no fleet yet.
    """
    from admission.executors.node_queue import moment
    from admission.failures import reading
    from telemetry.models import Agent
    from telemetry.spans import Span
    from tests.builders.begun import begin_anew
    from tests.builders.fleet import small_fleet

    now = time.time()
    racks = 1 + sum(each.count for each in reasons) // 40
    fleet = small_fleet(
        sites=["acme"], rows=["A"], racks_per_row=max(racks, 4), nodes_per_rack=4,
        gpus_per_node=_GPUS_PER_NODE, budget_w=60_000.0,
    )  # fmt: skip
    logging.getLogger("headroom.agent").setLevel(logging.ERROR)
    Agent.objects.update(created_at=moment(now - _SPAN_S - _DAY_S), last_seen_at=moment(now))
    begin_anew()
    drawn = draw(reasons, sorted(fleet.nodes), now, random)
    for first in range(0, len(drawn), _AT_ONCE):
        some = drawn[first : first + _AT_ONCE]
        for each in some:
            _begin(each, fleet)
            _log(each, fleet)
            _end(each, fleet, random)
        _reconcile(some)
    told = reading.of_fleet(Span(now - _SPAN_S - _DAY_S, now), now)
    kinds = {job: each.kind for each in told.failures for job in each.jobs}
    return [Attributed(each.reason, kinds.get(f"{each.key}/train/1")) for each in drawn]


def draw(
    reasons: Sequence[Reason], nodes: Sequence[str], now: float, random: np.random.Generator
) -> list[Drawn]:
    """Return failures at random moments on nodes that are free then, in order of time."""
    of = random.permutation(np.repeat(np.arange(len(reasons)), [each.count for each in reasons]))
    times = now - np.sort(random.uniform(600.0, _SPAN_S, of.size))[::-1]
    free_at = np.full(len(nodes), -np.inf)
    drawn = []
    for place, (row, at) in enumerate(zip(of.tolist(), times.tolist(), strict=True)):
        reason = reasons[row]
        size = min(max(reason.gpus // _GPUS_PER_NODE, 1), _MOST_NODES)
        free = np.flatnonzero(free_at <= at)
        rows = random.choice(free, size, replace=False)
        free_at[rows] = at + _APART_S
        names = tuple(nodes[row] for row in sorted(rows.tolist()))
        failing = names[int(random.integers(size))]
        drawn.append(Drawn(f"job-{place}", reason, reason.draw(random), at, names, failing))
    return drawn


def _begin(drawn: Drawn, fleet: SmallFleet) -> None:
    """Have an attempt run, as if it had been admitted, offered and claimed an hour before."""
    from admission.executors.models import Gang, NodeAssignment
    from admission.executors.node_queue import moment
    from tests.builders.jobs import make_attempt, make_job

    began = moment(drawn.at - 3600.0)
    job = make_job(drawn.key, gpus=_GPUS_PER_NODE * len(drawn.nodes), state="running")
    row = make_attempt(
        job.phases.get(), dict.fromkeys(drawn.nodes, range(_GPUS_PER_NODE)),
        dispatched_at=began, started_at=began,
    )  # fmt: skip
    gang = Gang.objects.create(
        key=row.key, executor="local", work={}, offered_at=began, go_at=began
    )
    NodeAssignment.objects.bulk_create(
        NodeAssignment(
            gang=gang, node_id=fleet.nodes[name].pk, node=name, rank=rank,
            gpus=list(range(_GPUS_PER_NODE)), gpus_of_node=_GPUS_PER_NODE, state="running",
            store=_STORE, claimed_at=began, started_at=began,
        )
        for rank, name in enumerate(drawn.nodes)
    )  # fmt: skip


def _log(drawn: Drawn, fleet: SmallFleet) -> None:
    """Have the kernel log what it does: read as the agent does, sent as it is, and stored."""
    from django.test import Client

    from telemetry.writer import Writer

    if not drawn.trace.kernel:
        return
    fleet.seq += 1
    batch = TelemetryBatch(
        agent=fleet.agent.name, boot_id="bench", seq=fleet.seq, oldest_seq=1, sent_at=time.time(),
        nodes=[NodeReport(node=drawn.failing, xids=_xids(drawn))],
    )  # fmt: skip
    answer = Client().post(
        "/api/v1/telemetry", encode_batch(batch), content_type="application/msgpack",
        headers={"Authorization": f"Bearer {fleet.token}"},
    )  # fmt: skip
    if answer.status_code != 202:
        raise RuntimeError(f"the kernel's log was refused: {answer.content.decode()}")
    while Writer(0).step():
        pass


def _xids(drawn: Drawn) -> XidColumns:
    """Return what the agent's reader of kernel logs makes of the lines of a failure."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    log = KernelLog(
        reading, lambda: _PCI, is_text=True, clock=lambda: drawn.at - drawn.trace.before_s
    )
    os.write(writing, "".join(f"{line}\n" for line in drawn.trace.kernel).encode())
    os.close(writing)
    rows = list(log.read())
    log.close()
    return msgspec.convert({name: [row[name] for row in rows] for name in rows[0]}, XidColumns)


def _end(drawn: Drawn, fleet: SmallFleet, random: np.random.Generator) -> None:
    """Have the command end on all nodes, and the server hear of it at once."""
    from admission.executors import sync
    from telemetry.directory import scope_of

    scope = scope_of(fleet.token)
    assert scope is not None
    later = random.uniform(0.0, _PEERS_END_S, len(drawn.nodes))
    reports = [
        _report(drawn, name, drawn.at + (0.0 if name == drawn.failing else after_s))
        for name, after_s in zip(drawn.nodes, later.tolist(), strict=True)
    ]
    heard = drawn.at + _HEARD_S
    sync.sync(scope, WorkReports(store=_STORE, nodes=list(drawn.nodes), reports=reports), heard)


def _reconcile(drawn: Sequence[Drawn]) -> None:
    from admission.cycle.reconciliation import reconcile

    ended = reconcile(drawn[-1].at + 2.0 * _HEARD_S, is_whole=False).ended
    if ended != len(drawn):
        raise RuntimeError(f"of {len(drawn)} attempts {ended} have ended")


def _report(drawn: Drawn, node: str, at: float) -> WorkReport:
    trace, is_failing = drawn.trace, node == drawn.failing
    said = trace.output if is_failing else trace.peers
    if is_failing and trace.is_lost:
        how: dict[str, Any] = {"outcome": WorkOutcome.LOST, "text": "not heard for 60 s"}
    else:
        how = {"outcome": WorkOutcome.EXITED, "exit_code": trace.exit_code if is_failing else 1,
               "log_tail": said[-4096:]}  # fmt: skip
    return msgspec.convert(
        {"attempt": f"{drawn.key}/train/1", "node": node, "state": WorkState.ENDED,
         "ended_at": at, **how}, WorkReport,
    )  # fmt: skip


# --- What came of it ------------------------------------------------------------------------------


def figures(name: str, reasons: Sequence[Reason], found: Sequence[Attributed]) -> dict[str, Any]:
    """Return shares beside what was published, and how many agree with it."""
    right = Counter(each.reason.name for each in found if each.cause is each.reason.expected)
    told: dict[str, Any] = {
        f"{name}_failures": len(found),
        f"{name}_not_told": sum(each.kind is None for each in found),
        f"{name}_right": sum(right.values()),
    }
    published = Counter(each.reason.expected for each in found)
    got = Counter(each.cause for each in found)
    for cause in Cause:
        low, high = stats.binom.interval(0.95, len(found), published[cause] / len(found))
        told |= {
            f"{name}_{cause}_published": published[cause] / len(found),
            f"{name}_{cause}_share": got[cause] / len(found),
            f"{name}_{cause}_agrees": bool(low <= got[cause] <= high),
        }
    counts_agree = [_agrees(each.count, right[each.name]) for each in reasons]
    told |= {
        f"{name}_reasons": len(reasons),
        f"{name}_reasons_agree": sum(counts_agree),
        **_by_category(name, reasons, found),
    }
    return told


def _agrees(published: int, found: int) -> bool:
    """Say whether a count lies in the exact 95 % interval of the Poisson count ``published``."""
    low = stats.chi2.ppf(0.025, 2 * published) / 2.0 if published else 0.0
    return bool(low <= found <= stats.chi2.ppf(0.975, 2 * published + 2) / 2.0)


def _by_category(
    name: str, reasons: Sequence[Reason], found: Sequence[Attributed]
) -> Mapping[str, float]:
    """Return the share of what is of no software, in failures and in published GPU time."""
    hard = Counter(each.reason.name for each in found if each.cause is not Cause.SOFTWARE)
    gpu_time = sum(each.gpu_time * hard[each.name] / each.count for each in reasons)
    total = sum(each.gpu_time for each in reasons)
    return {
        f"{name}_infrastructure_share": sum(hard.values()) / len(found),
        **({f"{name}_infrastructure_gpu_time": gpu_time / total} if total else {}),
    }


def confusion(reasons: Sequence[Reason], found: Sequence[Attributed]) -> Iterator[str]:
    """Yield the lines of a table: of each reason how many were attributed to which cause."""
    causes: list[Cause | None] = [*Cause, None]
    counts = Counter((each.reason.name, each.cause) for each in found)
    kinds: dict[str, Counter[str]] = {each.name: Counter() for each in reasons}
    for each in found:
        kinds[each.reason.name][each.kind or "not told"] += 1
    width = 2 + max(len(each.name) for each in reasons)
    yield f"{'reason':<{width}}{'expected':<11}{'count':>6}" + "".join(
        f"{each or 'not told':>10}" for each in causes
    )
    for reason in reasons:
        row = "".join(f"{counts[reason.name, each]:>10}" for each in causes)
        seen = json.dumps(dict(kinds[reason.name].most_common()))
        yield f"{reason.name:<{width}}{reason.expected:<11}{reason.count:>6}{row}  {seen}"
