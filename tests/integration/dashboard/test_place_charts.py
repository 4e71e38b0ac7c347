"""What charts of racks and places have besides their lines: marks, sums of GPUs, what is ahead."""

from __future__ import annotations

import re
import time
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.roles import Role
from accounts.visibility import ANOTHER
from admission.annotations.happenings import KINDS
from admission.bookings.models import Booking
from dashboard import marks, moments
from fleet import snapshot
from fleet.models import Meter, StorageEndpoint
from policies.firings import Severity
from policies.restrictions.kinds import RestrictionKind
from policies.rollouts.following import ROLLOUTS
from policies.scopes import Scope, ScopeKind
from telemetry import series
from telemetry.limits.models import LimitReport
from tests.builders.accounts import client_of
from tests.builders.documents import put_in_force
from tests.builders.fleet import HOST_IDLE_W, HOST_RATED_W, SmallFleet
from tests.builders.jobs import make_attempt, make_job, make_project
from tests.builders.policies import make_playbook, make_run, open_incident
from tests.builders.rollouts import DRIVER, make_held
from tests.html import html_of
from tests.integration.admission.cycle.scenes import restrict
from tests.integration.dashboard.test_throttle_page import text_of

FEED, ZONE, SITE = "power_domain/oslo/feed-a1", "zone/oslo/hall-1", "site/oslo"


def capped(small: SmallFleet, node: str, gpu: int, state: str = "applied", w: float = 500) -> None:
    """Have an agent have said that the controller capped a GPU."""
    now = timezone.now()
    LimitReport.objects.create(
        agent=small.agent, node=small.nodes[node], gpu_index=gpu, limit=f"controller-{gpu}",
        kind="power_cap_w", state=state, at=now.replace(microsecond=0), asked=w,
        received_at=now, boot_id="b", seq=1,
    )  # fmt: skip


@pytest.fixture
def eventful(small: SmallFleet) -> SmallFleet:
    """Something of each kind on rack oslo/A01, and a drain of all of bergen."""
    small.report()
    incident = open_incident("rack oslo/A01")
    make_run(make_playbook(), incident)
    restrict(RestrictionKind.DRAIN, Scope(ScopeKind.RACK, "oslo/A01"))
    restrict(RestrictionKind.DRAIN, Scope(ScopeKind.SITE, "bergen"))
    phase = make_job("secret", state="running").phases.get()
    make_attempt(phase, {"oslo-a01-n1": range(4)}, racks=["oslo/A01"])
    for gpu in range(2):
        capped(small, "oslo-a01-n1", gpu, w=500 + 10 * gpu)
    make_held(put_in_force(ROLLOUTS, DRIVER))
    return small


def rows_of(client: Client, place: str) -> list[dict[str, Any]]:
    """Return the rows of the table of what happened, as its file has them."""
    answer = client.get(f"/live/places/{place}/annotations?table=annotations&format=json")
    assert answer.status_code == 200, answer.content
    found: list[dict[str, Any]] = answer.json()["rows"]
    return found


@pytest.mark.parametrize("place", ["rack/oslo/A01", FEED, ZONE, SITE, "node/oslo-a01-n1"])
def test_each_place_tells_what_happened_in_its_parts_and_above_it(
    viewer: Client, eventful: SmallFleet, place: str
) -> None:
    found = rows_of(viewer, place)
    assert {row["kind"] for row in found} == {*KINDS}
    assert "bergen" not in str(found)


def test_a_place_elsewhere_tells_nothing_of_it(viewer: Client, eventful: SmallFleet) -> None:
    assert "data-at" not in html_of(viewer.get("/live/places/rack/oslo/A02/annotations"))
    assert [row["what"] for row in rows_of(viewer, "rack/bergen/A01")] == [
        "drain on site bergen issued"
    ]


def test_every_mark_is_a_row_with_its_time_and_leads_to_what_it_is_about(
    viewer: Client, eventful: SmallFleet
) -> None:
    html = html_of(viewer.get(f"/racks/{eventful.racks['oslo/A01'].pk}/"))
    part = html[html.index('id="annotations"') :]
    rows = re.findall(r"<tr[^>]*data-at[^>]*>.*?</tr>", part, flags=re.DOTALL)
    assert len(rows) >= len(KINDS)
    numbers = [int(re.findall(r'data-mark="(\d+)"', row)[0]) for row in rows]
    assert numbers == list(range(len(rows), 0, -1))
    times = [float(re.findall(r'data-at="([0-9.]+)"', row)[0]) for row in rows]
    assert times == sorted(times, reverse=True)
    for row in rows:
        (href,) = re.findall(r'data-href="([^"]+)"', row)
        assert f'href="{href}"' in row
        assert viewer.get(href.replace("&amp;", "&")).status_code == 200


