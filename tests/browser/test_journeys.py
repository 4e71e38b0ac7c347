"""The ways of those who use Headroom to their answers, with a stopwatch of clicks and seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Locator, expect

from accounts.models import User
from accounts.roles import Role
from admission.jobs.models import Job, Phase
from policies import current
from tests.browser.conftest import Visits
from tests.builders.begun import begin_anew
from tests.builders.fleet import SmallFleet, small_fleet
from tests.builders.jobs import make_project
from tests.integration.admission.cycle.scenes import cycle, idle, start

#: It asks for more GPUs than the two racks of its fleet have, and takes fewer.
_LARGE = """\
name: large
project: vision
class: low-power-experimentation
phases:
  - name: train
    gang: {gpus: 20}
    power: {expected_peak_w: 500}
    walltime_s: 3600
    command: [python, train.py]
"""


@dataclass
class Stopwatch:
    """Counts what somebody clicks until a question is answered, and takes the time."""

    question: str
    clicks: int = 0
    _began: float = field(default_factory=time.monotonic)

    def click(self, what: Locator) -> None:
        self.clicks += 1
        what.click()

    def stop(self, *, most: int) -> None:
        """Print what it took; fail where it took more than ``most`` clicks."""
        print(f"{self.question}: {self.clicks} clicks, {time.monotonic() - self._began:.1f} s")
        assert self.clicks <= most, self.question


@pytest.fixture
def idle_racks(transactional_db: None) -> Iterator[SmallFleet]:
    """Two racks of two nodes of four idle GPUs; every machine runs jobs."""
    current.invalidate()
    begin_anew()
    made = small_fleet(sites=("oslo",), racks_per_row=2, rows=("A",))
    idle(made)
    make_project("vision")
    yield made
    current.invalidate()
    begin_anew()


# --- The ML engineer -----------------------------------------------------------------------------


def test_an_ml_engineer_submits_a_job_learns_why_it_waits_mends_it_and_sees_it_run(
    visits: Visits, idle_racks: SmallFleet
) -> None:
    watch = Stopwatch("from sign-on to the timeline of a job that waited", clicks=1)
    visitor = visits(Role.ML_USER)
    make_project("vision").members.add(User.objects.get(role=Role.ML_USER))
    page = visitor.page
    watch.click(page.get_by_role("link", name="Queue", exact=True))
    watch.click(page.get_by_role("link", name="submit a job"))
    page.get_by_label("The specification").fill(_LARGE.replace("gpus: 20", "gpu: 20"))
    problem = page.locator("#problems")
    expect(problem).to_contain_text("do you mean `gpus`?")
    expect(problem).to_contain_text("line 6")
    page.get_by_label("The specification").fill(_LARGE)
    expect(problem).to_contain_text("It can be submitted to vision")
    watch.click(page.get_by_role("button", name="Dry run"))
    expect(page.locator("#dry-run")).to_contain_text("It would wait")
    assert not Job.objects.exists()
    visitor.check_accessible()
    watch.click(page.get_by_role("button", name="Submit"))
    expect(page.get_by_text("large is submitted")).to_be_visible()
    assert cycle().admitted == 0
    page.reload()
    phase = Phase.objects.get()
    expect(page.locator("#job-why")).to_contain_text(phase.reason)
    watch.click(page.get_by_role("radio").first)
    watch.click(page.get_by_role("button", name="Apply"))
    expect(page.get_by_text("large/train is amended")).to_be_visible()
    assert cycle().admitted == 1
    start("large")
    page.reload()
    phase.refresh_from_db()
    expect(page.locator("h1")).to_contain_text(f"large runs on {phase.gpus} GPUs in oslo")
    expect(page.get_by_role("heading", name="Timeline of attempt 1")).to_be_visible()
    watch.stop(most=7)
