"""What a rack's page leads to: incidents, restrictions and jobs of it, as far as one may see."""

from __future__ import annotations

import time

import numpy as np
import pytest
from django.test import Client

from accounts.roles import Role
from policies.caps import orders
from policies.incidents.models import Incident
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.models import Restriction
from policies.scopes import Scope, ScopeKind
from tests.builders.accounts import client_of
from tests.builders.fleet import SmallFleet
from tests.builders.jobs import make_attempt, make_job
from tests.builders.policies import open_incident
from tests.html import html_of
from tests.integration.admission.cycle.scenes import restrict


def test_incident_restriction_and_job_of_a_rack_are_one_click_away(
    viewer: Client, small: SmallFleet
) -> None:
    incident = open_incident("rack oslo/A01")
    restrict(RestrictionKind.DRAIN, Scope(ScopeKind.SITE, "oslo"))
    phase = make_job("busy", state="running").phases.get()
    make_attempt(phase, {"oslo-a01-n1": range(4)}, racks=["oslo/A01"])
    html = html_of(viewer.get(f"/racks/{small.racks['oslo/A01'].pk}/"))
    assert f'href="/incidents/{incident.pk}/"' in html
    assert 'id="hub-restriction-' in html
    assert 'href="/jobs/busy/?phase=train"' in html
    other = html_of(viewer.get("/live/places/rack/bergen/A01/hub"))
    assert "none open" in other
    assert "none in force" in other
    assert "none that Headroom placed" in other


def test_a_job_of_another_project_has_no_name_there(small: SmallFleet) -> None:
    phase = make_job("secret", state="running").phases.get()
    make_attempt(phase, {"oslo-a01-n1": range(4)}, racks=["oslo/A01"])
    restrict(RestrictionKind.DRAIN, Scope(ScopeKind.SITE, "oslo"))
    Restriction.objects.update(reason="as secret/train asked for")
    incident = open_incident("rack oslo/A01")
    Incident.objects.filter(pk=incident.pk).update(title="secret/train draws too much")
    html = html_of(client_of(Role.ML_USER).get(f"/racks/{small.racks['oslo/A01'].pk}/"))
    assert "secret" not in html
    assert "a job of another project" in html


def pages_of(small: SmallFleet) -> dict[str, str]:
    node = small.nodes["oslo-a01-n1"]
    return {
        "node": f"/nodes/{node.pk}/",
        "gpu": f"/gpus/{node.gpus.get(index=1).pk}/",
    }


@pytest.mark.parametrize("kind", ["node", "gpu"])
def test_nodes_and_gpus_lead_to_what_is_open_and_runs_there(
    viewer: Client, small: SmallFleet, kind: str
) -> None:
    small.report()
    incident = open_incident("node oslo-a01-n1")
    restrict(RestrictionKind.DRAIN, Scope(ScopeKind.RACK, "oslo/A01"))
    restriction = Restriction.objects.get()
    for name, node, gpus in (
        ("busy", "oslo-a01-n1", range(4)),
        ("beside", "oslo-a01-n2", range(4)),
    ):
        phase = make_job(name, state="running").phases.get()
        make_attempt(phase, {node: gpus}, racks=["oslo/A01"])
    html = html_of(viewer.get(pages_of(small)[kind]))
    assert f'href="/incidents/{incident.pk}/"' in html
    assert f'href="/restrictions/{restriction.pk}/"' in html
    assert 'href="/jobs/busy/?phase=train"' in html
    assert "/jobs/beside/" not in html
    assert f'href="/racks/{small.racks["oslo/A01"].pk}/"' in html
    assert 'id="hub-binds"' in html


def test_a_gpu_tells_only_jobs_that_hold_it_and_nothing_of_its_neighbors(
    viewer: Client, small: SmallFleet
) -> None:
    incident = open_incident("gpu oslo-a01-n1/1")
    phase = make_job("half", state="running").phases.get()
    make_attempt(phase, {"oslo-a01-n1": range(2)}, racks=["oslo/A01"])

    def tells(place: str) -> tuple[bool, bool]:
        html = html_of(viewer.get(f"/live/places/{place}/hub"))
        return f"/incidents/{incident.pk}/" in html, "/jobs/half/" in html

    assert tells("gpu/oslo-a01-n1/1") == (True, True)
    assert tells("gpu/oslo-a01-n1/0") == (False, True)
    assert tells("gpu/oslo-a01-n1/2") == (False, False)
    assert tells("node/oslo-a01-n1") == (True, True)
    assert tells("node/oslo-a01-n2") == (False, False)


def test_on_a_node_too_a_job_of_another_project_has_no_name(small: SmallFleet) -> None:
    phase = make_job("secret", state="running").phases.get()
    make_attempt(phase, {"oslo-a01-n1": range(4)}, racks=["oslo/A01"])
    reader = client_of(Role.ML_USER)
    for path in pages_of(small).values():
        html = html_of(reader.get(path))
        assert "secret" not in html
        assert "a job of another project" in html


def test_who_may_restrict_a_node_is_led_to_the_form(small: SmallFleet) -> None:
    path = pages_of(small)["node"]
    form = 'href="/restrictions/new/?scope_kind=node&amp;scope=oslo-a01-n1"'
    assert form in html_of(client_of(Role.OPERATOR).get(path))
    assert form not in html_of(client_of(Role.VIEWER).get(path))


@pytest.mark.parametrize("name", ["oslo-a01-n1/x", "oslo-a01-n1/99", "nobody/0"])
def test_the_hub_of_a_gpu_that_is_not_there_is_not_found(
    viewer: Client, small: SmallFleet, name: str
) -> None:
    assert viewer.get(f"/live/places/gpu/{name}/hub").status_code == 404


def test_nodes_and_gpus_say_how_the_controller_caps_them(viewer: Client, small: SmallFleet) -> None:
    node = small.nodes["oslo-a01-n1"]
    ids = np.array([node.gpus.get(index=index).pk for index in (0, 1)])
    orders.keep(ids, np.zeros(2, dtype=np.int64), np.array([480.0, 540.0]), time.time())

    def told(place: str) -> str:
        return html_of(viewer.get(f"/live/places/{place}/hub"))

    assert "caps 2 GPUs of 4 at 480 to 540 W" in told("node/oslo-a01-n1")
    assert "caps it at 540 W" in told("gpu/oslo-a01-n1/1")
    assert "the controller" not in told("gpu/oslo-a01-n1/2")
    assert "the controller" not in told("node/oslo-a01-n2")
