"""The page of one job: why it waits and what would start it, where it runs, and what people do."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import AuditEntry
from accounts.roles import Role
from admission.core.cycle.never import Never
from admission.core.reasons import Reason, ReasonToken
from admission.executors.models import Gang, LogPart, NodeAssignment
from admission.jobs.models import Attempt, Job, Phase, Project
from admission.learned.models import Draw, StartForecast, Throughput
from admission.queue.queue_status import TraceLine
from dashboard import job_log, jobs
from fleet.models import Site
from tests.builders.accounts import client_of, make_user
from tests.builders.checkpoints import make_fact
from tests.builders.fleet import SmallFleet
from tests.builders.jobs import (
    CAPPED,
    MOVED,
    make_attempt,
    make_directive,
    make_explanation,
    make_job,
    make_pending_status,
    make_reason,
    note,
    put_up,
)
from tests.html import html_of
from tests.integration.dashboard.test_throttle_page import text_of

URL = "/jobs/llama-ft-12/"
NEVER = Reason(ReasonToken.RACK_POWER, 92e3, 40e3, "W", None, "needs 92 kW, which has 40 kW")
HOSTILE = '<script>alert("x")</script>' + "n" * 173


@pytest.fixture(autouse=True)
def fleet(small: SmallFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(key: str) -> None:
        raise KeyError(key)

    monkeypatch.setattr("admission.cycle.live.explain", nothing)


@pytest.fixture
def explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cap and another site would start it now."""
    monkeypatch.setattr(
        "admission.cycle.live.explain", lambda key: make_explanation(key, CAPPED, MOVED)
    )


@pytest.fixture
def operator() -> Client:
    return client_of(Role.OPERATOR)


def opened(client: Client, path: str = URL, status: int = 200) -> str:
    response = client.get(path)
    assert response.status_code == status
    return html_of(response)


def do(client: Client, verb: str, query: str = "", **given: Any) -> str:
    """Ask for something, and return the text of the page that follows."""
    return text_of(html_of(client.post(f"{URL}{verb}{query}", given, follow=True)))


class TestWhoSees:
    def test_nobody_without_logging_in(self, client: Client) -> None:
        make_job()
        for path in (URL, "/live/jobs/llama-ft-12", "/live/jobs/llama-ft-12/why"):
            assert client.get(path).status_code == 302
        assert client.post(f"{URL}hold").status_code == 302

    def test_a_job_of_another_project_is_not_there(self) -> None:
        make_job()
        opened(client_of(Role.ML_USER), status=404)

    def test_a_job_or_phase_that_is_not_there_is_none(self, viewer: Client) -> None:
        make_job()
        opened(viewer, "/jobs/none/", 404)
        opened(viewer, f"{URL}?phase=none%7F", 404)

    def test_the_search_finds_it_for_those_alone(self, viewer: Client) -> None:
        make_job()
        assert viewer.get("/search?q=llama-ft-12")["Location"] == URL
        assert "llama-ft-12</a>" not in opened(client_of(Role.ML_USER), "/search?q=llama")
        assert "llama-ft-12</a>" in opened(viewer, "/search?q=llama")

    def test_command_and_environment_are_for_the_project_alone(self, operator: Client) -> None:
        make_job()
        user = make_user(Role.ML_USER)
        Project.objects.get().members.add(user)
        member = Client()
        member.force_login(user)
        assert "SECRET_PATH" in opened(member)
        assert "SECRET_PATH" not in opened(operator)
        assert "Reproduce this run" not in opened(operator)

    def test_who_may_not_change_it_has_no_forms(self, viewer: Client, explained: None) -> None:
        make_job()
        put_up({"llama-ft-12/train": make_pending_status(1)})
        html = opened(viewer)
        assert "at 550 W per GPU" in html
        assert 'name="change"' not in html
        assert 'id="do-title"' not in html
        assert viewer.post(f"{URL}hold", {"reason": "x"}).status_code == 403


