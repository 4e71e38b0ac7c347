"""The timeline of a job as a person uses it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from admission.jobs.models import Attempt
from telemetry.models import ReportedJob
from telemetry.samples import GPU, JOB
from tests.browser.chromium import PHONE
from tests.browser.conftest import Visits
from tests.builders.fleet import SmallFleet
from tests.builders.jobs import make_attempt, make_job
from tests.builders.readings import write_samples

PATH = "/jobs/llama-ft-12/"


@pytest.fixture
def attempt(small: SmallFleet) -> Attempt:
    """An attempt that runs for ten minutes on one GPU, which is read each 10 s."""
    now = float(int(time.time()))
    at = datetime.fromtimestamp(now - 600.0, UTC)
    made = make_attempt(
        make_job(gpus=1, state="running").phases.get(), {"oslo-a01-n1": [0]},
        dispatched_at=at, started_at=at,
    )  # fmt: skip
    times = [now - 600.0 + 10.0 * each for each in range(60)]
    gpu = small.gpu("oslo-a01-n1")
    write_samples(GPU, gpu.pk, times, power_w=500.0, power_limit_w=650.0, temp_c=60.0)
    return made


def drawn(page: Page) -> None:
    expect(page.locator("#timeline[data-drawn] .main-svg").first).to_be_visible()


def test_rows_and_lanes_stand_on_one_axis_and_what_is_missing_is_named(
    visits: Visits, attempt: Attempt
) -> None:
    page = visits().open(PATH)
    drawn(page)
    words = page.locator("#timeline .annotation-text")
    for text in ("Power of a GPU, W", "GPU temperature, °C", "running"):
        expect(words.get_by_text(text, exact=True)).to_have_count(1)
    expect(page.locator("#timeline-absent")).to_contain_text("Not reported: Training loss,")
    expect(page.locator("#timeline-table tbody tr").first).to_contain_text("Power of a GPU, W")
    box = page.locator("#timeline").bounding_box()
    assert box is not None
    page.locator("#timeline").scroll_into_view_if_needed()
    page.locator("#timeline").hover(position={"x": box["width"] * 0.6, "y": 60})
    hover = page.locator("#timeline .hoverlayer")
    expect(hover).to_contain_text("mean : 500 W (500 to 500)")
    expect(hover).to_contain_text("running")


def test_what_comes_in_is_appended_within_seconds(
    visits: Visits, attempt: Attempt, small: SmallFleet
) -> None:
    page = visits().open(PATH)
    drawn(page)
    tail = "since="
    with page.expect_response(lambda answer: "/timeline?" in answer.url and tail in answer.url):
        gpu, now = small.gpu("oslo-a01-n1"), time.time()
        write_samples(GPU, gpu.pk, [now], power_w=550.0, power_limit_w=650.0, temp_c=61.0)
    expect(page.locator("#timeline-table tbody tr").first).to_contain_text("550")


def test_a_range_is_compared_in_local_time_on_a_phone_by_a_link(
    visits: Visits, attempt: Attempt
) -> None:
    visitor = visits(size=PHONE, theme="dark")
    page = visitor.open(f"{PATH}?range=4m&zone=local&compare=before")
    drawn(page)
    names = page.evaluate("document.getElementById('timeline').data.map((trace) => trace.name)")
    assert "before" in names
    expect(page.locator("#timeline .xtitle")).to_have_text("local time")
    expect(page.locator("#timeline-note")).to_contain_text("local time")
    expect(page.get_by_label("From, local time")).to_be_attached()
    assert visitor.overflow_px() <= 0
    visitor.check_accessible()


def test_csv_and_picture_are_saved(visits: Visits, attempt: Attempt) -> None:
    page = visits().open(PATH)
    drawn(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="PNG").click()
    assert Path(download.value.path()).read_bytes().startswith(b"\x89PNG")
    assert download.value.suggested_filename == "llama-ft-12-train-1.png"
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV", exact=True).click()
    assert Path(download.value.path()).read_text().startswith("time,power_w,")


def test_two_runs_are_drawn_on_one_axis_by_step(visits: Visits, attempt: Attempt) -> None:
    other = make_attempt(
        make_job("vit-1", gpus=1, state="running").phases.get(), {"oslo-a01-n2": [0]},
        dispatched_at=attempt.dispatched_at, started_at=attempt.started_at,
    )  # fmt: skip
    began = attempt.dispatched_at.timestamp()
    times = [began + 20.0 + 10.0 * each for each in range(58)]
    for row, loss in ((attempt, 4.0), (other, 3.0)):
        known = ReportedJob.objects.create(name=row.key)
        write_samples(JOB, known.pk, times, step=list(range(100, 158)), loss=loss)
    visitor = visits(size=PHONE)
    page = visitor.open(PATH)
    page.get_by_role("link", name="Compare with another run, by step").click()
    page.get_by_label("With the job, or the attempt").fill("vit-1")
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("#compared .main-svg").first).to_be_visible()
    expect(page.locator("#compared .xtitle")).to_have_text("step")
    lines = page.evaluate("document.getElementById('compared').data.map((each) => each.name)")
    assert {"loss, this", "loss, other", "mean, this"} <= set(lines)
    expect(page.locator("#differences-scroll")).to_contain_text("oslo-a01-n2")
    visitor.check_accessible()
    visitor.check_quiet()
    assert visitor.overflow_px() <= 0
