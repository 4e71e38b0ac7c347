"""The GPU page and its live panels."""

from __future__ import annotations

import re
import time
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from accounts.roles import Role
from admission.allocation import open_attempts
from fleet import snapshot
from fleet.models import Gpu
from headroom.contracts import ThrottleCause
from telemetry.models import ThrottleEvent
from tests.builders.accounts import make_user
from tests.builders.fleet import SmallFleet
from tests.builders.jobs import make_attempt, make_job
from tests.html import html_of


@pytest.fixture
def gpu(small: SmallFleet) -> Gpu:
    return small.gpu("oslo-a01-n1", 2)


def text_of(html: str) -> str:
    return re.sub(r"\s+([,.])", r"\1", re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html)))


def opened(viewer: Client, gpu: Gpu, query: str = "") -> str:
    response = viewer.get(f"/gpus/{gpu.pk}/{query}")
    assert response.status_code == 200
    return html_of(response)


def test_nobody_sees_it_without_logging_in(client: Client, gpu: Gpu) -> None:
    for path in (f"/gpus/{gpu.pk}/", f"/live/gpus/{gpu.pk}", f"/live/gpus/{gpu.pk}/range"):
        assert client.get(path).status_code == 302


def test_a_gpu_that_is_not_there_is_not_found(viewer: Client) -> None:
    for path in ("/gpus/999999/", "/live/gpus/999999", "/live/gpus/999999/range"):
        assert viewer.get(path).status_code == 404


def test_the_answer_has_the_numbers(viewer: Client, small: SmallFleet, gpu: Gpu) -> None:
    small.report(power_w=612.0, power_limit_w=650.0, temp_c=71.0, sm_mhz=1755.0)
    text = text_of(opened(viewer, gpu))
    assert "oslo-a01-n1 GPU 2 · 612 of 650 W · 71 °C, 16 °C to slowdown" in text
    assert "1,755 of 1,980 MHz · not throttling" in text


def test_it_says_what_throttles_since_when(viewer: Client, small: SmallFleet, gpu: Gpu) -> None:
    small.report(at=time.time() - 180, throttle=ThrottleCause.SW_POWER_CAP)
    small.report(throttle=ThrottleCause.SW_POWER_CAP)
    text = text_of(opened(viewer, gpu))
    assert "throttling : SW power cap for 3 min" in text
    assert "as expected" not in text
    small.report(throttle=ThrottleCause.SW_POWER_CAP, power_limit_w=500.0)
    assert "SW power cap for 3 min, as expected" in text_of(opened(viewer, gpu))


def test_over_slowdown_is_said_in_words(viewer: Client, small: SmallFleet, gpu: Gpu) -> None:
    small.report(temp_c=91.0)
    html = opened(viewer, gpu)
    assert "4 °C over slowdown" in text_of(html)
    assert "swatch over" in html


def test_a_stale_gpu_says_so_and_nothing_of_now(
    viewer: Client, small: SmallFleet, gpu: Gpu
) -> None:
    small.report(at=time.time() - 300, power_w=612.0, throttle=4)
    text = text_of(opened(viewer, gpu))
    assert "was last heard 5 min ago, at 612 W" in text
    assert "not throttling" not in text
    assert "its rated 700 W are counted against the budget" in text


def test_a_gpu_that_was_never_heard_from_says_how_to_mend_it(viewer: Client, gpu: Gpu) -> None:
    html = opened(viewer, gpu)
    assert "was never heard from" in text_of(html)
    assert "headroom agent --server http://testserver" in html
    assert 'data-rows="0"' in html


def test_breadcrumbs_lead_back_to_the_site(viewer: Client, gpu: Gpu) -> None:
    html = opened(viewer, gpu)
    crumbs = html[html.index('aria-label="Breadcrumbs"') :]
    links = re.findall(r'href="([^"]+)"', crumbs[: crumbs.index("</nav>")])
    node = gpu.node
    assert links == ["/", "/?site=oslo", f"/racks/{node.rack_id}/", f"/nodes/{node.pk}/"]


def test_the_range_is_in_the_url_and_in_all_that_it_asks_for(
    viewer: Client, small: SmallFleet, gpu: Gpu
) -> None:
    small.report()
    html = opened(viewer, gpu, "?range=6h")
    assert 'href="?range=6h" aria-current="true"' in html
    assert 'data-query="range=6h"' in html
    assert f"/live/gpus/{gpu.pk}/range?range=6h&amp;v=" in html
    assert f"/api/v1/series.csv?kind=gpu&amp;id={gpu.pk}&amp;range=6h" in html
    assert " data-live" in html


