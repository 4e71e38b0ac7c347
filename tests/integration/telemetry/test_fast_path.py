"""Good batches are taken before Django, together; whatever else they may be is handed on."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec
import pytest
import zstandard
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from headroom.contracts import JobColumns, StorageColumns, encode_batch
from telemetry import intake, naming, placed, stream
from telemetry.ingest import batches
from telemetry.ingest.batches import Post, Untaken
from telemetry.ingest.requests import agent_of
from telemetry.metrics import BATCHES
from telemetry.models import IngestPosition, Mount, ReportedJob
from tests.builders.batches import make_batch
from tests.builders.jobs import make_attempt, make_job
from tests.integration.telemetry.conftest import Source, drain_everything


def make_post(source: Source, body: bytes, *, encoding: str = "", token: str = "") -> Post:
    return Post(f"Bearer {token or source.token}", "application/msgpack", encoding, body)


def good(source: Source, seq: int) -> Post:
    return make_post(source, encode_batch(make_batch("agent-1", "n1", seq)))


def untaken(answers: Sequence[bytes | Untaken]) -> list[int]:
    """The places of those that were not taken."""
    return [place for place, answer in enumerate(answers) if isinstance(answer, Untaken)]


@pytest.fixture(autouse=True)
def introduced(source: Source) -> None:
    """Have this process know what the agent's batches name."""
    scope = agent_of(f"Bearer {source.token}")
    intake.take(make_batch("agent-1", "n1", 1), scope, time.time())
    assert drain_everything() == 1


def test_a_batch_that_needs_the_database_holds_up_nobody_else(source: Source) -> None:
    batch = make_batch("agent-1", "n1", 2, boot_id="another")
    assert batches.take_all([make_post(source, encode_batch(batch))]) == [Untaken.NEW_NAMES]
    naming.invalidate()
    assert batches.take_all([good(source, 3)]) == [Untaken.NEW_NAMES]
    assert stream.backlog(0) == 0


def new_to_us(source: Source, number: int) -> Post:
    """The first batch of a life, with a mount and another scheduler's job that nobody has named."""
    batch = make_batch("agent-1", "n1", 1, boot_id=f"life-{number}", job=f"slurm-{number}")
    batch.nodes[0].storage = StorageColumns(ts=[time.time()], mount=[f"/data/{number}"])
    return make_post(source, encode_batch(batch))


def test_new_names_of_many_batches_cost_few_queries_together(source: Source) -> None:
    with CaptureQueriesContext(connection) as asked:
        answers = batches.take_new([new_to_us(source, number) for number in range(40)])
    assert not untaken(answers)
    assert len(asked) < 25
    assert IngestPosition.objects.filter(boot_id__startswith="life-").count() == 40
    assert Mount.objects.count() == 40
    assert ReportedJob.objects.count() == 40
    assert drain_everything() == 40
    # From here on this process knows them.
    assert not untaken(batches.take_all([new_to_us(source, number) for number in range(40)]))


def test_names_for_which_there_is_no_room_are_handed_on_and_the_rest_is_taken(
    source: Source, stranger: Source, settings: Settings
) -> None:
    settings.TELEMETRY_MAX_JOB_NAMES_PER_AGENT = 3
    posts = [new_to_us(source, number) for number in range(5)]
    others = encode_batch(make_batch("agent-2", "n2", job="slurm-9"))
    answers = batches.take_new([*posts, make_post(stranger, others)])
    assert untaken(answers) == [3, 4]
    assert ReportedJob.objects.count() == 4


def test_a_job_of_ours_is_taken_where_it_runs_and_looked_at_elsewhere(
    source: Source, stranger: Source
) -> None:
    make_attempt(make_job("llama").phases.get(), {"n1": range(8)})
    placed.invalidate()
    first = encode_batch(make_batch("agent-2", "n2"))
    batches.take_new([make_post(stranger, first)])
    for name in ("llama", "llama/train/1"):
        block = JobColumns(ts=[time.time()], job=[name], loss=[2.5])
        labeled = make_batch("agent-1", "n1", 2, job=name, jobs=block)
        elsewhere = make_batch("agent-2", "n2", 2, job=name)
        with CaptureQueriesContext(connection) as asked:
            answers = batches.take_all(
                [make_post(source, encode_batch(labeled))] * 10
                + [make_post(stranger, encode_batch(elsewhere))]
            )
        assert untaken(answers) == [10]
        assert answers[10] is Untaken.NEW_NAMES
        assert len(asked) < 5
    assert untaken(batches.take_new([make_post(stranger, encode_batch(elsewhere))])) == [0]


def test_good_batches_ask_no_database_each(source: Source) -> None:
    with CaptureQueriesContext(connection) as asked:
        answers = batches.take_all([good(source, seq) for seq in range(2, 42)])
    assert not untaken(answers)
    # What is kept for a while may be looked up again.
    assert len(asked) < 5


def test_a_good_batch_is_taken(source: Source) -> None:
    body = zstandard.compress(encode_batch(make_batch("agent-1", "n1", 2)))
    (answer,) = batches.take_all([make_post(source, body, encoding="zstd")])
    assert isinstance(answer, bytes)
    ack = msgspec.json.decode(answer)
    assert ack["durable_seq"] == 1
    assert ack["received_at"] == pytest.approx(time.time(), abs=60)
    assert drain_everything() == 1


def test_good_batches_of_one_moment_are_taken_together_and_bad_ones_are_handed_on(
    source: Source,
) -> None:
    accepted = BATCHES.labels("accepted")
    before = accepted._value.get()
    answers = batches.take_all(
        [
            good(source, 2),
            make_post(source, b"no batch"),
            good(source, 3),
            make_post(source, encode_batch(make_batch("agent-1", "n9"))),
            make_post(source, encode_batch(make_batch("agent-1", "n1")), token="hra_unknown"),
            make_post(source, b"", encoding="br"),
            good(source, 4),
        ]
    )
    assert untaken(answers) == [1, 3, 4, 5]
    assert Untaken.NEW_NAMES not in answers
    assert accepted._value.get() == before + 3
    assert stream.backlog(0) == 3
    assert drain_everything() == 3


def test_what_finds_its_share_used_up_is_handed_on_and_the_rest_is_taken(
    source: Source, settings: Settings
) -> None:
    settings.TELEMETRY_MAX_ROWS_PER_S_PER_AGENT = 1
    settings.TELEMETRY_BURST_ROWS_PER_AGENT = 16
    answers = batches.take_all([good(source, seq) for seq in (2, 3, 4)])
    assert untaken(answers) == [2]
    assert stream.backlog(0) == 2


def test_a_redis_that_was_started_anew_costs_no_answer(source: Source) -> None:
    batches.take_all([good(source, 2)])
    valkey = stream.connection()
    valkey.script_flush()
    valkey.client_kill_filter(_type="normal", skipme=True)
    answers = batches.take_all([good(source, 3), good(source, 4)])
    assert not untaken(answers)
    assert stream.backlog(0) == 3
