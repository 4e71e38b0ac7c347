"""Zones, power domains, links, storage, sites, projects and jobs of others as hubs."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from accounts.roles import Role
from fleet import snapshot
from fleet.models import Node, StorageEndpoint
from policies.incidents.models import Incident
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.models import Restriction
from policies.scopes import Scope, ScopeKind
from telemetry.models import ReportedJob
from tests.builders.accounts import client_of
from tests.builders.fleet import SmallFleet
from tests.builders.jobs import make_attempt, make_job
from tests.builders.policies import make_playbook, open_incident
from tests.html import html_of
from tests.integration.admission.cycle.scenes import restrict
from tests.integration.dashboard.test_throttle_page import text_of

FEED = "/places/power_domain/oslo/feed-a1/"
ZONE = "/places/zone/oslo/hall-1/"


@pytest.fixture
def busy(small: SmallFleet) -> SmallFleet:
    """A fleet that is heard, with a job on a rack of oslo."""
    small.report()
    phase = make_job("busy", state="running").phases.get()
    make_attempt(phase, {"oslo-a01-n1": range(4)}, racks=["oslo/A01"])
    return small


@pytest.mark.parametrize("path", [FEED, ZONE, "/conditions/oslo/", "/places/link/oslo/A01/uplink/"])
def test_what_is_open_and_what_limits_a_part_is_on_the_page_of_each_place(
    viewer: Client, busy: SmallFleet, path: str
) -> None:
    # A link is a part of its rack; the rack is one of the others.
    incident = open_incident("rack oslo/A01")
    restrict(RestrictionKind.DRAIN, Scope(ScopeKind.SITE, "oslo"))
    html = html_of(viewer.get(path))
    assert f'href="/incidents/{incident.pk}/"' in html
    assert 'id="hub-restriction-' in html
    assert "what if it fails" in html
    if "link" not in path:
        assert 'href="/jobs/busy/?phase=train"' in html
    other = html_of(viewer.get("/live/places/zone/bergen/hall-1/hub"))
    assert "none open" in other
    assert "none that Headroom placed" in other


def test_a_place_tells_its_load_its_budget_and_its_tightest_parts(
    viewer: Client, busy: SmallFleet
) -> None:
    html = html_of(viewer.get(FEED))
    assert "power domain oslo/feed-a1 · " in html
    assert "kW left" in html
    assert "other half of its pair" in html
    assert 'href="/places/power_domain/oslo/feed-b1/"' in html
    assert f'href="/racks/{busy.racks["oslo/A01"].pk}/"' in html
    assert "of the load is assumed" not in html
    assert "bergen" not in html


def test_a_link_tells_what_it_sends_of_each_class_where_that_is_reported(
    viewer: Client, small: SmallFleet
) -> None:
    link = "oslo/A01/uplink"
    small.report(links={link: 5e9}, link_classes={"checkpoint": 2.5e9, "control": 0.0})
    text = text_of(html_of(viewer.get(f"/places/link/{link}/")))
    assert "sent, checkpoint 20.0 Gbit/s" in text
    assert "sent, control 0" in text
    assert "sent, data" not in text


def test_a_link_has_a_chart_of_what_it_carries_below_its_capacity(
    viewer: Client, small: SmallFleet
) -> None:
    link = small.links["oslo/A01/uplink"]
    html = html_of(viewer.get("/places/link/oslo/A01/uplink/"))
    assert f'data-sources="link:{link.pk}"' in html
    assert f'data-capacity-bits-per-s="{link.capacity_bits_per_s:.0f}"' in html
    assert f"kind=link&amp;id={link.pk}" in html  # its file


def test_storage_names_the_jobs_that_were_placed_on_it(viewer: Client, busy: SmallFleet) -> None:
    store = StorageEndpoint.objects.create(site=busy.sites["oslo"], name="nvme")
    Node.objects.filter(name="oslo-a01-n1").update(storage_endpoint=store)
    snapshot.invalidate()
    html = html_of(viewer.get("/places/storage/oslo/nvme/"))
    assert 'href="/jobs/busy/?phase=train"' in html
    assert 'href="/places/storage/oslo/nvme/"' in html_of(viewer.get("/conditions/oslo/"))


def test_what_was_done_is_told_for_a_day(viewer: Client, busy: SmallFleet) -> None:
    incident = open_incident("rack oslo/A01")
    Incident.objects.filter(pk=incident.pk).update(
        state="resolved", resolved_at=timezone.now(), title="too hot"
    )
    html = html_of(viewer.get(ZONE))
    assert f"{incident.number} resolved: too hot" in html
    assert "none open" in html


def test_what_one_may_do_follows_from_the_role(viewer: Client, busy: SmallFleet) -> None:
    make_playbook()
    assert "restrict it" not in html_of(viewer.get(ZONE))
    html = html_of(client_of(Role.OPERATOR).get(f"/racks/{busy.racks['oslo/A01'].pk}/"))
    assert "scope_kind=rack&amp;scope=oslo%2FA01" in html
    assert 'href="/playbooks/cool-down/?kind=rack&amp;scope=oslo%2FA01"' in html


def test_a_job_of_another_project_has_no_name_on_any_hub(busy: SmallFleet) -> None:
    restrict(RestrictionKind.DRAIN, Scope(ScopeKind.SITE, "oslo"))
    Restriction.objects.update(reason="as busy/train asked for")
    ml_user = client_of(Role.ML_USER)
    pk = Restriction.objects.get().pk
    for path in (FEED, ZONE, "/conditions/oslo/", f"/restrictions/{pk}/"):
        html = html_of(ml_user.get(path))
        assert "busy" not in html
        assert "a job of another project" in html
    assert ml_user.get("/projects/vision/").status_code == 404


@pytest.mark.parametrize(
    "path",
    ["/places/zone/oslo/none/", "/places/node/oslo-a01-n1/", "/places/gas/x/",
     "/live/places/zone/none/hub", "/live/places/zone/none/now", "/projects/none/"],
)  # fmt: skip
def test_what_is_not_there_is_not_found(viewer: Client, small: SmallFleet, path: str) -> None:
    assert viewer.get(path).status_code == 404


def test_a_project_tells_what_it_holds_what_waits_and_what_is_open(
    viewer: Client, busy: SmallFleet
) -> None:
    make_job("later", reason="GpuShortage")
    restrict(RestrictionKind.HOLD_FOR_REVIEW, Scope(ScopeKind.JOB, "busy"))
    html = html_of(viewer.get("/projects/vision/"))
    assert 'href="/jobs/busy/?phase=train"' in html
    assert 'href="/jobs/later/?phase=train"' in html
    assert "GpuShortage" in html
    assert 'id="hub-restriction-' in html
    assert 'href="/projects/vision/"' in html_of(viewer.get("/jobs/busy/"))


def test_a_job_that_headroom_did_not_place_has_a_page(viewer: Client, busy: SmallFleet) -> None:
    reported = ReportedJob.objects.create(name="slurm-4711")
    busy.report(only=["oslo-a02-n1"], job=lambda _node, index: "slurm-4711" if index < 3 else None)
    html = html_of(viewer.get("/jobs/slurm-4711/"))
    assert "slurm-4711 · <b>3 GPUs</b> on 1 node" in html
    assert "not placed by Headroom" in html
    assert f'href="/racks/{busy.racks["oslo/A02"].pk}/"' in html
    assert client_of(Role.ML_USER).get("/jobs/slurm-4711/").status_code == 404
    assert reported.name not in html_of(viewer.get("/jobs/busy/"))