class TestWaiting:
    def test_the_answer_is_its_reason_in_numbers(self, viewer: Client) -> None:
        make_job()
        put_up({"other/train": make_pending_status(1), "llama-ft-12/train": make_pending_status(2)})
        text = text_of(opened(viewer))
        assert (
            "llama-ft-12 is waiting 38 min: needs 41.2 kW on feed oslo/feed-b1, which has 36.8 kW:"
            " short 4.4 kW" in text
        )
        assert "position 2 of 2" in text
        assert "Likely to start in 18\N{EN DASH}35 min (with 80 % confidence)" in text

    def test_what_would_start_it_is_offered_and_applied(
        self, operator: Client, explained: None
    ) -> None:
        job = make_job()
        put_up({"llama-ft-12/train": make_pending_status(1)})
        html = opened(operator)
        text = text_of(html)
        assert "Starts now at 550 W per GPU (4 % slower) on 8 GPUs on 1 rack" in text
        assert "Likely to start in 18\N{EN DASH}35 min" in text
        values = re.findall(r'name="change" value="([^"]+)"', html)
        changes = [json.loads(value.replace("&quot;", '"')) for value in values]
        assert changes == [{"lowest_cap_w": 550.0, "max_slowdown": 0.05}, {"sites": ["bergen"]}]
        text = do(operator, "apply", "?phase=train", change=json.dumps(changes[0]))
        assert "llama-ft-12/train is amended" in text
        assert "amended 1 time" in text
        job.refresh_from_db()
        assert job.spec["phases"][0]["power"] == {"lowest_cap_w": 550.0}
        assert job.revisions.get().number == 1
        assert AuditEntry.objects.filter(action="job.amend", target="llama-ft-12").exists()

    def test_what_can_never_start_says_so_and_what_would_make_it_possible(
        self, operator: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make_job()
        why = "needs 92 kW on rack oslo/A01, which has 40 kW: short 52 kW"
        put_up({"llama-ft-12/train": make_pending_status(1, p10_s=None, p90_s=None, never=why)})
        way = CAPPED[0], "can start at 550 W per GPU (4 % slower)"
        found = make_explanation("llama-ft-12/train", way)
        told = replace(found, counterfactuals=(), never=Never(NEVER, found.counterfactuals))
        monkeypatch.setattr("admission.cycle.live.explain", lambda key: told)
        html = opened(operator)
        text = text_of(html)
        assert f"It never starts as it is, were the fleet all its own: {why}" in text
        assert "ikely to start" not in text
        assert "Never starts as it is, but could at 550 W per GPU (4 % slower)" in text
        (value,) = re.findall(r'name="change" value="([^"]+)"', html)
        do(operator, "apply", "?phase=train", change=value.replace("&quot;", '"'))
        assert Job.objects.get().spec["phases"][0]["power"] == {"lowest_cap_w": 550.0}

    @pytest.mark.parametrize("change", ["", "{", "[]", '{"lowest_cap_w": -5}', '{"gpus": "x"}'])
    def test_a_change_that_is_none_is_refused(self, operator: Client, change: str) -> None:
        job = make_job()
        response = operator.post(f"{URL}apply", {"change": change})
        assert response.status_code == 400
        assert "Nothing has been done." in html_of(response)
        job.refresh_from_db()
        assert job.revision == 1

    def test_without_a_fix_it_says_so(self, viewer: Client) -> None:
        make_job(reason="")
        assert "No cycle has looked at it yet" in text_of(opened(viewer))
        Phase.objects.update(reason="GpuShortage")
        put_up({"llama-ft-12/train": make_pending_status(1)})
        assert "Nothing that was tried" in text_of(opened(viewer))

    def test_every_constraint_and_each_step_of_the_decision_are_told(self, viewer: Client) -> None:
        make_job()
        short = make_reason(
            ReasonToken.GPU_SHORTAGE, unit="GPUs", need=16, have=4, scope=None, sentence="few GPUs",
            evidence={"restrictions": [3, 7]},
        )  # fmt: skip
        trace = (TraceLine("quota", True, "8 of 64"), TraceLine("placement", False, "no room"))
        put_up({"llama-ft-12/train": make_pending_status(1, make_reason(), short, trace=trace)})
        html = opened(viewer)
        text = text_of(html)
        assert "GpuShortage 16 GPUs 4 GPUs 12 GPUs" in text
        assert "FeedPowerHeadroom 41.2 kW 36.8 kW 4.4 kW power domain oslo/feed-b1" in text
        assert "restrictions 3, 7" in text
        # By precedence, not as they came.
        assert text.index("few GPUs") < text.index("needs 41.2 kW on feed", text.index("Every"))
        assert re.findall(r'<li class="(passed|stopped)">', html) == ["passed", "stopped"]

    def test_what_is_ahead_of_it_is_told_without_the_names_of_others(self) -> None:
        make_job("first", project="speech")
        make_job("second")
        make_job()
        user = make_user(Role.ML_USER)
        Project.objects.get(name="vision").members.add(user)
        client = Client()
        client.force_login(user)
        put_up({f"{n}/train": make_pending_status(i + 1)
                for i, n in enumerate(("first", "second", "llama-ft-12"))})  # fmt: skip
        html = opened(client)
        assert "1 a job of another project FeedPowerHeadroom" in text_of(html)
        assert "/jobs/second/?phase=train" in html
        assert "first/train" not in html

    def test_the_history_of_its_reasons_says_how_long_each_was_it(self, viewer: Client) -> None:
        job, now = make_job(), timezone.now()
        for ago_min, token in ((30, "GpuShortage"), (20, "FeedPowerHeadroom")):
            note(job, "reason", f"because of {token}", phase="train", token=token,
                 at=now - timedelta(minutes=ago_min))  # fmt: skip
        text = text_of(opened(viewer))
        assert re.search(r"10 min GpuShortage because of GpuShortage", text)
        assert re.search(r"now FeedPowerHeadroom because of FeedPowerHeadroom", text)

    def test_how_many_estimates_came_true_is_told_once_there_are_enough(
        self, viewer: Client
    ) -> None:
        job, now = make_job(), timezone.now()
        put_up({"llama-ft-12/train": make_pending_status(1)})
        StartForecast.objects.bulk_create(
            StartForecast(phase=job.phases.get(), made_at=now - timedelta(hours=n), p10_s=10.0,
                          p50_s=20.0, p90_s=30.0, began_s=15.0 if n < 18 else 99.0)
            for n in range(20)
        )  # fmt: skip
        assert "90 % of 20 such estimates of the last week came true" in text_of(opened(viewer))

    def test_one_that_is_held_says_by_whom_and_why(self, viewer: Client) -> None:
        make_job()
        Phase.objects.update(held_by="eva", hold_reason="wrong data")
        text = text_of(opened(viewer))
        assert "llama-ft-12 is on hold, waiting 38 min: eva, wrong data" in text

    def test_one_behind_another_leads_there(self, viewer: Client) -> None:
        make_job(phases={"load": (), "train": ("load",)})
        html = opened(viewer, f"{URL}?phase=train")
        assert "phase train waits for load to succeed" in text_of(html)
        assert 'id="needs-load" href="?phase=load"' in html

    def test_the_page_is_made_anew_once_it_has_begun(self, viewer: Client) -> None:
        make_job(state="running")
        for panel in ("why", "fixes"):
            response = viewer.get(f"/live/jobs/llama-ft-12/{panel}")
            assert (response.status_code, response["HX-Refresh"]) == (204, "true")


class TestRunning:
    @pytest.fixture
    def attempt(self, small: SmallFleet) -> Attempt:
        small.report()
        job = make_job(state="running", waited=timedelta(minutes=11))
        held = {"oslo-a01-n1": range(4), "oslo-a02-n1": [0, 2]}
        warnings = {"warnings": ["communication takes longer than computing (ring over rail)"]}
        return make_attempt(
            job.phases.get(), held, racks=["oslo/A01", "oslo/A02"],
            placement={"slowdown": 0.04, "locality": "ZONE", "comm_ratio": 1.2, **warnings},
        )  # fmt: skip

    def test_the_answer_is_where_and_under_what_cap(self, viewer: Client, attempt: Attempt) -> None:
        Phase.objects.update(expected_end_at=timezone.now() + timedelta(hours=2, seconds=9))
        text = text_of(opened(viewer))
        assert (
            "llama-ft-12 runs on 6 GPUs in oslo, capped at 550 W per GPU (4 % slower),"
            " for 9 min · likely to end in 2 h" in text
        )
        assert "communication takes longer than computing" in text

    def test_what_an_elastic_one_did_at_each_size_is_told(
        self, viewer: Client, attempt: Attempt
    ) -> None:
        for gpus, per_s in ((1, 312.0), (8, 620.0)):
            Throughput.objects.create(
                phase=attempt.phase, gpus=gpus, unit="samples", per_s=per_s, for_s=600.0,
                seen_at=timezone.now(),
            )  # fmt: skip
        told = text_of(opened(viewer))
        assert "Measured: 312 samples/s on 1 GPU over 10 min, 620 samples/s on 8 GPUs" in told

    def test_it_is_drawn_on_the_map_of_racks(self, viewer: Client, attempt: Attempt) -> None:
        html = opened(viewer)
        assert re.findall(r"<b>(A\d\d)</b><span>(\d GPUs)</span>", html) == [
            ("A01", "4 GPUs"),
            ("A02", "2 GPUs"),
        ]
        assert html.count('class="cell away"') == 4
        text = text_of(html)
        assert "6 on 2 nodes in 2 racks" in text
        assert "6.0 kW, hosts included" in text
        assert "one zone" in text
        assert 'aria-label="GPUs 0, 2 of oslo-a02-n1"' in html

    def test_what_it_draws_is_set_against_what_it_reserved(
        self, viewer: Client, attempt: Attempt
    ) -> None:
        Draw.objects.create(
            attempt=attempt, project=attempt.phase.job.project, seconds=b"", seen_at=timezone.now(),
            p99_w=[450.0, 500.0], read_s=[300.0, 400.0],
        )  # fmt: skip
        assert "2.8 kW over 6 min" in text_of(opened(viewer))

    def test_its_chart_asks_for_the_attempt_that_is_shown(
        self, viewer: Client, attempt: Attempt
    ) -> None:
        html = opened(viewer, f"{URL}?range=1h&attempt=1&zone=local&compare=before")
        figure = "/api/v1/jobs/llama-ft-12/timeline?phase=train&amp;attempt=1"
        assert f'data-figure="{figure}"' in html
        assert 'data-query="range=1h"' in html
        assert f'href="{figure}&amp;format=csv&amp;points=5000&amp;range=1h"' in html
        # Links of the picker keep what else is chosen.
        assert 'href="?range=6h&amp;attempt=1&amp;zone=local&amp;compare=before"' in html
        assert 'href="?range=1h&amp;attempt=1&amp;compare=before"' in html

    def test_a_range_that_is_none_is_said_with_its_field(
        self, viewer: Client, attempt: Attempt
    ) -> None:
        assert "zone: give one of utc, local" in text_of(opened(viewer, f"{URL}?zone=mars", 400))
        assert "range: " in text_of(opened(viewer, f"{URL}?range=soon", 400))

    def test_the_ledger_tells_each_step_of_what_it_was_told(
        self, viewer: Client, attempt: Attempt
    ) -> None:
        make_directive(attempt)
        text = text_of(opened(viewer))
        assert "75 % of the batch holds response" in text
        assert "issued \N{RIGHTWARDS ARROW} acknowledged +2 s" in text
        assert "5.8 kW less within 40 s" in text

    def test_where_its_checkpoints_are_and_how_far_the_other_site_is_behind(
        self, viewer: Client, attempt: Attempt
    ) -> None:
        Attempt.objects.update(checkpoint_at=timezone.now() - timedelta(minutes=5))
        assert "5 min ago declared, not verified" in text_of(opened(viewer))
        assert "Where its checkpoints are" not in opened(viewer)
        oslo, bergen = (Site.objects.get_or_create(name=name)[0] for name in ("oslo", "bergen"))
        make_fact("llama-ft-12", oslo, step=1200, saved_s_ago=300)
        lag = {"lag_checkpoints": 1, "lag_bytes": 10**9}
        nothing: dict[str, Any] = {
            "step": None,
            "saved_at": None,
            "verified_at": None,
            "bytes": None,
        }
        make_fact("llama-ft-12", bergen, **lag, **nothing)
        text = text_of(opened(viewer))
        assert "5 min ago verified" in text
        assert "oslo step 1,200 of nanogpt, saved 5 min ago, verified 5 min ago 0.9" in text
        assert "bergen none of nanogpt" in text
        assert "1 checkpoint and 1 GB behind, with nothing to resume from" in text

    def test_an_earlier_attempt_can_be_looked_at(self, viewer: Client, attempt: Attempt) -> None:
        Attempt.objects.update(
            state=Attempt.State.ENDED, outcome="lost", why="node is silent",
            ended_at=timezone.now(), energy_j=4.5e6, energy_share=0.97,
        )  # fmt: skip
        make_attempt(attempt.phase, {"oslo-b01-n1": range(4)}, racks=["oslo/B01"])
        html = opened(viewer)
        assert "<b>B01</b>" in html
        assert "energy of its GPUs" not in html
        html = opened(viewer, f"{URL}?phase=train&attempt=1")
        assert "Where attempt 1 stood" in html
        assert "<b>A01</b>" in html
        assert "energy of its GPUs 1,250 Wh 97 % of the time read" in text_of(html)


class TestLog:
    """What a job says, for its project and for operators alone."""

    @pytest.fixture
    def parts(self) -> list[NodeAssignment]:
        """Return the parts of a gang whose second rank has failed."""
        job = make_job(state="failed")
        Job.objects.update(state=Job.State.FAILED)
        attempt = make_attempt(
            job.phases.get(), {"oslo-a01-n1": [0], "oslo-a02-n1": [0]}, state="ended",
            outcome="failed", exit_code=3, why="exit code 3", ended_at=timezone.now(),
        )  # fmt: skip
        now = timezone.now()
        gang = Gang.objects.create(
            key=attempt.key, executor="local", work={}, offered_at=now, go_at=now, ended_at=now
        )
        return [
            NodeAssignment.objects.create(
                gang=gang, node_id=rank, node=f"oslo-a0{rank + 1}-n1", rank=rank, gpus_of_node=4,
                state="ended", outcome=outcome, exit_code=code, store="s", log_told_at=now,
                ended_at=now - timedelta(seconds=rank), log_tail=f"tail of {rank}\n",
            )
            for rank, outcome, code in ((0, "stopped", 143), (1, "exited", 3))
        ]  # fmt: skip

    def said(self, part: NodeAssignment, data: bytes) -> None:
        LogPart.objects.create(assignment=part, start=0, size=len(data), data=data)
        NodeAssignment.objects.filter(pk=part.pk).update(log_first=0, log_size=len(data))

    def test_the_end_of_the_rank_that_failed_first_stands_under_the_reason(
        self, operator: Client, parts: list[NodeAssignment]
    ) -> None:
        self.said(parts[1], b"step 1\nValueError: no such corpus\n")
        html = opened(operator)
        text = text_of(html)
        assert "attempt 1, rank 1 of 2, on oslo-a02-n1" in text
        assert "ValueError: no such corpus" in text
        assert html.index('id="job-answer"') < html.index('id="job-log"') < html.index("job-panel")
        assert 'hx-get="/live/jobs/llama-ft-12/log' not in html  # nothing more will come
        assert "tail of 0" in text_of(opened(operator, f"{URL}?rank=0"))
        opened(operator, f"{URL}?rank=7", status=404)

    def test_hostile_output_stays_text(self, operator: Client, parts: list[NodeAssignment]) -> None:
        self.said(
            parts[1],
            b"x" * 60_000 + b"\n\x1b[31mred\x1b[0m </pre><script>alert(1)</script>\n 10%\r 20%\r\n"
            b"\0\x08 \xff" + "\N{RIGHT-TO-LEFT OVERRIDE}txt".encode(),
        )  # fmt: skip
        html = opened(operator)
        assert "<script>alert" not in html
        assert "red &lt;/pre&gt;&lt;script&gt;alert(1)" in html
        assert re.search(r"alert\(1\)&lt;/script&gt;\s+20%\s", html)  # not the 10 % before it
        assert "⟨U+0000⟩⟨U+0008⟩ \\xff⟨U+202E⟩txt" in html
        assert 16_000 < html.count("x") < 20_000
        assert "headroom logs --all --phase train --attempt 1 --rank 1 llama-ft-12" in text_of(html)

    def test_who_may_not_end_the_job_sees_none_of_it(
        self, viewer: Client, parts: list[NodeAssignment]
    ) -> None:
        assert "tail of" not in opened(viewer)
        assert viewer.get("/live/jobs/llama-ft-12/log").status_code == 404
        assert client_of(Role.ML_USER).get("/live/jobs/llama-ft-12/log").status_code == 404

    def test_while_it_runs_it_is_asked_for_and_polled(
        self, operator: Client, parts: list[NodeAssignment]
    ) -> None:
        Attempt.objects.update(state="running", outcome="", ended_at=None)
        Phase.objects.update(state="running")
        Job.objects.update(state="running")
        NodeAssignment.objects.update(state="running", log_told_at=None, log_tail="")
        html = opened(operator)
        assert "Its machine is asked." in text_of(html)
        assert NodeAssignment.objects.get(rank=0).log_asked_from == -1
        (poll,) = re.findall(r'hx-get="(/live/jobs/llama-ft-12/log[^"]*)"', html)
        assert operator.get(poll.replace("&amp;", "&")).status_code == 204
        NodeAssignment.objects.update(log_told_at=timezone.now())
        self.said(parts[0], b"step 1\n")
        assert "step 1" in opened(operator, poll.replace("&amp;", "&"))


def test_of_output_that_was_written_over_the_last_is_shown() -> None:
    said = "\x1b[1;31mred\x1b[0m\n 10%\r 20%\r 30%\r\nend\x1b]0;title\x07\x1b[2J\0"
    assert job_log.readable(said) == "red\n 30%\nend⟨U+0000⟩"


class TestOver:
    def test_a_failure_is_told_with_its_exit_code(self, viewer: Client) -> None:
        job = make_job(state="failed")
        Phase.objects.update(
            started_at=timezone.now() - timedelta(minutes=9),
            ended_at=timezone.now() - timedelta(minutes=4),
        )
        make_attempt(job.phases.get(), {"oslo-a01-n1": [0]}, state="ended", outcome="failed",
                     exit_code=137, why="out of memory", ended_at=timezone.now())  # fmt: skip
        text = text_of(opened(viewer))
        assert "has failed after 5 min with exit code 137: out of memory" in text

    def test_a_job_that_is_over_cannot_be_changed(self, operator: Client) -> None:
        make_job(state="succeeded")
        Job.objects.update(state=Job.State.SUCCEEDED)
        assert 'id="do-title"' not in opened(operator)
        assert "the job is over" in do(operator, "cancel", reason="late")


class TestPhases:
    GRAPH = {"load": (), "train": ("load",), "evaluate": ("train",), "ship": ("train", "evaluate")}

    def test_they_are_a_graph_of_links(self, viewer: Client) -> None:
        make_job(phases=self.GRAPH)
        html = opened(viewer)
        found = re.findall(r'<a id="phase-(\w+)" class="phase phase-(\w+)" href="([^"]+)"', html)
        assert [name for name, _, _ in found] == list(self.GRAPH)
        assert found[0][1:] == ("queued", "?phase=load")
        assert found[3][1:] == ("later", "?phase=ship")
        assert html.count("phase-line") == 4

    def test_it_opens_with_what_runs_then_what_could(self, viewer: Client) -> None:
        job = make_job(phases=self.GRAPH)
        assert jobs.chosen(list(job.phases.all()), "").name == "load"  # type: ignore[union-attr]
        job.phases.filter(name="load").update(state="succeeded")
        job.phases.filter(name="train").update(state="running")
        job.phases.filter(name="evaluate").update(state="queued", queued_at=timezone.now())
        assert jobs.chosen(list(job.phases.all()), "").name == "train"  # type: ignore[union-attr]
        assert "phase train runs" in text_of(opened(viewer))

    def test_a_job_of_one_phase_has_no_graph(self, viewer: Client) -> None:
        make_job()
        assert 'svg class="phases"' not in opened(viewer)


class TestWhatPeopleDo:
    def test_it_is_held_and_let_go_again(self, operator: Client) -> None:
        job = make_job()
        assert "llama-ft-12 is on hold" in do(operator, "hold", reason="wrong data")
        assert job.phases.get().hold_reason == "wrong data"
        assert "is in the queue again" in do(operator, "release")
        assert job.phases.get().held_by == ""

    def test_it_is_cancelled_with_a_reason(self, operator: Client) -> None:
        job = make_job()
        assert "llama-ft-12 is cancelled" in do(operator, "cancel", reason="not needed")
        assert job.phases.get().state == "cancelled"
        assert "not needed" in job.events.get(kind="cancelled").text

    def test_its_priority_is_changed(self, operator: Client) -> None:
        make_job()
        assert "has priority 5" in do(operator, "priority", priority="5")
        assert operator.post(f"{URL}priority", {"priority": "x"}).status_code == 400

    def test_what_cannot_be_done_is_said(self, operator: Client) -> None:
        make_job()
        assert "none of its phases is held" in do(operator, "release")
        assert operator.post(f"{URL}explode").status_code == 404
        assert operator.get(f"{URL}hold").status_code == 405

    def test_a_member_changes_the_own_jobs_only(self) -> None:
        job = make_job()
        user = make_user(Role.ML_USER)
        client = Client()
        client.force_login(user)
        assert client.post(f"{URL}hold", {"reason": "x"}).status_code == 404
        job.project.members.add(user)
        assert "is on hold" in do(client, "hold", reason="x")


def test_polls_answer_nothing_while_nothing_changed(viewer: Client, explained: None) -> None:
    job = make_job()
    put_up({"llama-ft-12/train": make_pending_status(1)})
    paths = []
    # The diagnosis is asked for by a click, and has no version.
    for path in re.findall(r'hx-get="(/live/jobs/[^"?]+[?][^"]+)"', opened(viewer)):
        (again,) = re.findall(r'hx-get="(/live/jobs/[^"]+)"', opened(viewer, path.split("?")[0]))
        paths.append(again.replace("&amp;", "&"))
        assert viewer.get(paths[-1]).status_code == 204
    assert len(paths) == 3
    note(job, "amended", "capped at 500 W")
    (changed,) = [path for path in paths if "llama-ft-12?" in path]
    html = opened(viewer, changed)
    assert 'id="job-answer" hx-swap-oob="true"' in html


def test_names_are_escaped(viewer: Client) -> None:
    job = make_job(submitted_by=HOSTILE, project=HOSTILE[:60], labels={HOSTILE: HOSTILE})
    Phase.objects.update(held_by=HOSTILE, hold_reason=HOSTILE)
    note(job, "x", HOSTILE)
    put_up({"llama-ft-12/train": make_pending_status(1, make_reason(sentence=HOSTILE))})
    html = opened(viewer)
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html
