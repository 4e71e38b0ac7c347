"""What a rack's page leads to: incidents, restrictions and jobs of it, as far as one may see."""

from __future__ import annotations

from django.test import Client

from accounts.roles import Role
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
