"""The Lemons page, its live panel, and what the GPU page says of a lemon."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from fleet.models import Gpu
from telemetry.lemons.models import LemonFinding, LemonWatch
from tests.builders.fleet import SmallFleet
from tests.html import html_of
from tests.integration.dashboard.test_throttle_page import text_of

URL = "/lemons/"


def make_finding(gpu: Gpu, **given: Any) -> LemonFinding:
    now = timezone.now()
    figures = {
        "metric": "hot_core", "since": now - timedelta(hours=2), "seen_at": now, "score": 7.5,
        "own": 84.0, "peers_median": 63.0, "peers": 31, "among": "rack",
    }  # fmt: skip
    return LemonFinding.objects.create(gpu=gpu, **{**figures, **given})


@pytest.fixture
def findings(small: SmallFleet) -> None:
    make_finding(small.gpu("oslo-a01-n1", 2))
    slow = {"own": 1760.0, "peers_median": 1900.0, "metric": "slow_clock", "among": "job"}
    make_finding(small.gpu("oslo-a01-n1", 2), **slow, score=6.0)
    make_finding(small.gpu("bergen-b02-n1", 1), **slow, score=5.5)
    make_finding(small.gpu("bergen-b02-n2", 0), ended_at=timezone.now())


def opened(viewer: Client, path: str = URL) -> str:
    response = viewer.get(path)
    assert response.status_code == 200
    return html_of(response)


def gpus_of(html: str) -> list[str]:
    return re.findall(r'id="lemon-\d+" href="/gpus/\d+/" title="([^":]+)', html)


def test_nobody_sees_it_without_logging_in(client: Client, db: None) -> None:
    assert client.get(URL).status_code == 302
    assert client.get("/live/lemons").status_code == 302


def test_the_answer_counts_gpus_and_says_the_worst(viewer: Client, findings: None) -> None:
    text = text_of(opened(viewer))
    # A GPU with two findings is one lemon.
    assert "2 lemons among the GPUs · oslo-a01-n1 GPU 2 runs 21 °C hotter than 31 peers" in text


def test_findings_that_hold_are_listed_the_worst_first(viewer: Client, findings: None) -> None:
    html = opened(viewer)
    assert gpus_of(html) == ["oslo-a01-n1 GPU 2", "oslo-a01-n1 GPU 2", "bergen-b02-n1 GPU 1"]
    assert "hot core 21 °C 84 °C 63 °C 31 rack 7.5 oslo/A01" in text_of(html)
    assert "slow clock 140 MHz 1,760 MHz 1,900 MHz 31 job 6.0" in text_of(html)


def test_those_that_ended_are_one_click_away(viewer: Client, findings: None) -> None:
    assert 'href="?state=ended"' in opened(viewer)
    assert gpus_of(opened(viewer, f"{URL}?state=ended")) == ["bergen-b02-n2 GPU 0"]


def test_without_any_it_says_what_would_be_one(viewer: Client, small: SmallFleet) -> None:
    text = text_of(opened(viewer))
    assert "No lemon among the GPUs" in text
    assert "No window of readings has been looked at yet" in text
    LemonWatch.objects.create(until=timezone.now())
    assert "looked at up to" in text_of(opened(viewer))
    assert "No finding has ended yet" in text_of(opened(viewer, f"{URL}?state=ended"))


def test_a_state_that_is_none_shows_those_that_hold(viewer: Client, findings: None) -> None:
    assert len(gpus_of(opened(viewer, f"{URL}?state=%7F"))) == 3


def test_a_poll_brings_the_answer_along_and_then_nothing(viewer: Client, findings: None) -> None:
    (path,) = re.findall(r'hx-get="(/live/lemons[^"]+)"', opened(viewer, "/live/lemons"))
    assert viewer.get(path.replace("&amp;", "&")).status_code == 204
    LemonFinding.objects.filter(metric="hot_core").delete()
    answer = viewer.get(path.replace("&amp;", "&"))
    assert answer.status_code == 200
    assert 'id="lemons-answer" hx-swap-oob="true"' in html_of(answer)


def test_the_gpus_page_says_what_is_wrong_with_it(
    viewer: Client, small: SmallFleet, findings: None
) -> None:
    small.report()
    text = text_of(opened(viewer, f"/gpus/{small.gpu('oslo-a01-n1', 2).pk}/"))
    assert (
        "This GPU runs 21 °C hotter than 31 peers in its rack at the same load: 84 against 63"
        in text
    )
    assert "This GPU runs 140 MHz (7 %) slower than 31 peers on its job at the same load" in text
    healthy = text_of(opened(viewer, f"/gpus/{small.gpu('oslo-a01-n1', 1).pk}/"))
    assert "peers" not in healthy


def test_the_throttle_page_leads_to_the_lemons(viewer: Client, findings: None) -> None:
    assert "2 lemons among the GPUs" in text_of(opened(viewer, "/throttle/"))


def test_a_page_costs_the_same_however_many_there_are(
    viewer: Client, small: SmallFleet, django_assert_max_num_queries: Any
) -> None:
    for node in small.nodes:
        make_finding(small.gpu(node))
    with django_assert_max_num_queries(11):
        opened(viewer)
