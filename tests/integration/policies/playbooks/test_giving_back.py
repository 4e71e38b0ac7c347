"""What an abort or an undo would give back, and what that would break, before it is done."""

from __future__ import annotations

import pytest

from accounts.roles import Role
from fleet.models import Rack
from policies.headroom import live
from tests.builders.accounts import api_client, client_of
from tests.builders.fleet import SmallFleet
from tests.integration.policies.playbooks.conftest import start

CAP = """\
    - {id: cap, restrict: {kind: power_cap_w, value: 400}}
    - {id: look, manual: {instruction: Look}, timeout: 1h}
"""


@pytest.mark.parametrize(
    ("power_w", "budget_w", "said"),
    [
        (398.0, 6_000.0, "rack oslo/A01 would be at "),
        (398.0, 60_000.0, "every rack and zone stays within its budget."),
        (200.0, 6_000.0, "No GPU draws more by that."),
    ],
)
def test_it_is_said_beforehand_what_an_end_would_break(
    fleet: SmallFleet, power_w: float, budget_w: float, said: str
) -> None:
    Rack.objects.update(budget_w=budget_w)
    fleet.report(power_w=power_w)
    live.invalidate()
    stage = start(CAP)
    stage.play()
    live.invalidate()
    told = api_client(Role.VIEWER).get(f"/api/v1/playbook-runs/{stage.run.pk}").json()["gives_back"]
    assert told.startswith("Gives back power_cap_w 400 W on rack oslo/A01.")
    assert said in told
    page = client_of(Role.RESPONDER).get(f"/runs/{stage.run.pk}/").content.decode()
    assert said in " ".join(page.split())


def test_a_run_that_is_over_gives_nothing_back() -> None:
    stage = start("- {id: wait, wait_until: {for: 1s}}")
    stage.play()
    stage.play(2)
    told = api_client(Role.VIEWER).get(f"/api/v1/playbook-runs/{stage.run.pk}").json()
    assert (told["state"], told["gives_back"]) == ("succeeded", "")
