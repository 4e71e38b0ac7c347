"""What keepers tell of checkpoints comes into the database: once by job and site, and fenced."""

from __future__ import annotations

from datetime import timedelta
from itertools import permutations
from typing import Any

import msgspec
import pytest
from django.utils import timezone

from fleet import snapshot
from fleet.models import Site
from headroom.contracts import CheckpointReport, StoreLag
from telemetry.checkpoints import store as checkpoints
from telemetry.checkpoints.models import CheckpointFact
from tests.builders.batches import make_batch
from tests.builders.checkpoints import DIGEST, make_fact, make_report
from tests.integration.telemetry.conftest import Source, drain_everything
from tests.integration.telemetry.test_names import place
from tests.integration.telemetry.test_partial_batches import partly_refused

pytestmark = pytest.mark.django_db
BEHIND = StoreLag(checkpoints=2, steps=40, seconds=120.0, bytes=10**8)


@pytest.fixture(autouse=True)
def bergen(source: Source) -> Site:
    """The job runs on the agent's node at oslo, and there is another site."""
    made = Site.objects.create(name="bergen")
    snapshot.invalidate()
    place("llama", "n1")
    return made


def push(source: Source, *reports: CheckpointReport, seq: int = 1) -> Any:
    batch = make_batch("agent-1", "n1", seq)
    batch.checkpoints = list(reports)
    return source.push(batch)


def store(source: Source, *reports: CheckpointReport, seq: int = 1) -> None:
    answer = push(source, *reports, seq=seq)
    assert answer.status_code == 202, answer.content
    drain_everything()


def known() -> dict[str, tuple[int | None, int | None]]:
    """Return start and step of the latest checkpoint at each site."""
    rows = CheckpointFact.objects.filter(job="llama").values_list("site__name", "epoch", "step")
    return {site: (epoch, step) for site, epoch, step in rows}


def test_a_report_says_what_is_whole_where_and_how_far_the_other_site_is_behind(
    source: Source,
) -> None:
    here = make_report("llama/train")
    there = make_report("llama/train", site="bergen", step=60, lag=BEHIND, sent_bytes_per_s=2e6)
    store(source, here, there)
    at_oslo, at_bergen = CheckpointFact.objects.order_by("-site__name")
    assert (at_oslo.job, at_oslo.site.name, at_oslo.lag_s) == ("llama", "oslo", None)
    assert (at_oslo.step, at_oslo.digest, at_oslo.bytes) == (100, DIGEST, 10**9)
    assert here.store.checkpoint is not None
    assert at_oslo.saved_at is not None
    assert at_oslo.saved_at.timestamp() == pytest.approx(here.store.checkpoint.saved_at)
    assert (at_bergen.step, at_bergen.lag_steps, at_bergen.lag_s) == (60, 40, 120.0)
    assert (at_bergen.lag_checkpoints, at_bergen.lag_bytes) == (2, 10**8)
    assert at_bergen.sent_bytes_per_s == 2e6


def test_a_store_without_a_checkpoint_is_known_to_have_none(source: Source) -> None:
    lag = StoreLag(checkpoints=1, bytes=10**9)
    store(source, make_report(site="bergen", checkpoint=None, lag=lag))
    fact = CheckpointFact.objects.get()
    assert (fact.step, fact.digest, fact.lag_s, fact.lag_checkpoints) == (None, "", None, 1)


def test_a_report_that_was_held_up_does_not_undo_a_later_one(source: Source) -> None:
    store(source, make_report(step=200), seq=2)
    store(source, make_report(step=100, told_s_ago=30.0), seq=1)
    assert known() == {"oslo": (0, 200)}


def test_a_speed_stays_until_another_was_measured(source: Source) -> None:
    store(source, make_report(sent_bytes_per_s=2e6, told_s_ago=20.0), seq=1)
    store(source, make_report(), seq=2)
    assert CheckpointFact.objects.get().sent_bytes_per_s == 2e6


def test_who_speaks_for_an_earlier_start_changes_nothing_at_any_site(source: Source) -> None:
    """The older half of a split brain goes on saving at home, and says so later than anybody."""
    store(source, make_report(step=100, told_s_ago=60.0), seq=1)
    store(source, make_report(site="bergen", step=110, epoch=1, told_s_ago=30.0), seq=2)
    store(source, make_report(step=500), make_report(site="bergen", step=500), seq=3)
    assert known() == {"oslo": (0, 100), "bergen": (1, 110)}


