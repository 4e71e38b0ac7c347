from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.utils import timezone

from headroom.contracts import LimitReport, LimitState
from telemetry import tasks
from telemetry.limits import models
from tests.builders.accounts import api_client
from tests.builders.batches import make_batch
from tests.integration.telemetry.conftest import Source, drain_everything

pytestmark = pytest.mark.django_db
URL = "/api/v1/limit-reports"
AT = 1_790_000_000.0


def make_report(**changes: Any) -> LimitReport:
    report = LimitReport(
        limit="l1", node="n1", gpu=0, kind="power_cap_w", state=LimitState.APPLIED, at=AT,
        asked=400, original=700, applied=400, watts_before=650.5,
    )  # fmt: skip
    return msgspec.structs.replace(report, **changes)


def push(source: Source, *reports: LimitReport, seq: int = 1, boot_id: str = "boot-1") -> Any:
    batch = make_batch("agent-1", "n1", seq=seq)
    batch.boot_id, batch.limits = boot_id, list(reports)
    return source.push(batch)


def store(source: Source, *reports: LimitReport, seq: int = 1, boot_id: str = "boot-1") -> None:
    assert push(source, *reports, seq=seq, boot_id=boot_id).status_code == 202
    drain_everything()


def ask(query: str = "") -> list[dict[str, Any]]:
    answer = api_client().get(f"{URL}?{query}")
    assert answer.status_code == 200, answer.content
    rows: list[dict[str, Any]] = answer.json()["results"]
    return rows


def test_a_report_can_be_read_as_it_was_told(source: Source) -> None:
    before = time.time()
    store(source, make_report())
    (row,) = ask()
    received_at = datetime.fromisoformat(row.pop("received_at"))
    assert before <= received_at.timestamp() <= time.time()
    assert datetime.fromisoformat(row.pop("at")) == datetime.fromtimestamp(AT, UTC)
    del row["id"]
    assert row == {
        "limit": "l1",
        "agent": "agent-1",
        "node": "n1",
        "gpu_index": 0,
        "kind": "power_cap_w",
        "state": "applied",
        "asked": 400,
        "original": 700,
        "applied": 400,
        "watts_before": 650.5,
        "watts_after": None,
        "error": "",
    }


def test_the_last_report_of_a_limit_and_a_gpu_counts(source: Source) -> None:
    store(source, make_report(), make_report(gpu=1), make_report(limit="l2"), seq=1)
    store(source, make_report(watts_after=398.0), seq=2)
    store(source, make_report(state=LimitState.EXPIRED, at=AT + 60, applied=700), seq=3)
    told = {(row["limit"], row["gpu_index"]): row["state"] for row in ask()}
    assert told == {("l1", 0): "expired", ("l1", 1): "applied", ("l2", 0): "applied"}


def test_of_several_reports_in_one_batch_the_last_counts(source: Source) -> None:
    store(source, make_report(), make_report(state=LimitState.RESTORED), make_report(gpu=None))
    assert [(row["gpu_index"], row["state"]) for row in ask("limit=l1&gpu_index=0")] == [
        (0, "restored")
    ]
    assert len(ask()) == 2


def test_a_report_of_no_gpu_is_one_report(source: Source) -> None:
    for seq in (1, 2):
        store(source, make_report(gpu=None, state=LimitState.REFUSED, error="no GPU"), seq=seq)
    assert [row["error"] for row in ask()] == ["no GPU"]


def test_a_batch_that_was_held_up_does_not_undo_what_a_later_one_said(source: Source) -> None:
    store(source, make_report(state=LimitState.EXPIRED), seq=5)
    store(source, make_report(), seq=4)
    assert [row["state"] for row in ask()] == ["expired"]


def test_batches_of_one_round_count_in_their_order(source: Source) -> None:
    for seq, state in ((3, LimitState.EXPIRED), (2, LimitState.APPLIED)):
        assert push(source, make_report(state=state), seq=seq).status_code == 202
    drain_everything()
    assert [row["state"] for row in ask()] == ["expired"]


def test_a_new_life_of_the_spool_counts_from_one_again(source: Source) -> None:
    store(source, make_report(), seq=500)
    store(source, make_report(state=LimitState.RESTORED), seq=1, boot_id="boot-2")
    assert [row["state"] for row in ask()] == ["restored"]


def test_reports_about_another_agents_node_are_refused(source: Source, stranger: Source) -> None:
    answer = push(source, make_report(node="n2"))
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "foreign_node"
    assert answer.json()["error"]["field"] == "limits[0].node"
    drain_everything()
    assert ask() == []


def test_a_report_about_an_unknown_node_leaves_the_others(source: Source) -> None:
    answer = push(source, make_report(node="n9"), make_report())
    assert answer.status_code == 400
    body = answer.json()
    assert (body["error"]["code"], body["error"]["field"]) == ("unknown_node", "limits[0].node")
    drain_everything()
    assert [row["node"] for row in ask()] == ["n1"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("limit=l2", 1),
        ("node=n1", 3),
        ("node=n2", 0),
        ("agent=agent-1", 3),
        ("agent=nobody", 0),
        ("gpu_index=1", 1),
        ("state=refused", 1),
        ("state=applied&limit=l1", 2),
    ],
)
def test_filters(source: Source, query: str, found: int) -> None:
    store(
        source,
        make_report(),
        make_report(gpu=1),
        make_report(limit="l2", state=LimitState.REFUSED),
    )
    assert len(ask(query)) == found


def test_a_state_that_does_not_exist_is_no_filter(source: Source) -> None:
    assert api_client().get(f"{URL}?state=gone").status_code == 400


def test_what_is_long_over_is_forgotten_and_what_is_in_force_is_not(source: Source) -> None:
    store(
        source,
        make_report(),
        make_report(limit="l2", state=LimitState.EXPIRED),
        make_report(limit="l3", state=LimitState.RESTORED),
    )
    old = models.LimitReport.objects.exclude(limit="l3")
    old.update(received_at=timezone.now() - timedelta(days=31))
    tasks.keep_partitions()
    assert {row["limit"] for row in ask()} == {"l1", "l3"}