def test_a_range_of_the_past_does_not_poll(viewer: Client, gpu: Gpu) -> None:
    html = opened(viewer, gpu, "?from=2026-11-20T08:00&to=2026-11-20T09:00")
    chart = html[html.index('id="timeline"') :]
    assert " data-live" not in chart[: chart.index(">")]
    assert 'id="range-table" data-live-panel' not in html
    assert 'value="2026-11-20T08:00:00"' in html


@pytest.mark.parametrize("query", ["?range=soon", "?from=x", "?from=2026-11-20&to=2026-11-19"])
def test_a_wrong_range_is_told(viewer: Client, gpu: Gpu, query: str) -> None:
    response = viewer.get(f"/gpus/{gpu.pk}/{query}")
    assert response.status_code == 400
    assert 'role="alert"' in html_of(response)


def test_the_table_says_what_the_chart_shows(viewer: Client, small: SmallFleet, gpu: Gpu) -> None:
    now = time.time()
    for age, power in ((30, 400.0), (20, 500.0), (10, 600.0)):
        small.report(at=now - age, power_w=power)
    assert "Power, W 400 500 600" in text_of(opened(viewer, gpu))


def test_a_poll_of_what_is_shown_already_swaps_nothing(
    viewer: Client, small: SmallFleet, gpu: Gpu
) -> None:
    small.report(at=time.time() - 200)
    html = opened(viewer, gpu)
    for path in re.findall(r'hx-get="(/live/gpus/[^"]+)"', html):
        assert viewer.get(path.replace("&amp;", "&")).status_code == 204
    small.report(power_w=123.0)
    answer = viewer.get(re.findall(r'hx-get="(/live/gpus/\d+\?[^"]+)"', html)[0])
    assert answer.status_code == 200
    assert "123" in text_of(html_of(answer))
    assert answer["Cache-Control"] == "private, no-store"


def test_an_open_event_names_its_cause_with_a_pattern_and_a_word(
    viewer: Client, small: SmallFleet, gpu: Gpu
) -> None:
    small.report()
    at = timezone.now() - timedelta(minutes=5)
    ThrottleEvent.objects.create(
        gpu=gpu, cause=ThrottleCause.HW_THERMAL, opened_at=at, updated_at=at
    )
    html = opened(viewer, gpu)
    assert '<span class="cause cause-hw_thermal" title="too hot: hardware cuts clocks">' in html


# --- Slices ---------------------------------------------------------------------------------------


@pytest.fixture
def operator(db: None) -> Client:
    client = Client()
    client.force_login(make_user(Role.OPERATOR))
    return client


@pytest.fixture
def halves(gpu: Gpu) -> Gpu:
    """Return the GPU, split into two halves, of which a job of vision holds the second."""
    gpu.model.name = "NVIDIA H100 80GB HBM3"
    gpu.model.save()
    gpu.slices = ["3g.40gb", "3g.40gb"]
    gpu.save()
    attempt = make_attempt(make_job("tuning", state="running").phases.get(), {gpu.node.name: [2]})
    attempt.placement["slices"] = {gpu.node.name: [{"profile": "3g.40gb", "place": 1}]}
    attempt.save()
    open_attempts.invalidate()
    snapshot.invalidate()
    return gpu


def test_it_says_who_holds_which_slice_and_what_that_draws(
    small: SmallFleet, operator: Client, halves: Gpu
) -> None:
    small.report(power_w=370.0)
    text = text_of(opened(operator, halves))
    assert "3g.40gb 50 % 35 nobody 3g.40gb 50 % 335 tuning/train" in text


def test_a_job_of_another_project_has_no_name_there(halves: Gpu) -> None:
    reader = Client()
    reader.force_login(make_user(Role.ML_USER))
    text = text_of(opened(reader, halves))
    assert "tuning" not in text
    assert "a job of another project" in text


def test_a_whole_gpu_has_no_slices(viewer: Client, gpu: Gpu) -> None:
    assert "Slices" not in text_of(opened(viewer, gpu))


def test_it_says_where_nvml_shows_other_slices_than_are_stated(
    small: SmallFleet, viewer: Client, halves: Gpu
) -> None:
    small.report(mig_instances=None)
    assert "NVML shows no slices, and the inventory states 2" in text_of(opened(viewer, halves))
    small.report(mig_instances=2)
    assert "NVML shows" not in text_of(opened(viewer, halves))
    whole = small.gpu("oslo-a01-n1", 1)
    assert "NVML shows 2 slices, and the inventory has it as whole" in text_of(
        opened(viewer, whole)
    )
