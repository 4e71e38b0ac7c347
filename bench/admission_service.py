"""15,000 jobs of 30 projects through the whole service: from ``POST /api/v1/jobs`` to dispatched.

The shape is that of Kueue's own performance test: of each project 350 small, 100 medium and 50
large jobs. What runs here is all that an installation has: web, worker, beat, Postgres and Valkey,
as processes. What is not there is the far side: no machine takes the work, so the figure ends where
an executor begins. The clients that submit run on the same cores.
"""

from __future__ import annotations

# What needs models is imported in functions: Django is set up when there is a server.
import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection, HTTPException
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from bench.stack import Stack

PROJECTS = 30
#: GPUs of a job, and how many such jobs each project has
SHAPES = ((1, 350), (5, 100), (20, 50))
JOBS = PROJECTS * sum(count for _, count in SHAPES)
#: So many GPUs hold all of them at once, with some to spare.
GPUS = 64_000
PEAK_W = 250.0
CLIENTS = 8
#: Given up after so long.
_LIMIT_S = 600.0
_READS_EVERY_S = 8.0
#: A submission is sent so often, at most.
_TRIES = 5

#: So that nothing is withdrawn while nobody is there to take it.
ENVIRONMENT = {"WORK_GATHER_S": "36000", "LOG_LEVEL": "WARNING"}


def prepare_fleet(gpus: int = GPUS) -> None:
    """Load a fleet all of whose machines run jobs."""
    from admission.executors.models import Runner
    from fleet import inventory, snapshot
    from tests.builders.inventory import make_inventory

    document = inventory.parse(make_inventory(gpus=gpus))
    inventory.apply(inventory.plan(document, inventory.read_state(), prune_sites=True), "bench")
    nodes, heard = snapshot.fresh().nodes, datetime.now(UTC) + timedelta(hours=1)
    rows = (
        Runner(node_id=pk, node=name, agent="bench", store=f"store-{pk}", seen_at=heard)
        for pk, name in zip(nodes.ids.tolist(), nodes.names.tolist(), strict=True)
    )
    Runner.objects.bulk_create(rows, batch_size=2_000)


@contextmanager
def readings() -> Iterator[None]:
    """Report all GPUs as idle, over and over: a GPU without readings does not count as free."""
    from fleet import snapshot
    from telemetry import samples
    from telemetry.frame import FrameWriter
    from telemetry.samples import NULL_INT, Rows

    ids = snapshot.current().gpus.ids
    writer, stop = FrameWriter(0), threading.Event()
    columns: dict[str, Any] = {
        c.name: np.full(len(ids), np.nan if c.dtype.kind == "f" else NULL_INT, c.dtype)
        for c in samples.GPU.columns
    }
    columns |= {"gpu_id": ids, "job_id": np.zeros(len(ids), dtype=np.int64)}
    idle = {"power_w": 70.0, "temp_c": 32.0, "util": 0.0, "sm_mhz": 345.0, "throttle": 0}
    columns |= {name: np.full(len(ids), value) for name, value in idle.items()}

    def write() -> None:
        while True:
            now = time.time()
            writer.update("gpu", Rows(samples.GPU, {**columns, "ts": np.full(len(ids), now)}), now)
            writer.flush()
            if stop.wait(_READS_EVERY_S):
                return

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def prepare_projects() -> list[str]:
    """Make the projects; return a token of a member of each."""
    from accounts.models import ApiToken, User
    from admission.jobs.models import Project, UserLimits

    tokens = []
    for number in range(PROJECTS):
        user = User.objects.create(username=f"bench-ml-{number}", role="ml_user")
        room = {"max_pending_jobs": 10_000, "submissions_per_s": 1_000.0}
        project = Project.objects.create(name=f"bench-{number}", **room)
        UserLimits.objects.create(user=user, **room)
        project.members.add(user)
        tokens.append(ApiToken.issue(user, "bench")[1])
    return tokens


def specs() -> Iterator[tuple[int, bytes]]:
    """Yield each job as its project and its specification, projects and sizes mixed."""
    sizes = list(chain.from_iterable([gpus] * count for gpus, count in SHAPES))
    mixed = [sizes[place * 7 % len(sizes)] for place in range(len(sizes))]
    for round_, gpus in enumerate(mixed):
        for project in range(PROJECTS):
            phase = {
                "name": "train", "gang": {"gpus": gpus}, "walltime_s": 7200,
                "power": {"expected_peak_w": PEAK_W}, "command": ["true"],
            }  # fmt: skip
            document = {
                "version": 1, "name": f"bench-{project}-{round_}", "project": f"bench-{project}",
                "class": "low-power-experimentation", "phases": [phase],
            }  # fmt: skip
            yield project, json.dumps(document).encode()


