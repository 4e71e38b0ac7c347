"""An hour of stored readings becomes rows that add up to the meters, once."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from prometheus_client import REGISTRY

from admission.energy import ledger as closing
from admission.energy.models import ClosedHour, JobHour, PlaceHour, ProjectHour, SiteHour
from fleet import snapshot
from fleet.models import PowerDomain, Rack
from tests.builders.ledger import Ledger

pytestmark = pytest.mark.django_db

HOUR_S = 3600
#: Readings of a thing begin half a minute after the first: what lay before is not read.
ABOUT = 0.01


def fill(made: Ledger) -> None:
    """Two jobs of two projects on n1 and n2, one idle node, one with work of nobody."""
    made.read("n1", {0: 700.0, 1: 700.0})
    made.read("n2", {0: 500.0, 1: 500.0})
    made.read("n3", {0: 70.0, 1: 70.0})
    made.read("n4", {0: 400.0, 1: 70.0})
    for number in range(1, 5):
        made.host(f"n{number}", 300.0)
    made.job("llama", {"n1": [0, 1], "n2": [0]})
    made.job("bert", {"n2": [1]}, project="text")


def kj(mj: int) -> float:
    return mj / 1e6


def test_jobs_idle_and_unmanaged_are_told_apart(ledger: Ledger) -> None:
    fill(ledger)
    site = ledger.close()
    host = 300.0 / 2
    assert kj(site.jobs_mj) == pytest.approx((2400 + 4 * host) * 3.6, rel=ABOUT)
    assert kj(site.idle_mj) == pytest.approx((210 + 3 * host) * 3.6, rel=ABOUT)
    assert kj(site.unmanaged_mj) == pytest.approx((400 + host) * 3.6, rel=ABOUT)
    assert site.residual_mj == 0
    assert site.covered_ms == pytest.approx(site.gpu_ms, rel=ABOUT)
    jobs = {row.job: row for row in JobHour.objects.all()}
    assert kj(jobs["llama"].gpu_mj) == pytest.approx(1900 * 3.6, rel=ABOUT)
    assert jobs["llama"].gpu_ms == 3 * HOUR_S * 1000
    assert {row.project: row.host_mj for row in ProjectHour.objects.all()} == {
        "vision": jobs["llama"].host_mj, "text": jobs["bert"].host_mj,
    }  # fmt: skip
    whole = sum(row.gpu_mj + row.host_mj + row.shared_mj + row.overhead_mj for row in jobs.values())
    assert whole == site.jobs_mj


def test_what_pdu_and_facility_meters_read_is_what_parts_and_residual_come_to(
    ledger: Ledger,
) -> None:
    fill(ledger)
    ledger.meter("rack-1", 3100.0, rack=Rack.objects.get(name="A01"))
    ledger.meter("pdu", 4300.0, power_domain=PowerDomain.objects.get(name="pdu"))
    ledger.meter("utility", 5200.0, power_domain=PowerDomain.objects.get(name="utility"))
    site = ledger.close()
    assert (site.it_metered, site.facility_metered) == (True, True)
    assert site.basis == SiteHour.OverheadBasis.MEASURED
    parts = site.jobs_mj + site.idle_mj + site.unmanaged_mj
    assert kj(parts + site.residual_mj) == pytest.approx(5200 * 3.6, rel=ABOUT)
    assert kj(site.residual_mj) == pytest.approx((4300 - 3010 - 1200) * 3.6, rel=0.15)
    assert parts + site.residual_mj == site.it_mj + site.overhead_mj
    rack = PlaceHour.objects.get(kind="rack", place="oslo/A01")
    assert rack.metered
    assert kj(rack.residual_mj) == pytest.approx(100 * 3.6, rel=0.02)
    assert not PlaceHour.objects.get(kind="node", place="n1").metered


def test_minutes_tell_apart_who_had_a_gpu_first(ledger: Ledger) -> None:
    ledger.read("n1", {0: 100.0}, to_s=1800.0)
    ledger.read("n1", {0: 700.0}, from_s=1800.0)
    ledger.job("quiet", {"n1": [0]}, to_s=1800.0)
    ledger.job("busy", {"n1": [0]}, from_s=1800.0)
    ledger.close()
    jobs = {row.job: kj(row.gpu_mj) for row in JobHour.objects.all()}
    assert jobs["quiet"] == pytest.approx(180, rel=0.02)
    assert jobs["busy"] == pytest.approx(1260, rel=0.02)


def test_closing_an_hour_again_changes_nothing(ledger: Ledger) -> None:
    fill(ledger)
    first = ledger.close()
    closing.close_hour(snapshot.fresh(), ledger.hour, ledger.hour + timedelta(hours=2))
    again = SiteHour.objects.get()
    assert (again.jobs_mj, again.idle_mj) == (first.jobs_mj, first.idle_mj)
    assert (JobHour.objects.count(), ClosedHour.objects.count()) == (2, 1)


def test_an_hour_that_is_not_rolled_up_is_not_closed(ledger: Ledger) -> None:
    fill(ledger)
    assert closing.close_due((ledger.hour + timedelta(minutes=70)).timestamp())
    assert not ClosedHour.objects.exists()


def test_what_agents_send_later_is_in_it_once_it_is_settled(ledger: Ledger) -> None:
    ledger.read("n1", {0: 700.0})
    ledger.job("llama", {"n1": [0, 1]})
    assert kj(ledger.close().jobs_mj) == pytest.approx(700 * 3.6, rel=ABOUT)
    ledger.read("n1", {1: 700.0})
    ledger.close(after=timedelta(hours=73))
    # Two turns: what is new comes first, and at most six hours of it.
    for _ in range(15):
        closing.close_due((ledger.hour + timedelta(hours=73)).timestamp())
    assert kj(SiteHour.objects.get(hour=ledger.hour).jobs_mj) == pytest.approx(
        1400 * 3.6, rel=ABOUT
    )
    assert ClosedHour.objects.get(hour=ledger.hour).again_at is None


def test_a_fleet_that_was_not_read_has_rows_that_say_so(ledger: Ledger) -> None:
    site = ledger.close()
    assert (site.jobs_mj, site.idle_mj, site.covered_ms) == (0, 0, 0)
    assert site.gpu_ms == 8 * HOUR_S * 1000


def test_nobody_waits_for_one_that_is_closing(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("admission.energy.ledger.locks.only_one", lambda _: nullcontext(False))
    assert not closing.close_due(ledger.start + 4000.0)


def test_nodes_and_jobs_are_forgotten_and_sites_and_projects_stay(ledger: Ledger) -> None:
    fill(ledger)
    ledger.close()
    closing.prune(ledger.hour + timedelta(days=91))
    assert (PlaceHour.objects.count(), JobHour.objects.count()) == (0, 0)
    assert (SiteHour.objects.count(), ProjectHour.objects.count()) == (1, 2)


def test_queries_of_an_hour_do_not_grow_with_nodes_and_jobs(ledger: Ledger) -> None:
    fill(ledger)
    ledger.close()
    with CaptureQueriesContext(connection) as found:
        closing.close_hour(snapshot.fresh(), ledger.hour, ledger.hour + timedelta(hours=2))
    assert len(found) <= 45, [each["sql"][:90] for each in found]


def test_metrics_tell_the_parts_of_the_last_hour(ledger: Ledger) -> None:
    fill(ledger)
    site = ledger.close()
    for part in ("jobs", "idle", "unmanaged", "residual"):
        told = REGISTRY.get_sample_value(
            "headroom_energy_hour_joules", {"site": "oslo", "part": part}
        )
        assert told == getattr(site, f"{part}_mj") / 1000
    start = REGISTRY.get_sample_value("headroom_energy_hour_start_seconds")
    assert start == ledger.start
