"""A rule on how far checkpoints at another site are behind: from what was told to an incident."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from policies import loop
from policies.documents import life
from policies.headroom import live
from policies.incidents.models import Incident
from policies.rules.actions import RULES
from policies.rules.models import RuleEpisode
from policies.scopes import Scope, ScopeKind
from telemetry import placed
from telemetry.models import CheckpointFact
from tests.builders.checkpoints import make_fact
from tests.builders.fleet import SmallFleet
from tests.builders.jobs import make_attempt, make_job

pytestmark = pytest.mark.django_db
PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "write-a-rule.md"
GB = 10**9


@pytest.fixture(autouse=True)
def placed_anew() -> Iterator[None]:
    placed.invalidate()
    yield
    placed.invalidate()


@pytest.fixture
def rule() -> str:
    """The rule of the page that shows how to write one, but with less patience."""
    text: str
    (text,) = re.findall(
        r"```yaml\n(name: checkpoints-behind\n.*?)```", PAGE.read_text(), re.DOTALL
    )
    text = text.replace("\nfor: 10m", "\nfor: 50s").replace("clear_for: 2m", "clear_for: 50s")
    life.promote(RULES, "reviewer", life.draft(RULES, "author", text), "active")
    return text


class Clock:
    """A job that runs in Oslo, and rounds of the loop, 25 s apart."""

    def __init__(self, fleet: SmallFleet) -> None:
        self.fleet = fleet
        self.now = time.time() - 3600.0
        self.attempt = make_attempt(
            make_job("llama", state="running").phases.get(),
            {"oslo-a01-n1": [0]},
            racks=["oslo/A01"],
        )

    def at(self, s_ago: float) -> datetime:
        return datetime.fromtimestamp(self.now - s_ago, UTC)

    def tell(self, *, behind_s: float) -> None:
        """Have a keeper tell that Bergen is so far behind a checkpoint of just now."""
        CheckpointFact.objects.all().delete()
        for site, saved_s_ago, lag in (
            ("oslo", 10.0, {}),
            ("bergen", 10.0 + behind_s, {"lag_checkpoints": 1, "lag_bytes": 3 * GB}),
        ):
            given: dict[str, Any] = {"saved_at": self.at(saved_s_ago), "told_at": self.at(0), **lag}
            make_fact("llama", self.fleet.sites[site], step=1200, bytes=5 * GB, **given)

    def round(self, rounds: int = 1, *, behind_s: float | None = None) -> int:
        """Do rounds; return on how many sites the rule fires. ``behind_s`` None: nobody tells."""
        done = None
        for _ in range(rounds):
            self.now += 25.0
            if behind_s is not None:
                self.tell(behind_s=behind_s)
            done = loop.evaluate_once(self.now)
        assert done is not None
        assert done.failed == ()
        return done.firing


@pytest.fixture
def clock(fleet: SmallFleet) -> Clock:
    return Clock(fleet)


def test_replication_that_is_behind_opens_an_incident_and_closes_it(
    clock: Clock, rule: str
) -> None:
    assert clock.round(behind_s=500.0) == 0
    assert clock.round(2, behind_s=700.0) == 0
    assert clock.round(behind_s=700.0) == 1
    incident = Incident.objects.get()
    assert incident.rule == "checkpoints-behind"
    episode = RuleEpisode.objects.get()
    assert episode.scope == Scope(ScopeKind.SITE, "oslo")
    assert episode.values["checkpoint_lag_s"] == 700.0
    assert incident.title == (
        "Checkpoints of jobs at oslo are 11.7 min and 3 Gbyte behind elsewhere; 0 jobs have none"
        " there."
    )
    assert clock.round(2, behind_s=200.0) == 1
    assert clock.round(behind_s=200.0) == 0
    assert Incident.objects.get().quiet_since is not None


def test_a_keeper_that_falls_silent_while_its_job_runs_is_behind_in_the_end(
    clock: Clock, rule: str
) -> None:
    clock.tell(behind_s=590.0)
    # It is on time for a minute; then it grows to the threshold, and has to hold.
    assert clock.round(4) == 0
    assert clock.round() == 1
    assert RuleEpisode.objects.get().values["checkpoint_lag_s"] > 600.0


def test_a_job_that_has_ended_is_behind_nothing(clock: Clock, rule: str) -> None:
    clock.tell(behind_s=9000.0)
    clock.attempt.state, clock.attempt.ended_at = "ended", clock.at(3600)
    clock.attempt.save()
    placed.invalidate()
    row = live.current(clock.now).table(ScopeKind.SITE).row("oslo")
    assert row["checkpoint_lag_s"] != row["checkpoint_lag_s"]
    assert clock.round(4) == 0


def test_where_no_job_runs_nothing_is_asked(fleet: SmallFleet) -> None:
    now = time.time()
    live.current(now)
    live.invalidate()
    with CaptureQueriesContext(connection) as queries:
        live.current(now + 1)
    assert not [each["sql"] for each in queries if "checkpointfact" in each["sql"]]


def test_lags_are_read_again_within_ten_seconds(clock: Clock) -> None:
    def lag_s() -> float:
        return float(live.current(clock.now).table(ScopeKind.SITE).row("oslo")["checkpoint_lag_s"])

    clock.tell(behind_s=100.0)
    assert lag_s() == pytest.approx(100.0)
    clock.now += 11.0
    clock.tell(behind_s=300.0)
    assert lag_s() == pytest.approx(300.0)