class Clients:
    """Threads that submit all jobs, each by connections of its own."""

    def __init__(self, url: str, tokens: list[str]) -> None:
        self._at, self._tokens = urlsplit(f"{url}/api/v1/jobs"), tokens
        self._left, self._lock = specs(), threading.Lock()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(CLIENTS)]
        self.errors: list[str] = []
        #: connections that broke
        self.broken = 0
        self.done_at = 0.0

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def is_done(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        # Plain connections: what clients take of the cores the service does not have.
        connection = HTTPConnection(self._at.hostname or "", self._at.port)
        while not self.errors:
            with self._lock:
                found = next(self._left, None)
            if found is None:
                break
            project, body = found
            headers = {
                "Authorization": f"Bearer {self._tokens[project]}",
                "Content-Type": "application/json",
                # Sent again after a broken connection it is the same job.
                "Idempotency-Key": hashlib.sha256(body).hexdigest(),
            }
            try:
                self._submit(connection, body, headers)
            except (OSError, HTTPException, RuntimeError) as exc:
                self.errors.append(repr(exc))
        connection.close()
        self.done_at = time.perf_counter()

    def _submit(self, connection: HTTPConnection, body: bytes, headers: dict[str, str]) -> None:
        for tries_left in reversed(range(_TRIES)):
            try:
                connection.request("POST", self._at.path, body=body, headers=headers)
                answer = connection.getresponse()
                told = answer.read()
            except (OSError, HTTPException):
                # The next request opens it anew.
                connection.close()
                self.broken += 1
                if not tries_left:
                    raise
                continue
            if answer.status not in (200, 201):
                raise RuntimeError(f"{answer.status} {told[:500]!r}")
            return


def measure(stack: Stack) -> dict[str, float | int]:
    """Submit all jobs and wait until each is with its executor. Django is set up on ``stack``."""
    from admission.executors.models import Gang

    tokens = prepare_projects()
    prepare_fleet()
    with readings():
        time.sleep(3.0)
        before = stack.cpu_seconds()
        own_s = time.process_time()
        clients, started = Clients(stack.url, tokens), time.perf_counter()
        clients.start()
        while (dispatched := Gang.objects.filter(offered_at__isnull=False).count()) < JOBS:
            if clients.errors:
                raise RuntimeError(clients.errors[0])
            if time.perf_counter() - started > _LIMIT_S:
                raise TimeoutError(
                    f"{dispatched} of {JOBS} jobs were dispatched in {_LIMIT_S:.0f} s"
                )
            time.sleep(0.25)
        took_s = time.perf_counter() - started
        after, own_s = stack.cpu_seconds(), time.process_time() - own_s
    _check()
    return {
        "admissions_per_s": JOBS / took_s,
        "admissions_jobs": JOBS,
        "admissions_took_s": took_s,
        "submissions_per_s": JOBS / (clients.done_at - started),
        "admissions_cycles": _cycles(),
        "admissions_broken_connections": clients.broken,
        **{f"admissions_{name}_cpu_s": after[name] - before[name] for name in after},
        "admissions_clients_cpu_s": own_s,
    }


def _cycles() -> int:
    from admission.learned.models import Cycle

    return Cycle.objects.get().number


def _check() -> None:
    """Check that each job was dispatched once, and no GPU held twice."""
    from admission.jobs.models import Attempt

    held: set[tuple[str, int]] = set()
    gpus, numbers = 0, []
    for placement, number in Attempt.objects.values_list("placement", "number"):
        mine = [(node, gpu) for node, indexes in placement["gpus"].items() for gpu in indexes]
        held.update(mine)
        gpus += len(mine)
        numbers.append(number)
    if len(held) != gpus or numbers != [1] * JOBS:
        raise RuntimeError(
            f"{JOBS} jobs have {len(numbers)} attempts on {len(held)} of {gpus} GPUs"
        )


def run() -> None:
    """Measure the service alone."""
    from bench import django_in, report
    from bench.stack import running

    os.environ.update(ENVIRONMENT)
    with running() as stack:
        django_in.set_up(stack)
        figures = measure(stack)
    report.show("admission_service", figures)


if __name__ == "__main__":
    run()
