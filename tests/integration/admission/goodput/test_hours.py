"""The account of the fleet by hour: whole, made anew as often as asked, and due when it should."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.conf import settings
from django.db import connection
from django.db.models import F

from admission.bookings.models import Booking
from admission.core.account import Cause
from admission.core.fleet_account import CAUSES, Unheld
from admission.directives.models import Directive
from admission.goodput import hours, summing, tasks
from admission.goodput.models import (
    AccountedHour,
    DayAccount,
    HourAccount,
    HourWait,
)
from admission.jobs.models import Attempt, Job, Phase
from fleet import locks, snapshot
from fleet.models import Gpu
from headroom.contracts import ThrottleCause
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.models import Restriction
from telemetry import housekeeping
from telemetry.models import ThrottleEvent
from tests.builders.accounted import (
    HOUR,
    NOW,
    again,
    at,
    hold,
    job_since,
    make_hour,
    read,
    report,
    seconds,
)
from tests.builders.jobs import note
from tests.builders.readings import make_node

pytestmark = pytest.mark.django_db

US = 1_000_000
WHOLE_US = 4 * 3600 * US


@pytest.fixture(scope="module")
def jobs(module_db: None) -> tuple[Job, Job]:
    return make_hour()


def test_every_second_of_every_gpu_is_in_one_cause(jobs: tuple[Job, Job]) -> None:
    assert sum(sum(row.us) for row in HourAccount.objects.all()) == WHOLE_US
    assert seconds(project="vision") == {Cause.PRODUCTIVE: 6480.0, Cause.DATA_WAIT: 720.0}
    assert seconds(project="speech") == {
        Cause.STARTING: 10.0, Cause.BUSY: 1790.0, Cause.IDLE: 1800.0,
    }  # fmt: skip
    assert seconds(project="") == {Unheld.FREE: 3000.0, Unheld.SILENT: 600.0}


@pytest.fixture
def third_node(jobs: tuple[Job, Job]) -> Iterator[None]:
    make_node("n3", gpus=1, rack="A03")
    snapshot.fresh()
    yield
    snapshot.invalidate()


@pytest.mark.usefixtures("third_node")
def test_of_work_that_no_loop_tells_of_what_draws_little_is_told_apart() -> None:
    hold(job_since(-600.0, "silent", gpus=1, state="running"), {"n3": [0]}, -300.0)
    read("n3", 0, -300.0, 2400.0, util=90.0)
    # It saves: halfway between standing still, at 0.3 of what is above its idle draw, and before.
    read("n3", 0, 2400.0, 3000.0, util=20.0, power_w=70.0 + 630.0 * (0.3 + 530.0 / 630.0) / 2)
    read("n3", 0, 3000.0, 3900.0, util=90.0)
    again()
    found = seconds(rack="A03")
    assert found == pytest.approx({Cause.BUSY: 3300.0, Cause.LOW_DRAW: 300.0}, abs=1.0)
    assert sum(found.values()) == 3600.0


def test_a_day_adds_up_hours_from_before_there_was_a_cause(jobs: tuple[Job, Job]) -> None:
    before = len(CAUSES) - 1
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE admission_goodput_houraccount SET us = us[1:{before}]")
    assert {len(row.us) for row in HourAccount.objects.all()} == {before}
    hours.add_up(at(0))
    assert {len(row.us) for row in DayAccount.objects.all()} == {before + 1}
    assert sum(sum(row.us) for row in DayAccount.objects.all()) == WHOLE_US
    asked = summing.Asked(int(HOUR), int(HOUR) + 3600, summing.By.CAUSE)
    assert summing.add_up(asked, NOW).us.sum() == WHOLE_US


def test_rows_say_where_and_whose_they_were(jobs: tuple[Job, Job]) -> None:
    row = HourAccount.objects.get(project="vision")
    attempt = Attempt.objects.get(phase__job__name="llama")
    assert (row.site, row.rack, row.job_class, row.phase, row.attempt_id) == (
        "oslo", "A01", "high-density-training", "train", attempt.pk,
    )  # fmt: skip


def test_an_hour_that_is_computed_again_is_as_it_was(jobs: tuple[Job, Job]) -> None:
    before = list(HourAccount.objects.order_by("pk").values_list("rack", "project", "us"))
    hours.compute(HOUR, NOW)
    assert list(HourAccount.objects.order_by("pk").values_list("rack", "project", "us")) == before
    assert AccountedHour.objects.get().gpus == 4


def test_a_day_is_the_sum_of_its_hours(jobs: tuple[Job, Job]) -> None:
    hours.compute(HOUR, NOW)
    assert sum(sum(row.us) for row in DayAccount.objects.all()) == WHOLE_US
    row = DayAccount.objects.get(project="vision")
    assert row.us == HourAccount.objects.get(project="vision").us
    assert (row.day, row.site) == (at(0).date(), "oslo")


def test_readings_that_came_late_are_in_it_once_it_is_computed_again(
    jobs: tuple[Job, Job],
) -> None:
    read("n2", 1, 3000.0, 3900.0)
    again()
    assert seconds(project="") == {Unheld.FREE: 3600.0}
    assert DayAccount.objects.get(project="").us[CAUSES.index(Unheld.FREE)] == 3600 * US


def test_a_drain_and_maintenance_are_no_free_time(jobs: tuple[Job, Job]) -> None:
    Restriction.objects.create(
        kind=RestrictionKind.DRAIN, scope_kind="node", scope_name="n2", reason="fan",
        owner="user:a", cause="fan", state="in_force", issued_at=at(600), effect_at=at(600),
        expires_at=at(9000), ended_at=at(1200),
    )  # fmt: skip
    Booking.objects.create(
        nodes=["n2"], gpus=2, starts_at=at(2400), ends_at=at(9000), ended_at=at(2700), reason="fan",
        made_by="a", made_at=at(0),
    )  # fmt: skip
    again()
    assert seconds(project="")[Unheld.DRAINED] == 900.0
    # What a job holds there is its own.
    assert seconds(project="speech")[Cause.IDLE] == 1800.0


def throttled(index: int) -> None:
    ThrottleEvent.objects.create(
        gpu=Gpu.objects.get(node__name="n1", index=index), cause=ThrottleCause.SW_POWER_CAP,
        opened_at=at(0), updated_at=at(1800), closed_at=at(1800), usual_mhz=1000.0,
        lost_mhz_s=180_000.0, expected=True,
    )  # fmt: skip


def test_throttling_under_a_cap_of_ours_is_told_apart(jobs: tuple[Job, Job]) -> None:
    for index in (0, 1):
        throttled(index)
    Restriction.objects.create(
        kind=RestrictionKind.POWER_CAP_W, scope_kind="gpu", scope_name="n1/0", value=500.0,
        reason="hot", owner="user:a", cause="hot", state="in_force", issued_at=at(0),
        effect_at=at(0), expires_at=at(9000),
    )  # fmt: skip
    again()
    found = seconds(project="vision")
    # A tenth of what waiting for data left of half an hour.
    assert found[Cause.CAPPED] == pytest.approx(162.0)
    assert found["throttled_sw_power_cap_expected"] == pytest.approx(162.0)


def test_a_cap_that_a_job_was_placed_with_or_told_of_is_ours(jobs: tuple[Job, Job]) -> None:
    throttled(0)
    row = Attempt.objects.get(phase__job__name="llama")
    Directive.objects.create(
        attempt=row, kind="set_power_cap", owner="response", cause="A", reason="hot", value=500.0,
        state="verdict", issued_at=at(0), expires_at=at(9000), applied_at=at(900),
    )  # fmt: skip
    again()
    assert seconds(project="vision")[Cause.CAPPED] == pytest.approx(81.0)
    row.placement["power_cap_w"] = 500.0
    row.save()
    again()
    assert seconds(project="vision")[Cause.CAPPED] == pytest.approx(162.0)


def test_demand_that_waits_stands_beside_what_is_free_by_its_reason(jobs: tuple[Job, Job]) -> None:
    gpt = job_since(1000.0, "gpt", gpus=4, reason="Restricted")
    Phase.objects.filter(job=gpt).update(queued_at=at(1000), reason_since=at(2000))
    note(gpt, "reason", "no GPU", phase="train", at=at(1000), token="GpuShortage")
    again()
    found = {row.reason: row for row in HourWait.objects.filter(project="vision")}
    assert {reason: row.demand_us for reason, row in found.items()} == {
        "GpuShortage": 4 * 1000 * US, "Restricted": 4 * 1600 * US,
        # llama waited for none in the hour: it had begun.
    }  # fmt: skip
    # One GPU was free until 3000 s, and four were asked for.
    assert found["GpuShortage"].wanted_us == pytest.approx(1000 * US, abs=10)
    assert found["Restricted"].wanted_us == pytest.approx(1000 * US, abs=10)
    assert sum(row.wanted_us for row in HourWait.objects.all()) <= 3000 * US


def test_what_began_in_the_hour_waited_until_then(jobs: tuple[Job, Job]) -> None:
    Phase.objects.filter(job__name="bert").update(queued_at=at(-600))
    Attempt.objects.filter(phase__job__name="bert").update(dispatched_at=at(500))
    again()
    assert HourWait.objects.get(project="speech").demand_us == 500 * US


def test_an_hour_is_due_once_it_is_rolled_up_and_again_when_late_readings_are_in(
    jobs: tuple[Job, Job],
) -> None:
    AccountedHour.objects.all().delete()
    housekeeping.roll_up(HOUR + 3600.0 + 200.0)
    assert HOUR not in list(hours.due(HOUR + 3600.0 + 200.0))
    housekeeping.roll_up(NOW)
    assert HOUR in list(hours.due(NOW))
    hours.compute(HOUR, NOW)
    assert HOUR not in list(hours.due(NOW))
    for passed in (3 * 3600.0, 73 * 3600.0):
        then = HOUR + 3600.0 + passed + 1.0
        assert list(hours.due(then))[-1] == HOUR
        hours.compute(HOUR, then)
        assert HOUR not in list(hours.due(then))


def test_of_hours_before_the_first_reading_there_is_no_account(jobs: tuple[Job, Job]) -> None:
    # The first reading came in the hour before.
    assert min(hours.due(NOW), default=HOUR) >= HOUR


def test_only_one_process_computes_at_a_time(
    jobs: tuple[Job, Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "only_one", lambda *_: _Taken())
    assert hours.step(NOW) is None
    assert tasks.account() is False


class _Taken:
    def __enter__(self) -> bool:
        return False

    def __exit__(self, *_: object) -> None:
        pass


def test_hours_are_forgotten_before_days(jobs: tuple[Job, Job]) -> None:
    hours.prune(at(0) + timedelta(days=settings.TELEMETRY_HOUR_HOT_DAYS + 2))
    assert not HourAccount.objects.exists()
    assert DayAccount.objects.exists()
    assert AccountedHour.objects.exists()
    hours.prune(at(0) + timedelta(days=settings.TELEMETRY_HOUR_DAYS + 2))
    assert not DayAccount.objects.exists()
    assert not AccountedHour.objects.exists()


def test_queries_do_not_grow_with_jobs(
    jobs: tuple[Job, Job], django_assert_max_num_queries: object
) -> None:
    for number in range(6):
        job = job_since(0.0, f"more-{number}", gpus=1, state="running")
        hold(job, {"n2": [1]}, 100.0 * number, 100.0 * number + 90.0)
        report(f"more-{number}", 100.0 * number + 20.0, 100.0 * number + 80.0)
    Phase.objects.update(started_at=F("queued_at"))
    housekeeping.roll_up(NOW)
    with django_assert_max_num_queries(60):  # type: ignore[operator]
        hours.compute(HOUR, NOW)