@pytest.mark.parametrize("order", list(permutations((0, 1, 2))))
@pytest.mark.parametrize("in_one_round", [True, False])
def test_in_whatever_order_reports_come_the_latest_start_counts(
    source: Source, order: tuple[int, ...], in_one_round: bool
) -> None:
    reports = [
        make_report(step=900),
        make_report(step=120, epoch=1, told_s_ago=40.0),
        make_report(step=130, epoch=1, told_s_ago=20.0),
    ]
    for seq, place_of in enumerate(order, start=1):
        assert push(source, reports[place_of], seq=seq).status_code == 202
        if not in_one_round:
            drain_everything()
    drain_everything()
    assert known() == {"oslo": (1, 130)}


def test_a_start_that_has_saved_nothing_yet_tells_of_what_it_resumed_from(source: Source) -> None:
    store(source, make_report(step=100, lease_epoch=3))
    store(source, make_report(site="bergen", step=90, lease_epoch=3), seq=2)
    assert known() == {"oslo": (0, 100), "bergen": (0, 90)}


def test_another_run_of_the_job_takes_the_place_of_the_one_before(source: Source) -> None:
    store(source, make_report(epoch=7, told_s_ago=60.0), seq=1)
    store(source, make_report(run="finetune", step=5), seq=2)
    assert CheckpointFact.objects.get().run == "finetune"


def test_a_report_on_a_job_that_runs_elsewhere_is_refused_alone(source: Source) -> None:
    told = partly_refused(push(source, make_report("gpt"), make_report()))
    assert (told.error.code, told.error.field) == ("foreign_job", "checkpoints[0].job")
    drain_everything()
    assert known() == {"oslo": (0, 100)}


def test_a_node_of_another_agent_costs_the_batch(source: Source, stranger: Source) -> None:
    answer = push(source, make_report(node="n2"))
    assert (answer.status_code, answer.json()["error"]["field"]) == (403, "checkpoints[0].node")
    drain_everything()
    assert known() == {}


def changed(**fields: Any) -> CheckpointReport:
    """Return a report whose checkpoint has ``fields``."""
    found = make_report()
    assert found.store.checkpoint is not None
    whole = msgspec.structs.replace(found.store.checkpoint, **fields)
    return msgspec.structs.replace(
        found, store=msgspec.structs.replace(found.store, checkpoint=whole)
    )


@pytest.mark.parametrize(
    ("report", "field"),
    [
        (make_report(site="atlantis"), "store.site"),
        (make_report(run="../etc"), "store.run"),
        (make_report(lease_epoch=-1), "store.lease_epoch"),
        (make_report(sent_bytes_per_s=-1.0), "store.sent_bytes_per_s"),
        (make_report(lag=StoreLag(checkpoints=1, bytes=-1)), "store.lag.bytes"),
        (make_report(told_s_ago=-1e9), "at"),
        (changed(digest="whole"), "store.checkpoint.digest"),
        (changed(step=-1), "store.checkpoint.step"),
        (changed(saved_at=9e10), "store.checkpoint.saved_at"),
        (changed(verified_at=9e10), "store.checkpoint.verified_at"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_bad_report_is_refused_by_its_field_and_costs_nothing_else(
    source: Source, report: CheckpointReport, field: str
) -> None:
    told = partly_refused(push(source, report, make_report(step=7)))
    assert (told.refused_rows, told.error.field) == (1, f"checkpoints[0].{field}")
    drain_everything()
    assert known() == {"oslo": (0, 7)}


def test_a_batch_of_reports_alone_is_taken(source: Source) -> None:
    batch = make_batch("agent-1", "n1")
    batch.nodes, batch.checkpoints = [], [make_report()]
    assert source.push(batch).status_code == 202
    drain_everything()
    assert known() == {"oslo": (0, 100)}


def test_a_site_that_has_gone_takes_its_reports_with_it(source: Source, bergen: Site) -> None:
    assert push(source, make_report(site="bergen"), make_report()).status_code == 202
    bergen.delete()
    drain_everything()
    assert known() == {"oslo": (0, 100)}


def test_what_nobody_tells_for_a_month_is_forgotten(bergen: Site) -> None:
    make_fact("old", bergen, received_at=timezone.now() - timedelta(days=31))
    make_fact("new", bergen)
    checkpoints.prune(timezone.now())
    assert CheckpointFact.objects.get().job == "new"
