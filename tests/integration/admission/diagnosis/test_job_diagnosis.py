"""From a waiting, failed or slow job to what binds it, with the arithmetic and its evidence."""

from __future__ import annotations

import time
from typing import Any

import pytest

from accounts.roles import Role
from admission.jobs.models import Attempt
from fleet.models import Gpu
from telemetry.lemons.models import LemonFinding
from telemetry.models import ReportedJob
from telemetry.samples import JOB
from tests.builders.accounts import api_client, client_of
from tests.builders.jobs import make_attempt, make_job
from tests.builders.readings import write_samples
from tests.html import html_of
from tests.integration.admission.failures.scenes import at, end_job, two_nodes, xid

pytestmark = pytest.mark.django_db

URL = "/api/v1/jobs/llama/diagnosis"


@pytest.fixture(autouse=True)
def nodes(db: None) -> None:
    two_nodes()


def ask(role: Role = Role.OPERATOR) -> dict[str, Any]:
    answer = api_client(role).get(URL)
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


def constraints(found: dict[str, Any]) -> list[str]:
    return [each["constraint"] for each in found["found"]]


def runs(*, saves_every_s: float | None = 600.0, reports: bool = True, **told: float) -> Attempt:
    """Have a job of two GPUs run for an hour, and report each 10 s."""
    asks = {"checkpoint_interval_s": saves_every_s, "walltime_s": 240 * 3600.0}
    job = make_job("llama", gpus=2, state="running", asks=asks)
    row = make_attempt(
        job.phases.get(), {"n1": [0, 1]}, dispatched_at=at(1.0), started_at=at(1.0)
    )  # fmt: skip
    if reports:
        known = ReportedJob.objects.create(name="llama")
        times = [time.time() - 3590.0 + 10.0 * each for each in range(359)]
        steps = list(range(len(times)))
        write_samples(JOB, known.pk, times, step=steps, step_time_s=10.0, **told)
    return row


def test_a_job_that_held_nothing_says_what_it_cannot_tell() -> None:
    make_job("llama", gpus=2)
    found = ask()
    assert found["found"] == []
    said = " · ".join(found["cannot_tell"])
    assert "where its time goes: it has held no GPU yet" in said
    assert "why train waits: no cycle has looked at it" in said
    assert "train: what a save takes: it has not begun" in said


def test_a_planned_job_is_told_how_many_failures_it_meets() -> None:
    # 960 GPU-hours with two failures; two GPUs for 480 h are as many.
    xid("n1", 79, 30.0)
    xid("n2", 79, 60.0)
    make_job("llama", gpus=2, asks={"walltime_s": 480 * 3600.0})
    (outlook,) = ask()["outlook"]
    assert outlook["forecast"]["expected"] == pytest.approx(2.0, rel=1e-3)
    assert outlook["forecast"]["expected_upper"] == pytest.approx(7.22, abs=0.01)
    assert (outlook["basis"], outlook["failures_seen"]) == ("all GPUs", 2)
    assert outlook["checkpoint"] is None


def test_a_job_that_a_gpu_ended_is_told_which_and_on_what_that_rests() -> None:
    xid("n1", 48, 5.0, gpu=1)
    end_job("llama", 5.0, "failed", why="n1: exit code 1")
    found = ask()
    assert constraints(found)[0] == "failure_hardware"
    assert found["found"][0]["verdict"] == ("attempt 1 of train failed: hardware, gpu memory")
    assert found["evidence"][0] == "Xid 48: Uncorrectable memory error"


def test_a_job_that_failed_by_itself_is_sent_to_its_output() -> None:
    end_job("llama", 5.0, "failed", why="n1: exit code 1")
    found = ask()
    assert constraints(found)[0] == "failure_software"
    assert "headroom logs" in found["found"][0]["lever"]


def test_a_slow_job_is_told_its_largest_loss_with_the_arithmetic() -> None:
    runs(sync_s=3.0, data_wait_s=0.5, lost_share=0.1)
    first = ask()["found"][0]
    assert first["constraint"] == "synchronization"
    assert first["verdict"].startswith("synchronization takes 2")
    assert first["lever"] == "look at the slowest rank, and at the links between the nodes"
    assert any(each.startswith("speed without synchronization = 1 / (1 - lost)")
               for each in first["steps"])  # fmt: skip


def test_a_rank_that_holds_the_gang_back_is_named_on_page_api_and_with_its_cost() -> None:
    runs(rank_spread=1.6, slowest_rank=1)
    found = ask()
    (gang,) = found["stragglers"]
    assert gang["attempt"] == "llama/train/1"
    (rank,) = gang["ranks"]
    assert (rank["rank"], rank["slower"], rank["is_last"]) == (1, pytest.approx(1.6), True)
    assert rank["lost_share"] == pytest.approx(0.375)
    assert constraints(found)[0] == "straggler"
    said = "rank 1 holds attempt 1 of train back: its steps take 1.6x as long as the median"
    assert found["found"][0]["verdict"].startswith(said)
    assert any("= 37.5 %" in each for each in found["found"][0]["steps"])
    page = client_of(Role.OPERATOR).get("/live/jobs/llama/diagnosis").content.decode()
    assert "Rank 1 holds attempt 1 of train back" in page


