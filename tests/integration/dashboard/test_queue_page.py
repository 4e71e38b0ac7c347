"""The Queue page: what waits, why, in which order, and who may see what of it."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.roles import Role
from admission.core.cycle.change import Counterfactual
from admission.core.reasons import ReasonToken
from admission.jobs.models import Attempt, Phase, Project
from admission.queue import queue_status
from dashboard import fixes, state
from tests.builders.accounts import client_of, make_user
from tests.builders.fleet import SmallFleet
from tests.builders.jobs import (
    CAPPED,
    make_attempt,
    make_explanation,
    make_job,
    make_pending_status,
    make_reason,
    put_up,
)
from tests.html import html_of
from tests.integration.dashboard.test_throttle_page import text_of

URL = "/queue/"
HOSTILE = '<script>alert("x")</script>' + "n" * 173


@pytest.fixture
def waiting(small: SmallFleet) -> None:
    """Three jobs, of which the last cycle put the youngest first."""
    make_job("old", waited=timedelta(minutes=38), reason="FeedPowerHeadroom")
    make_job("held", waited=timedelta(minutes=5), reason="OnHold", project="speech")
    Phase.objects.filter(job__name="held").update(held_by="eva", hold_reason="wrong data")
    make_job("young", waited=timedelta(minutes=2), reason="GpuShortage", gpus=16)
    short = make_reason(ReasonToken.GPU_SHORTAGE, unit="GPUs", need=16, have=4, scope=None)
    put_up(
        {
            "young/train": make_pending_status(1, short),
            "old/train": make_pending_status(2),
            "held/train": make_pending_status(
                3, make_reason(ReasonToken.ON_HOLD, unit="", sentence="eva holds it")
            ),
        }
    )


def opened(client: Client, path: str = URL, status: int = 200) -> str:
    response = client.get(path)
    assert response.status_code == status
    return html_of(response)


def names_of(html: str) -> list[str]:
    return re.findall(r'id="phase-\d+" href="/jobs/[^"]+" title="([^"]+)/train"', html)


def test_nobody_sees_it_without_logging_in(client: Client, db: None) -> None:
    for path in (URL, "/live/queue", "/live/queue/fixes", "/classes/"):
        assert client.get(path).status_code == 302


def test_without_any_it_says_how_to_submit_one(viewer: Client) -> None:
    text = text_of(opened(viewer))
    assert "Nothing waits · nothing runs" in text
    assert "headroom submit --server" in text


def test_the_answer_is_how_many_and_why_the_oldest_waits(viewer: Client, waiting: None) -> None:
    text = text_of(opened(viewer))
    assert "3 waiting, oldest 38 min: FeedPowerHeadroom · nothing runs" in text
    assert "32 GPUs asked for · 1 on hold" in text
    assert "decided anew every 2 s" in text


def test_rows_are_in_the_order_of_the_cycle_with_their_reason_and_range(
    viewer: Client, waiting: None
) -> None:
    make_job("newest", waited=timedelta(seconds=1), reason="")
    html = opened(viewer)
    assert names_of(html) == ["young", "old", "held", "newest"]
    text = text_of(html)
    assert "2 old/train FeedPowerHeadroom needs 41.2 kW on feed oslo/feed-b1" in text
    assert "18\N{EN DASH}35 min" in text
    assert "newest/train not looked at yet" in text
    assert 'title="eva: wrong data">held' in html


def test_filters_are_in_the_url(viewer: Client, waiting: None) -> None:
    make_job("abroad", job_class="checkpoint-heavy", asks={"sites": ("bergen",)})
    found = {
        "?reason=GpuShortage": ["young"],
        "?class=checkpoint-heavy": ["abroad"],
        "?project=speech": ["held"],
        "?site=oslo": ["young", "old", "held"],
        "?search=OL": ["old"],
        "?state=running": [],
    }
    for query, wanted in found.items():
        assert names_of(opened(viewer, URL + query)) == wanted, query
    text = text_of(opened(viewer, f"{URL}?search=nothing"))
    assert "None passes these filters" in text


def test_the_reasons_are_counted_and_lead_to_their_list(viewer: Client, waiting: None) -> None:
    make_job("other", reason="FeedPowerHeadroom")
    html = opened(viewer, f"{URL}?project=vision")
    found = re.findall(r'id="reason-(\w+)" href="([^"]+)"', html)
    assert [token for token, _ in found] == ["FeedPowerHeadroom", "GpuShortage"]
    assert found[0][1] == "?project=vision&amp;reason=FeedPowerHeadroom"
    chosen = opened(viewer, f"{URL}?project=vision&reason=GpuShortage")
    assert 'id="reason-GpuShortage" href="?project=vision"' in chosen
    assert names_of(chosen) == ["young"]


def test_a_filter_that_is_none_is_told_and_left_out(viewer: Client, waiting: None) -> None:
    html = opened(viewer, f"{URL}?state=happy&reason=zzz", 400)
    assert "there is no state &#x27;happy&#x27;, there is no reason &#x27;zzz&#x27;" in html
    assert len(names_of(html)) == 3


def test_a_status_that_is_old_or_lost_is_told(viewer: Client, waiting: None) -> None:
    put_up({"old/train": make_pending_status(1)}, ago_s=40.0)
    text = text_of(opened(viewer))
    said = r"The last cycle was 4\d s ago: positions, reasons and estimates are of then"
    assert re.search(said, text)
    queue_status.forget()
    html = opened(viewer)
    assert "No cycle has run of late" in text_of(html)
    assert names_of(html) == ["old", "held", "young"]


def test_what_a_cycle_did_without_is_told(viewer: Client, waiting: None) -> None:
    put_up({}, failed=("estimates",))
    assert "The last cycle did without: estimates." in text_of(opened(viewer))


def test_what_runs_says_where_under_what_cap_and_since_when(
    viewer: Client, waiting: None, small: SmallFleet
) -> None:
    job = make_job("busy", state="running", waited=timedelta(minutes=12))
    phase = job.phases.get()
    held = {"oslo-a01-n1": range(4), "oslo-a01-n2": range(2)}
    make_attempt(phase, held, racks=["oslo/A01"])
    Phase.objects.update(expected_end_at=timezone.now() + timedelta(hours=2, seconds=5))
    html = opened(viewer, f"{URL}?state=running")
    assert names_of(html) == ["busy"]
    text = text_of(html)
    assert "busy/train ▶ running 6 2 oslo 6.0 550 12 min 2 h" in text
    assert "1 running on 8 of 96 GPUs" in text
    assert names_of(opened(viewer, f"{URL}?state=running&site=bergen")) == []
    assert names_of(opened(viewer, f"{URL}?state=running&site=oslo")) == ["busy"]


def test_what_waits_for_a_phase_of_its_job_has_a_list_of_its_own(
    viewer: Client, small: SmallFleet
) -> None:
    make_job("pipeline", phases={"load": (), "train": ("load",)})
    html = opened(viewer, f"{URL}?state=waiting")
    assert names_of(html) == ["pipeline"]
    assert "1 phase behind others" in text_of(html)


def test_what_has_ended_says_how_and_what_was_lost(viewer: Client, small: SmallFleet) -> None:
    job = make_job("gone", state="failed")
    now = timezone.now()
    make_attempt(
        job.phases.get(), {"oslo-a01-n1": [0]}, racks=["oslo/A01"], state=Attempt.State.ENDED,
        outcome="lost", why="node oslo-a01-n1 is silent", ended_at=now, lost_gpu_s=7200.0,
    )  # fmt: skip
    make_attempt(
        make_job("before").phases.get(), {}, state=Attempt.State.ENDED, outcome="succeeded",
        ended_at=now - timedelta(days=2),
    )  # fmt: skip
    text = text_of(opened(viewer, f"{URL}?state=ended"))
    assert "gone/train ✕ lost node oslo-a01-n1 is silent" in text
    assert " 2.0 " in text
    assert "before/train" not in text


class TestOthers:
    """Who submits jobs sees those of the own projects; the others are counted, without a name."""

    @pytest.fixture
    def member(self, waiting: None) -> Client:
        user = make_user(Role.ML_USER)
        Project.objects.get(name="speech").members.add(user)
        client = Client()
        client.force_login(user)
        return client

    def test_jobs_of_others_have_no_name_and_no_sentence(self, member: Client) -> None:
        html = opened(member)
        assert names_of(html) == ["held"]
        assert html.count("a job of another project") == 2
        assert "3 waiting" in text_of(html)
        for secret in ("young", "old/train", "vision", "feed-b1"):
            assert secret not in html

    def test_filters_by_name_find_the_own_ones_only(self, member: Client) -> None:
        for query in ("?search=young", "?project=vision"):
            html = opened(member, URL + query)
            assert "a job of another project" not in html
            assert "Nothing waits" in text_of(html)
        assert names_of(opened(member, f"{URL}?search=held")) == ["held"]

    def test_what_ended_of_others_is_not_listed(self, member: Client) -> None:
        job = make_job("gone", state="failed")
        make_attempt(
            job.phases.get(), {}, state=Attempt.State.ENDED, outcome="failed",
            ended_at=timezone.now(),
        )  # fmt: skip
        assert "gone" not in opened(member, f"{URL}?state=ended")


class TestFixes:
    @pytest.fixture
    def asked(self, waiting: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """What was looked for; for "old" there is a fix."""
        asked: list[str] = []

        def look(keys: list[str], budget_s: float) -> dict[str, Counterfactual]:
            asked.extend(keys)
            found = make_explanation("old/train", CAPPED).counterfactuals[0]
            return {"old/train": found} if "old/train" in keys else {}

        monkeypatch.setattr("admission.cycle.live.fixes", look)
        # However slow the machine is.
        monkeypatch.setattr(fixes, "_BUDGET_S", 600.0)
        return asked

    def look(self, client: Client) -> None:
        response = client.get("/live/queue/fixes")
        assert (response.status_code, response["HX-Trigger"]) == (204, "headroom:visible")

    def test_they_are_looked_for_apart_and_kept(self, viewer: Client, asked: list[str]) -> None:
        assert 'hx-get="/live/queue/fixes?"' in opened(viewer)
        assert asked == []
        self.look(viewer)
        assert asked == ["young/train", "old/train", "held/train"]
        html = opened(viewer)
        assert ">at 550 W per GPU (4 % slower)</a>" in html
        assert html.count("nothing found") == 2
        assert "/live/queue/fixes" not in html
        self.look(viewer)
        assert len(asked) == 3

    def test_they_are_looked_for_again_after_a_while_and_shown_until_then(
        self, viewer: Client, asked: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.look(viewer)
        monkeypatch.setattr(fixes, "_DUE_S", 0.0)
        html = opened(viewer)
        assert "at 550 W per GPU" in html
        assert "/live/queue/fixes" in html

    def test_what_was_not_come_to_in_time_is_not_said_to_have_none(
        self, viewer: Client, asked: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(fixes, "_BUDGET_S", 0.0)
        self.look(viewer)
        assert asked == []
        assert "nothing found" not in opened(viewer)

    def test_only_the_first_rows_are_looked_for(self, viewer: Client, asked: list[str]) -> None:
        for number in range(fixes.ROWS + 3):
            make_job(f"more-{number}")
        self.look(viewer)
        assert len(asked) == fixes.ROWS


def test_a_poll_brings_the_answer_along_and_then_nothing(viewer: Client, waiting: None) -> None:
    html = opened(viewer, "/live/queue?project=vision")
    assert 'id="queue-answer" class="stack-gap" hx-swap-oob="true"' in html
    (path,) = re.findall(r'hx-get="(/live/queue\?[^"]+)"', html)
    path = path.replace("&amp;", "&")
    assert "project=vision" in path
    assert viewer.get(path).status_code == 204
    put_up({"old/train": make_pending_status(1)}, cycle=8)
    assert viewer.get(path).status_code == 200


def test_a_list_of_many_costs_the_same(
    viewer: Client, small: SmallFleet, django_assert_max_num_queries: Any
) -> None:
    for number in range(110):
        make_job(f"job-{number}")
    put_up({f"job-{number}/train": make_pending_status(number + 1) for number in range(110)})
    opened(viewer, "/classes/")  # the inventory is read by now
    with django_assert_max_num_queries(11):
        html = opened(viewer)
    assert len(names_of(html)) == 100
    assert "page=2" in html
    assert names_of(opened(viewer, f"{URL}?page=2")) == [f"job-{n}" for n in range(100, 110)]


def test_names_are_escaped_and_clipped(viewer: Client, small: SmallFleet) -> None:
    make_job("n" * 200, project=HOSTILE[:60], job_class=HOSTILE[:60])
    Phase.objects.update(held_by=HOSTILE, hold_reason=HOSTILE)
    html = opened(viewer)
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html


def test_the_fleet_page_says_it_in_a_line(viewer: Client, waiting: None) -> None:
    text = text_of(opened(viewer, "/"))
    assert "queue ( 3 waiting, oldest 2 min: FeedPowerHeadroom)" in text
    queue_status.forget()
    state.invalidate()
    assert "queue (no cycle has run)" in text_of(opened(viewer, "/live/fleet/panel"))


def test_responders_and_viewers_see_all_jobs(waiting: None) -> None:
    for role in (Role.RESPONDER, Role.OPERATOR):
        assert len(names_of(opened(client_of(role)))) == 3
