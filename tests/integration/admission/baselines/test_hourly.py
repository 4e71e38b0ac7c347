"""Each hour of the account keeps what gangs drew and what held them back, by rack."""

from __future__ import annotations

from datetime import timedelta

import pytest

from admission.baselines.models import GangHour
from admission.goodput import hours
from admission.jobs.models import Attempt, Job, Phase
from fleet import snapshot
from fleet.models import CoolingZone, Gpu, Link, Rack, Site
from headroom.contracts import ThrottleCause
from policies.incidents.models import Incident
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.models import Restriction
from telemetry.models import CheckpointFact, ThrottleEvent
from telemetry.samples import GPU, LINK
from tests.builders.accounted import HOUR, again, at, hold, job_since, make_hour, read, report
from tests.builders.readings import make_node, write_samples

pytestmark = pytest.mark.django_db

EVERY_S = 20.0


@pytest.fixture(scope="module")
def jobs(module_db: None) -> tuple[Job, Job]:
    return make_hour()


def the(project: str) -> GangHour:
    return GangHour.objects.get(project=project)


def restrict(
    kind: RestrictionKind, scope_kind: str, scope_name: str, value: float | None = None
) -> None:
    Restriction.objects.create(
        kind=kind, scope_kind=scope_kind, scope_name=scope_name, reason="fan", owner="user:a",
        cause="fan", state="in_force", issued_at=at(600), effect_at=at(600), expires_at=at(9000),
        value=value,
    )  # fmt: skip


def test_a_row_says_whose_hour_it_was_where(jobs: tuple[Job, Job]) -> None:
    row = the("vision")
    attempt = Attempt.objects.get(phase__job__name="llama")
    assert (row.hour, row.site, row.rack, row.phase, row.attempt_id) == (
        at(0), "oslo", "A01", "train", attempt.pk,
    )  # fmt: skip
    assert row.causes == []
    assert not GangHour.objects.filter(project="").exists()


def test_power_is_that_of_gpus_while_they_work(jobs: tuple[Job, Job]) -> None:
    assert the("vision").power_w == pytest.approx(600.0)
    # Half of its hour bert does nothing, at 70 W.
    assert the("speech").power_w == pytest.approx(600.0)


def test_what_nobody_told_is_not_known(jobs: tuple[Job, Job]) -> None:
    row = the("vision")
    known = (row.temp_c, row.c_per_w, row.link_latency_s, row.sync_s, row.save_s)
    assert known == (None, None, None, None, None)


def test_warmth_is_told_above_what_the_zone_supplies(jobs: tuple[Job, Job]) -> None:
    rack = Rack.objects.get(name="A01")
    rack.cooling_zone = CoolingZone.objects.create(
        site=rack.site, name="hall", kind="air", capacity_w=1e5, supply_c=20.0
    )
    rack.save()
    snapshot.fresh()
    for index in (0, 1):
        gpu = Gpu.objects.get(node__name="n1", index=index)
        times = [HOUR + 10.0 + EVERY_S * each for each in range(190)]
        write_samples(GPU, gpu.pk, times, util=95.0, power_w=600.0, temp_c=50.0)
    again()
    row = the("vision")
    assert row.temp_c == pytest.approx(50.0)
    assert row.c_per_w == pytest.approx(30.0 / 600.0)


