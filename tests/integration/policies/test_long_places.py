"""Places with the longest names that the inventory takes: what is about them is kept whole."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from accounts.roles import Role
from admission.bookings.models import Booking
from admission.directives.models import Overload
from fleet import snapshot
from fleet.models import Rack, Site
from policies.incidents.models import Incident, IncidentMember
from policies.playbooks.models import Directive, PlaybookRun
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.models import Restriction
from policies.rules.models import RuleEpisode
from policies.scopes import MOST_NAME
from tests.builders.accounts import api_client
from tests.builders.fleet import small_fleet
from tests.builders.policies import make_episode, make_playbook, make_rule, make_run

pytestmark = pytest.mark.django_db

LONG = "w" * 200
PLACE = f"{LONG}/{LONG}"
#: All tables with rows about scopes.
TABLES = (
    Restriction,
    RuleEpisode,
    PlaybookRun,
    Directive,
    Incident,
    IncidentMember,
    Overload,
    Booking,
)


@pytest.fixture
def rack(clean_stores: None) -> str:
    """A rack whose site and name are as long as may be; its path."""
    made = small_fleet(sites=("oslo",), racks_per_row=1, rows=("A",))
    Rack.objects.filter(pk=made.racks["oslo/A01"].pk).update(name=LONG)
    Site.objects.update(name=LONG)
    snapshot.invalidate()
    return PLACE


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_room_for_the_longest_name_of_a_place(table: Any) -> None:
    longest = sum(each._meta.get_field("name").max_length or 0 for each in (Site, Rack)) + len("/")
    assert table._meta.get_field("scope_name").max_length == MOST_NAME >= longest


def test_a_rule_fires_on_a_rack_of_the_longest_name_and_a_playbook_runs_there(rack: str) -> None:
    make_episode(make_rule(), rack)
    assert RuleEpisode.objects.get().scope_name == rack
    assert make_run(make_playbook(), scope=rack).scope_name == rack


def test_a_person_restricts_a_rack_of_the_longest_name(rack: str) -> None:
    answer = api_client(Role.OPERATOR).post(
        "/api/v1/restrictions",
        {
            "kind": RestrictionKind.DRAIN, "scope": {"kind": "rack", "name": rack},
            "reason": "new pumps", "expires_at": (timezone.now() + timedelta(hours=1)).isoformat(),
        },
        content_type="application/json",
    )  # fmt: skip
    assert answer.status_code == 201, answer.content
    assert Restriction.objects.get().scope_name == rack


def test_a_name_that_no_place_can_have_is_refused_by_its_field(rack: str) -> None:
    answer = api_client(Role.OPERATOR).post(
        "/api/v1/restrictions",
        {
            "kind": RestrictionKind.HOLD_FOR_REVIEW,
            "scope": {"kind": "job", "name": "j" * (MOST_NAME + 1)},
            "reason": "a test", "expires_at": (timezone.now() + timedelta(hours=1)).isoformat(),
        },
        content_type="application/json",
    )  # fmt: skip
    assert answer.status_code == 400
    assert answer.json()["error"]["field"] == "scope.name"