def test_a_rank_that_fell_behind_for_two_minutes_after_a_quiet_hour_is_named() -> None:
    runs(reports=False)
    known = ReportedJob.objects.create(name="llama")
    ago = [10.0 * each for each in range(358, 0, -1)]
    slow = [each for each in ago if 150.0 < each < 270.0]
    quiet = [time.time() - each for each in ago if each not in slow]
    write_samples(JOB, known.pk, quiet, step_time_s=10.0, rank_spread=1.04)
    write_samples(
        JOB, known.pk, [time.time() - each for each in slow],
        step_time_s=10.0, rank_spread=1.6, slowest_rank=1,
    )  # fmt: skip
    (rank,) = ask()["stragglers"][0]["ranks"]
    assert (rank["rank"], rank["slower"], rank["windows"]) == (1, pytest.approx(1.6), 1)
    assert rank["until"] - rank["since"] == pytest.approx(100.0, abs=1.0)


def test_a_gang_whose_ranks_are_alike_names_nobody() -> None:
    runs(rank_spread=1.04)
    found = ask()
    assert found["stragglers"][0]["ranks"] == []
    assert "straggler" not in constraints(found)


def test_a_gpu_of_the_gang_that_is_slower_than_its_peers_is_named_and_no_other() -> None:
    runs()
    for node, index in (("n1", 1), ("n2", 0)):
        LemonFinding.objects.create(
            gpu=Gpu.objects.get(node__name=node, index=index), metric="slow_clock", since=at(2.0),
            seen_at=at(0.0), score=5.0, own=1386.0, peers_median=1980.0, peers=7, among="job",
        )  # fmt: skip
    found = ask()
    assert [each["name"] for each in found["stragglers"][0]["gpus"]] == ["n1 GPU 1"]
    slow = found["found"][constraints(found).index("slow_gpu")]
    assert "n1 GPU 1 of attempt 1 of train runs at 1,386 MHz" in slow["verdict"]


def test_reports_of_the_job_beside_another_attempt_name_no_rank() -> None:
    row = runs(rank_spread=1.6, slowest_rank=1)
    other = make_job("other", phases={"eval": ()}, state="running").phases.get()
    other.job, other.index = row.phase.job, 1
    other.save()
    make_attempt(other, {"n2": [0]}, dispatched_at=at(1.0), started_at=at(1.0))
    assert [each["ranks"] for each in ask()["stragglers"]] == [[], []]


def test_a_job_whose_loop_tells_nothing_is_told_that() -> None:
    runs(reports=False)
    found = ask()
    assert constraints(found) == ["unknown"]
    assert any("its loop has not told" in each for each in found["cannot_tell"])
    assert any("tells of no time outside of steps" in each for each in found["cannot_tell"])


def test_saves_that_are_too_frequent_are_told_with_what_less_of_them_brings() -> None:
    xid("n1", 79, 30.0)
    xid("n2", 79, 60.0)
    runs(saves_every_s=600.0, lost_share=0.2, sync_s=0.0)
    (outlook,) = ask()["outlook"]
    advice = outlook["checkpoint"]
    # A fifth of 600 s; a failure in 240 h of its two GPUs.
    assert advice["save_s"] == pytest.approx(120.0, rel=0.01)
    assert advice["mtbf_s"] == pytest.approx(240 * 3600.0, rel=1e-3)
    assert advice["best_s"] == pytest.approx((2 * 120.0 * 240 * 3600.0) ** 0.5, rel=0.02)
    assert advice["change"] == "longer"
    assert 0.15 < advice["gain"] < 0.2
    assert "save less often, for" in outlook["sentences"][1]
    assert "failures_rework" in constraints(ask()) or "failures_checkpoint" in constraints(ask())


def test_without_a_failure_advice_is_only_what_is_sure() -> None:
    runs(saves_every_s=60.0, lost_share=0.5, sync_s=0.0)
    (outlook,) = ask()["outlook"]
    assert (outlook["checkpoint"]["best_s"], outlook["checkpoint"]["change"]) == (None, "longer")
    assert "since no failure was seen" in outlook["sentences"][1]


def test_without_a_declared_interval_there_is_no_advice_and_it_says_why() -> None:
    runs(saves_every_s=None, lost_share=0.2)
    (outlook,) = ask()["outlook"]
    assert outlook["checkpoint"] is None
    assert outlook["missing"] == [
        "how often it saves: its specification has no checkpoint.interval_s"
    ]


def test_the_page_leads_to_it_by_one_click_and_tells_the_same() -> None:
    runs(sync_s=3.0, lost_share=0.1)
    viewer = client_of(Role.VIEWER)
    panel = "/live/jobs/llama/diagnosis"
    assert f'hx-get="{panel}"' in html_of(viewer.get("/jobs/llama/"))
    html = " ".join(html_of(viewer.get(panel)).split())
    assert "Synchronization takes 2" in html
    assert "Look at the slowest rank" in html
    assert "What cannot be told" in html


def test_the_job_of_another_project_is_not_there() -> None:
    make_job("llama", gpus=2, project="sphinx")
    assert api_client(Role.ML_USER).get(URL).status_code == 404
    assert client_of(Role.ML_USER).get("/live/jobs/llama/diagnosis").status_code == 404
