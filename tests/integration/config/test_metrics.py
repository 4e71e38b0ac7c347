from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families
from pytest_django import Settings

from tests.builders.accounts import bearer, client_of, make_user

TOKEN = "metrics-token-of-the-tests"

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _token(settings: Settings) -> None:
    settings.METRICS_TOKEN = TOKEN


def _value(text: str, name: str, **labels: str) -> float:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    return 0.0


def _scrape(client: Client) -> str:
    response = client.get("/metrics", headers=bearer(TOKEN))
    assert response.status_code == 200
    assert response["Content-Type"].startswith("text/plain")
    return response.content.decode()


def test_requests_are_counted_by_view_method_and_status(client: Client) -> None:
    labels = {"view": "healthz", "method": "GET", "status": "200"}
    before = _value(_scrape(client), "headroom_http_requests_total", **labels)
    client.get("/healthz")
    client.get("/healthz?x=1")
    text = _scrape(client)
    assert _value(text, "headroom_http_requests_total", **labels) == before + 2
    assert _value(text, "headroom_http_request_duration_seconds_count", view="healthz") > 0


def test_what_clients_make_up_does_not_become_a_label(client: Client) -> None:
    client.get("/no/such/page")
    client.generic("BREW", "/healthz")
    text = _scrape(client)
    assert "such" not in text
    assert "BREW" not in text
    assert _value(text, "headroom_http_requests_total", view="none", status="404") >= 1
    assert _value(text, "headroom_http_requests_total", method="other", status="405") >= 1


@pytest.mark.parametrize("headers", [{}, bearer("wrong"), bearer(""), {"Authorization": TOKEN}])
def test_strangers_are_turned_away(client: Client, headers: dict[str, str]) -> None:
    response = client.get("/metrics", headers=headers)
    assert response.status_code == 401
    assert response["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize("sent", ["", " ", "ü"])
def test_an_empty_token_opens_nothing(client: Client, settings: Settings, sent: str) -> None:
    settings.METRICS_TOKEN = ""
    assert client.get("/metrics", headers=bearer(sent)).status_code == 401


def test_people_who_may_view_the_fleet_may_read_them() -> None:
    assert client_of().get("/metrics").status_code == 200


def test_every_metric_of_ours_is_documented(client: Client) -> None:
    reference = Path(django_settings.BASE_DIR) / "docs" / "reference" / "http-endpoints.md"
    names = set(re.findall(r"^# HELP (headroom_\w+)", _scrape(client), re.M))
    assert names
    documented = set(re.findall(r"^\| `(headroom_\w+)` \|", reference.read_text(), re.M))
    assert names - documented == set()


def test_an_inactive_user_may_not(client: Client) -> None:
    user = make_user()
    client.force_login(user)
    user.is_active = False
    user.save(update_fields=["is_active"])
    assert client.get("/metrics").status_code == 401


def test_processes_add_up_also_those_that_are_gone(tmp_path: Path) -> None:
    program = (
        "import django; django.setup();"
        "from config import metrics as m;"
        "import os; child = os.fork();"
        "m.HTTP_REQUESTS.labels('v', 'GET', 200).inc();"
        "child and os.waitpid(child, 0);"
        "from prometheus_client import generate_latest;"
        "child and print(generate_latest(m._registry()).decode())"
    )
    env = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "PROMETHEUS_MULTIPROC_DIR": str(tmp_path),
    }
    for expected in (2.0, 4.0):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=env,
            cwd=django_settings.BASE_DIR,
            capture_output=True,
            text=True,
            check=True,
        )
        assert _value(done.stdout, "headroom_http_requests_total", view="v") == expected
