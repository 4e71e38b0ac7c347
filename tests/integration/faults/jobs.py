"""Jobs that say on disk when they start and end, and what is said compared with what is known."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from bench.stack import Stack
from headroom.client import Client
from headroom.errors import HeadroomError, Unavailable

PROJECT = "faults"
#: A line at the start, and one at the end: of one write each, so that lines stay whole.
_SCRIPT = (
    'echo "$HEADROOM_ATTEMPT_KEY $HEADROOM_RANK start" >> "$LEDGER"; sleep {seconds};'
    ' echo "$HEADROOM_ATTEMPT_KEY $HEADROOM_RANK end" >> "$LEDGER"'
)
_SUBMIT_S = 120.0
_ATTEMPTS = """
SELECT job.name, phase.state, attempt.key, attempt.state, attempt.outcome, attempt.exit_code,
    jsonb_array_length(attempt.placement -> 'nodes')
FROM admission_jobs_job AS job
JOIN admission_jobs_phase AS phase ON phase.job_id = job.id
LEFT JOIN admission_jobs_attempt AS attempt ON attempt.phase_id = phase.id
"""


def spec_of(number: int, ledger: Path) -> dict[str, Any]:
    """Return a job: most take a GPU or two, every fifth a node, every tenth a gang of two nodes."""
    gang: dict[str, Any] = {"gpus": 1 + number % 2}
    if number % 10 == 0:
        gang = {"gpus": 16, "gpus_per_node": 8}
    elif number % 5 == 0:
        gang = {"gpus": 8, "gpus_per_node": 8}
    phase = {
        "name": "run", "gang": gang, "walltime_s": 600, "power": {"expected_peak_w": 200},
        "locality": {"required": "rack"}, "env": {"LEDGER": str(ledger)},
        "command": ["/bin/sh", "-c", _SCRIPT.format(seconds=0.2 + number % 4 * 0.2)],
    }  # fmt: skip
    name = f"fault-{number:04}"
    return {
        "name": name, "project": PROJECT, "class": "low-power-experimentation", "phases": [phase],
    }  # fmt: skip


def submit(client: Client, specs: Sequence[dict[str, Any]]) -> None:
    """Submit every one, through whatever is killed meanwhile; again where no answer came."""
    _until_done(lambda: client.post("/api/v1/projects", {"name": PROJECT}), known=409)
    for spec in specs:
        _until_done(lambda spec=spec: client.post("/api/v1/jobs", spec), known=409)


def _until_done(post: Any, *, known: int) -> None:
    """Post until it is taken; it was taken before where the answer is ``known``."""
    end = time.monotonic() + _SUBMIT_S
    while True:
        try:
            post()
            return
        except Unavailable:
            assert time.monotonic() < end, "the server does not come back"
            time.sleep(0.2)
        except HeadroomError as exc:
            if getattr(exc, "status", None) == known:
                return
            raise


@dataclass
class Attempts:
    """What the server knows of a run."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)

    @classmethod
    def read(cls, stack: Stack) -> Attempts:
        with psycopg.connect(stack.environment["DATABASE_URL"]) as connection:
            return cls(connection.execute(_ATTEMPTS).fetchall())

    @property
    def states(self) -> Counter[str]:
        return Counter({row[0]: row[1] for row in self.rows}.values())

    @property
    def outcomes(self) -> Counter[str]:
        return Counter(row[4] for row in self.rows if row[2])


def wait_until_over(stack: Stack, count: int, limit_s: float) -> Attempts:
    """Wait until ``count`` jobs are over, and all of their attempts."""
    end = time.monotonic() + limit_s
    while True:
        found = Attempts()
        with suppress(psycopg.Error):
            found = Attempts.read(stack)
        over = sum(found.states[state] for state in ("succeeded", "failed", "cancelled"))
        if over >= count:
            return found
        assert time.monotonic() < end, f"of {count} jobs only {over} are over: {found.states}"
        time.sleep(0.5)


def wrong_of(attempts: Attempts, ledger: Path, count: int) -> Iterator[str]:
    """Yield what is wrong, a sentence each: a job lost, a part run twice, a gang that was split."""
    lines = Counter(line for line in ledger.read_text().splitlines() if line)
    yield from (f"{times} times: {line}" for line, times in lines.items() if times > 1)
    jobs = {row[0] for row in attempts.rows}
    if len(jobs) != count:
        yield f"{len(jobs)} jobs are known of {count}"
    known = {row[2] for row in attempts.rows if row[2]}
    strange = sorted({line.split()[0] for line in lines} - known)
    yield from (f"{key} ran and is not known" for key in strange)
    yield from (f"{row[0]} is {row[1]}, not succeeded" for row in attempts.rows
                if row[1] != "succeeded")  # fmt: skip
    for row in attempts.rows:
        if row[2] is not None:
            yield from _wrong_of_one(lines, *row[2:])
    won = Counter(row[0] for row in attempts.rows if row[4] == "succeeded")
    yield from (f"{name} succeeded {times} times" for name, times in won.items() if times > 1)


def _wrong_of_one(
    lines: Counter[str], key: str, state: str, outcome: str, exit_code: int | None, nodes: int
) -> Iterator[str]:
    started = sum(lines[f"{key} {rank} start"] for rank in range(nodes))
    ended = sum(lines[f"{key} {rank} end"] for rank in range(nodes))
    if state != "ended":
        yield f"{key} is still {state}"
    if started not in (0, nodes):
        yield f"{key} was split: {started} of {nodes} nodes began it"
    if outcome == "succeeded" and (started, ended, exit_code) != (nodes, nodes, 0):
        yield f"{key} succeeded with {started} starts, {ended} ends, exit code {exit_code}"
    if outcome == "withdrawn" and started:
        yield f"{key} was withdrawn and had begun"