def test_waits_saves_and_links_are_told_where_loops_keepers_and_readings_tell(
    jobs: tuple[Job, Job],
) -> None:
    job = job_since(-600.0, "told", project="robots", gpus=1, state="running")
    make_node("n9", gpus=1, rack="A09")
    snapshot.fresh()
    hold(job, {"n9": [0]}, -300.0)
    phase = Phase.objects.get(job=job)
    phase.request["checkpoint_interval_s"] = 600.0
    phase.save()
    read("n9", 0, -300.0, 3900.0, util=95.0)
    report("told", -240.0, 3900.0, sync_s=1.5, data_wait_s=0.0, lost_share=0.1)
    CheckpointFact.objects.create(
        job="told", site=Site.objects.get(), run="r", lease_epoch=1, bytes=12_000_000_000,
        told_at=at(0), received_at=at(0),
    )  # fmt: skip
    rack = Rack.objects.get(name="A09")
    link = Link.objects.create(
        name="A09/uplink", kind="leaf-uplink", site=rack.site, rack=rack, capacity_bits_per_s=4e11
    )
    snapshot.fresh()
    write_samples(LINK, link.pk, [HOUR + EVERY_S * each for each in range(200)], latency_s=0.000_02)
    again()
    row = the("robots")
    assert row.sync_s == pytest.approx(1.5)
    assert row.save_s == pytest.approx(60.0, rel=1e-3)
    assert row.save_bytes_per_s == pytest.approx(2e8, rel=1e-3)
    assert row.link_latency_s == pytest.approx(0.000_02)


def test_what_is_of_a_gang_stands_in_one_of_its_racks(jobs: tuple[Job, Job]) -> None:
    for node, gpus in (("n7", 1), ("n8", 2)):
        make_node(node, gpus=gpus, rack=node.upper())
    snapshot.fresh()
    job = job_since(-600.0, "wide", project="wide", gpus=3, state="running")
    hold(job, {"n7": [0], "n8": [0, 1]}, -300.0)
    for node, index in (("n7", 0), ("n8", 0), ("n8", 1)):
        read(node, index, -300.0, 3900.0, util=95.0)
    report("wide", -240.0, 3900.0, sync_s=1.5, data_wait_s=0.0)
    again()
    found = dict(GangHour.objects.filter(project="wide").values_list("rack", "sync_s"))
    assert found == {"N7": None, "N8": pytest.approx(1.5)}


@pytest.mark.parametrize("scope", [("rack", "oslo/A01"), ("job", "llama"), ("site", "oslo")])
def test_a_restriction_makes_an_hour_a_degraded_one(
    jobs: tuple[Job, Job], scope: tuple[str, str]
) -> None:
    restrict(RestrictionKind.NO_NEW_LAUNCHES, *scope)
    again()
    assert the("vision").causes == ["restricted"]
    assert the("speech").causes == (["restricted"] if scope[0] == "site" else [])


def test_a_cap_counts_whether_it_throttled_or_not(jobs: tuple[Job, Job]) -> None:
    restrict(RestrictionKind.POWER_CAP_W, "node", "n2", value=650.0)
    again()
    assert (the("vision").causes, the("speech").causes) == ([], ["capped"])


def test_an_incident_counts_while_it_is_open(jobs: tuple[Job, Job]) -> None:
    given = {
        "title": "hot", "group_key": "k", "rule": "rack-hot", "severity": "warning",
        "scope_kind": "rack", "scope_name": "oslo/A02",
    }  # fmt: skip
    Incident.objects.create(**given, opened_at=at(-900), resolved_at=at(-60), state="resolved")
    again()
    assert the("speech").causes == []
    Incident.objects.create(**given, opened_at=at(3000))
    again()
    assert (the("vision").causes, the("speech").causes) == ([], ["incident"])


def test_throttling_of_one_gpu_is_a_cause_of_its_gang(jobs: tuple[Job, Job]) -> None:
    ThrottleEvent.objects.create(
        gpu=Gpu.objects.get(node__name="n1", index=0), cause=ThrottleCause.SW_THERMAL,
        opened_at=at(600), updated_at=at(1200), closed_at=at(1200), usual_mhz=1980.0,
        lost_mhz_s=99_000.0,
    )  # fmt: skip
    again()
    assert the("vision").causes == ["throttled_sw_thermal"]


def test_an_hour_that_is_computed_again_is_kept_once(jobs: tuple[Job, Job]) -> None:
    before = GangHour.objects.count()
    again()
    assert GangHour.objects.count() == before == 2


def test_hours_past_their_retention_are_forgotten(jobs: tuple[Job, Job]) -> None:
    hours.prune(at(0) + timedelta(days=34))
    assert GangHour.objects.count() == 2
    hours.prune(at(0) + timedelta(days=36))
    assert not GangHour.objects.exists()