def test_a_critical_incident_and_a_job_that_failed_are_marked_as_bad_news(
    viewer: Client, small: SmallFleet
) -> None:
    open_incident("rack oslo/A01", rule="a", severity=Severity.CRITICAL)
    open_incident("rack oslo/A01", rule="b", severity=Severity.WARNING)
    now = timezone.now()
    for name, outcome in (("one", "failed"), ("two", "succeeded"), ("three", "lost")):
        phase = make_job(name, state="failed").phases.get()
        make_attempt(
            phase, {"oslo-a01-n1": range(4)}, racks=["oslo/A01"], state="ended", outcome=outcome,
            ended_at=now,
        )  # fmt: skip
    html = html_of(viewer.get(f"/live/places/{ZONE}/annotations"))
    rows = re.findall(r"<tr[^>]*data-at[^>]*>.*?</tr>", html, flags=re.DOTALL)
    bad = [text_of(row) for row in rows if "data-bad" in row]
    assert len(bad) == 3
    for words in ("one/train/1 failed", "three/train/1 lost", "opened"):
        assert words in str(bad)


def test_caps_of_one_minute_are_one_mark_of_the_least_place_that_has_them(
    viewer: Client, small: SmallFleet
) -> None:
    capped(small, "oslo-a01-n1", 0)
    capped(small, "oslo-a01-n2", 1, w=440)
    capped(small, "oslo-a02-n1", 0, state="restored")
    capped(small, "oslo-a02-n1", 1, state="refused")
    told = {row["what"]: row["why"] for row in rows_of(viewer, SITE)}
    assert told == {
        "controller capped 2 GPUs of rack oslo/A01": "at 440 to 500 W",
        "controller gave back 1 GPU of node oslo-a02-n1": None,
    }
    assert len(rows_of(viewer, "node/oslo-a01-n2")) == 1


def test_marks_are_bounded_and_the_page_says_of_how_many(
    viewer: Client, small: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "MOST", 3)
    for _ in range(5):
        open_incident("rack oslo/A01", rule=f"rule-{time.monotonic_ns()}")
    html = html_of(viewer.get(f"/live/places/{ZONE}/annotations"))
    assert html.count("data-at=") == 3
    assert "The newest 3 of 5" in text_of(html)
    assert len(rows_of(viewer, ZONE)) == 5


def test_only_the_range_of_the_chart_is_told(viewer: Client, eventful: SmallFleet) -> None:
    past = html_of(
        viewer.get("/live/places/rack/oslo/A01/annotations?from=2026-01-01&to=2026-01-02")
    )
    assert "data-at=" not in past
    assert "Nothing that Headroom knows of" in text_of(past)
    assert "hx-get" not in past


def test_a_job_of_another_project_is_marked_without_its_name_or_a_link(
    eventful: SmallFleet,
) -> None:
    stranger = client_of(Role.ML_USER)
    html = html_of(stranger.get(f"/live/places/{ZONE}/annotations"))
    assert f"{ANOTHER} started" in html
    assert "secret" not in html


def test_nobody_sees_what_happened_without_logging_in(client: Client, small: SmallFleet) -> None:
    for panel in ("annotations", "ahead"):
        assert client.get(f"/live/places/{ZONE}/{panel}").status_code == 302


@pytest.mark.parametrize(
    "path",
    ["zone/none/annotations", "zone/oslo/none/ahead", "gas/x/annotations", "gpu/x/ahead",
     "storage/oslo/x/ahead", "rack/oslo/Z9/ahead", "job/x/annotations"],
)  # fmt: skip
def test_what_is_not_there_is_not_found(viewer: Client, small: SmallFleet, path: str) -> None:
    assert viewer.get(f"/live/places/{path}").status_code == 404


# --- History without a meter ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "source", "gpus"),
    [("/places/zone/oslo/hall-1/", "zone", 48), ("/conditions/oslo/", "site", 48),
     ("/places/power_domain/oslo/feed-a1/", "power_domain", 48)],
)  # fmt: skip
def test_a_place_without_a_meter_has_the_sum_of_its_gpus_and_says_so(
    viewer: Client, small: SmallFleet, path: str, source: str, gpus: int
) -> None:
    html = html_of(viewer.get(path))
    assert re.search(rf'data-sources="{source}:\d+"', html)
    assert f'data-gpus="{gpus}"' in html
    text = text_of(html)
    assert f"No meter reads its power: this is the sum of what its {gpus} GPUs and 12 nodes" in text
    assert "not assumed" in text
    assert ("half of it where a rack has two feeds" in text) == (source == "power_domain")


