"""What changes that move a job say of its first step, from what was told and read."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.roles import Role
from admission.core.cycle.change import Counterfactual
from admission.core.cycle.whatif import Explanation
from admission.core.response.first_step import Basis, Begin, FirstStep
from admission.cycle import asking, live
from admission.jobs import first_steps
from admission.jobs.models import Attempt, Phase
from fleet.models import Site
from telemetry import samples
from telemetry.models import ReportedJob
from tests.builders.accounts import client_of
from tests.builders.checkpoints import make_fact
from tests.builders.jobs import MOVED, make_attempt, make_explanation, make_job
from tests.builders.readings import write_samples

pytestmark = pytest.mark.django_db
GB = 10**9


@pytest.fixture
def sites() -> dict[str, Site]:
    return {name: Site.objects.create(name=name) for name in ("oslo", "bergen")}


def ran(
    name: str = "llama", *, ago_min: float = 60.0, first_step_s: float | None = None, **given: Any
) -> Phase:
    """Return a phase that ran at oslo for a while, and whose loop told of a step so soon."""
    job = make_job(name, project=given.pop("project", "vision"),
                   asks={"checkpoint_interval_s": 900.0, **given})  # fmt: skip
    phase = job.phases.get()
    began = timezone.now() - timedelta(minutes=ago_min)
    attempt = make_attempt(phase, {"n1": [0]}, racks=["oslo/A01"], state="ended",
                           outcome="preempted", started_at=began,
                           ended_at=began + timedelta(minutes=30))  # fmt: skip
    if first_step_s is not None:
        reported(attempt.key, attempt, first_step_s)
    return phase


def reported(name: str, attempt: Attempt, first_step_s: float) -> None:
    """Have a loop read before its first step (nothing), at it, and after it."""
    assert attempt.started_at is not None
    source, _ = ReportedJob.objects.get_or_create(name=name)
    began = attempt.started_at.timestamp()
    times = [began + first_step_s + s for s in (-10.0, 0.0, 10.0)]
    write_samples(samples.JOB, source.pk, times, step=[None, 1, 2])


def moved(key: str = "llama/train", site: str = "bergen") -> Counterfactual:
    """Return a change that starts a phase at a site."""
    (found,) = make_explanation(key, MOVED).counterfactuals
    placement = type(found.placement)(**{**vars(found.placement), "sites": (site,)})
    return type(found)(found.change, found.sentence, placement)


def told(phase: Phase, site: str = "bergen") -> FirstStep | None:
    (found,) = first_steps.told(phase.key, [moved(phase.key, site)])
    return found.first_step


def test_a_move_says_when_its_first_step_is_from_what_keepers_told_and_loops_reported(
    sites: dict[str, Site],
) -> None:
    phase = ran(first_step_s=60.0)
    make_fact("llama", sites["oslo"], step=1200, bytes=5 * GB)
    make_fact("llama", sites["bergen"], step=1000, lag_checkpoints=1, lag_bytes=3_200_000_000,
              sent_bytes_per_s=4e6)  # fmt: skip
    (found,) = first_steps.told(phase.key, [moved()])
    assert found.sentence == (
        "starts now at site bergen; first step about 14 min after its start: 3.2 GB of its"
        " checkpoint of step 1,200 have to get to bergen, in 13 min at 4 MB/s, measured; 60 s from"
        " start to first step, measured at its own last start"
    )
    assert found.first_step is not None
    assert found.first_step.in_s == pytest.approx(860.0, abs=0.01)


def test_what_stays_at_its_site_or_has_not_run_says_nothing_and_asks_little(
    sites: dict[str, Site],
) -> None:
    phase = ran()
    new = make_job("new").phases.get()
    for key, site in ((phase.key, "oslo"), (new.key, "bergen"), ("gone/train", "bergen")):
        change = moved(key, site)
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert first_steps.told(key, [change]) == (change,)
        assert len(queries) == 1
    assert first_steps.told(phase.key, []) == ()


def test_nothing_told_and_nothing_stated_is_said_to_be_unknown(sites: dict[str, Site]) -> None:
    found = told(ran())
    assert found is not None
    assert found.in_s is None
    assert (found.way.begin, found.way.left_basis) == (Begin.UNSEEN, Basis.UNKNOWN)
    assert found.start is None


def test_what_its_specification_states_counts_where_nobody_told(sites: dict[str, Site]) -> None:
    phase = ran(cross_site_bits_per_s=8e8)
    spec = phase.job.spec
    spec["phases"][0]["checkpoint"] = {"size_bytes": 7e9, "interval_s": 900.0}
    phase.job.save(update_fields=["spec"])
    found = told(phase)
    assert found is not None
    assert (found.way.left_basis, found.way.rate_basis) == (Basis.STATED, Basis.STATED)
    assert found.way.send_s == pytest.approx(70.0)


def test_what_was_told_a_day_ago_counts_no_more(sites: dict[str, Site]) -> None:
    phase = ran()
    old = timezone.now() - timedelta(hours=25)
    make_fact("llama", sites["bergen"], told_at=old, received_at=old)
    found = told(phase)
    assert found is not None
    assert found.way.begin is Begin.UNSEEN


def test_checkpoints_of_an_earlier_run_count_no_more_but_the_rate_does(
    sites: dict[str, Site],
) -> None:
    phase = ran()
    before = timezone.now() - timedelta(hours=2)
    make_fact("llama", sites["oslo"], step=10, bytes=GB)
    make_fact("llama", sites["bergen"], run="before", step=9000, told_at=before, lag_bytes=0,
              sent_bytes_per_s=1e6)  # fmt: skip
    found = told(phase)
    assert found is not None
    assert (found.way.step, found.way.left_bytes, found.way.bytes_per_s) == (10, GB, 1e6)


def test_starts_of_its_own_count_before_those_of_its_project(sites: dict[str, Site]) -> None:
    phase = ran()
    for name, first_step_s in (("a", 100.0), ("b", 300.0), ("c", 200.0)):
        ran(name, first_step_s=first_step_s)
    ran("foreign", first_step_s=9.0, project="speech")
    found = told(phase)
    assert found is not None
    assert found.start is not None
    assert (found.start.of, found.start.is_own) == (3, False)
    assert found.start.s == pytest.approx(200.0, abs=0.01)
    # It reports under the name of its job, and of its phase. The earlier of both is its first step.
    (attempt,) = phase.attempts.all()
    reported("llama", attempt, 50.0)
    reported("llama/train", attempt, 40.0)
    found = told(phase)
    assert found is not None
    assert found.start is not None
    assert (found.start.of, found.start.is_own) == (1, True)
    assert found.start.s == pytest.approx(40.0, abs=0.01)


def test_steps_of_another_attempt_are_not_those_of_this_one(sites: dict[str, Site]) -> None:
    phase = ran()
    (attempt,) = phase.attempts.all()
    # After its end, under the name that its job has throughout.
    reported("llama", attempt, 1900.0)
    found = told(phase)
    assert found is not None
    assert found.start is None


def test_an_explanation_the_api_and_the_page_say_it_in_the_same_words(
    sites: dict[str, Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    phase = ran()

    def explained(question: asking.Question) -> asking.Answer:
        found = make_explanation(question.key, MOVED)
        return asking.Answer(
            explanation=Explanation(**{**vars(found), "counterfactuals": (moved(question.key),)})
        )

    monkeypatch.setattr("admission.cycle.live._answer", explained)
    monkeypatch.setattr("admission.cycle.live.applicable", lambda key, found: tuple(found))
    (change,) = live.explain(phase.key).counterfactuals
    assert change.first_step is not None
    assert "first step" in change.sentence
    make_fact("llama", sites["bergen"], step=1000, bytes=GB, sent_bytes_per_s=4e6)
    answer = client_of(Role.OPERATOR).get("/api/v1/jobs/llama/explain").json()
    (told,) = answer["phases"][0]["counterfactuals"]
    assert told["first_step"] == {
        "in_s": None, "site": "bergen", "begin": "checkpoint", "step": 1000, "left_bytes": 0.0,
        "left_basis": "measured", "bytes_per_s": 4e6, "rate_basis": "measured", "send_s": 0.0,
        "start": None,
    }  # fmt: skip
    said = "its checkpoint of step 1,000 is whole at bergen"
    assert said in told["sentence"]
    # The page has the same words, and the command line prints the sentence as it is.
    html = client_of(Role.OPERATOR).get("/jobs/llama/").content.decode()
    text = " ".join(html.split())
    assert (
        f'at site bergen</b> <span class="dim">on 8 GPUs on 1 rack at bergen; {when(told)}' in text
    )


def when(told: dict[str, Any]) -> str:
    """Return what a change says of its first step."""
    return str(told["sentence"]).partition("; ")[2]