def test_a_place_with_a_meter_of_power_has_that_and_no_sum(
    viewer: Client, small: SmallFleet
) -> None:
    zone = small.racks["oslo/A01"].cooling_zone
    meter = Meter.objects.create(name="warm", kind="temperature", cooling_zone=zone)
    html = html_of(viewer.get("/places/zone/oslo/hall-1/"))
    assert re.search(rf'data-sources="zone:\d+ meter:{meter.pk}"', html)
    meter = Meter.objects.create(name="watts", kind="power", cooling_zone=zone)
    html = html_of(viewer.get("/places/zone/oslo/hall-1/"))
    assert "zone:" not in re.findall(r'data-sources="([^"]*)"', html)[0]
    assert "No meter reads its power" not in html


@pytest.mark.parametrize("path", ["/places/zone/oslo/hall-1/", "/conditions/oslo/"])
def test_a_place_with_too_many_gpus_says_so_instead_of_a_chart(
    viewer: Client, eventful: SmallFleet, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(series, "MOST_SUMMED", 59)
    html = html_of(viewer.get(path))
    assert 'id="timeline"' not in html
    assert "too many to sum up at once" in text_of(html)
    assert "What happened in the last 24 h" in text_of(html)
    assert "data-at=" in html
    monkeypatch.setattr(series, "MOST_SUMMED", 60)
    html = html_of(viewer.get(path))
    assert 'id="timeline"' in html
    assert "too many to sum up" not in html
    assert "What happened in the last 1 h" in text_of(html)


def test_storage_has_no_chart_and_tells_what_happened_there_all_the_same(
    viewer: Client, small: SmallFleet
) -> None:
    StorageEndpoint.objects.create(site=small.sites["oslo"], name="nvme")
    snapshot.invalidate()
    restrict(RestrictionKind.DRAIN, Scope(ScopeKind.SITE, "oslo"))
    text = text_of(html_of(viewer.get("/places/storage/oslo/nvme/")))
    assert "What happened in the last 24 h" in text
    assert "drain on site oslo issued" in text
    assert "What it is committed to" not in text


# --- What is ahead -------------------------------------------------------------------------------


def ahead_of(client: Client, place: str) -> dict[str, dict[str, Any]]:
    answer = client.get(f"/live/places/{place}/ahead?table=ahead&format=json")
    assert answer.status_code == 200, answer.content
    return {row["when"]: row for row in answer.json()["rows"]}


@pytest.mark.parametrize(
    ("place", "more_kw"),
    [("zone/oslo/hall-1", 1.0), ("rack/oslo/A01", 1.0), ("site/oslo", 1.0),
     # A rack on two feeds draws half from each.
     ("power_domain/oslo/feed-a1", 0.5), ("power_domain/oslo/feed-b1", 0.5),
     ("rack/oslo/A02", 0.0), ("site/bergen", 0.0)],
)  # fmt: skip
def test_what_is_booked_is_ahead_of_each_place_that_feeds_it(
    viewer: Client, small: SmallFleet, place: str, more_kw: float
) -> None:
    small.report()
    now = timezone.now()
    Booking.objects.create(
        project=make_project("vision"), scope_kind="rack", scope_name="oslo/A01",
        nodes=["oslo-a01-n1", "oslo-a01-n2"], gpus=8, starts_at=now + timedelta(hours=3),
        ends_at=now + timedelta(hours=4), reason="", made_by="ann", made_at=now,
    )  # fmt: skip
    found = ahead_of(viewer, place)
    assert list(found) == ["now", "within 1 h", "within 6 h", "within 24 h", "within 7 d"]
    at_most = {when: row["committed_at_most_kw"] for when, row in found.items()}
    assert at_most["now"] == at_most["within 1 h"]
    rose = at_most["within 6 h"] - at_most["now"]
    # Two hosts of four GPUs, from idle to what they are rated for.
    whole_kw = 2 * (4 * (0.7 - 0.07) + 0.001 * (HOST_RATED_W - HOST_IDLE_W))
    assert rose == pytest.approx(more_kw * whole_kw, abs=1e-6)
    assert at_most["within 7 d"] == at_most["within 6 h"]
    row = found["within 6 h"]
    assert row["left_kw"] == pytest.approx(row["budget_kw"] - row["committed_at_most_kw"])


def test_a_link_is_ahead_in_bits_and_says_nothing_where_its_load_is_not_known(
    viewer: Client, small: SmallFleet
) -> None:
    link = "oslo/A01/uplink"
    silent = ahead_of(viewer, f"link/{link}")["now"]
    assert silent["committed_at_most"] is None
    assert silent["left"] is None
    small.report(links={link: 5e9})
    moments.invalidate()
    known = ahead_of(viewer, f"link/{link}")["within 7 d"]
    assert known["committed_at_most_bit_per_s"] == 40e9
    assert known["left_bit_per_s"] == small.links[link].capacity_bits_per_s - 40e9
