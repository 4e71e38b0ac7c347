"""The page of failures says what failed, how often, and what that means; and what is not known."""

from __future__ import annotations

import pytest
from django.test import Client

from accounts.roles import Role
from telemetry.models import Agent, AgentSilence
from tests.builders.accounts import client_of
from tests.integration.admission.failures.scenes import at, end_job, two_nodes, xid
from tests.integration.dashboard.test_throttle_page import text_of

pytestmark = pytest.mark.django_db

URL = "/failures/"


def opened(query: str = "", role: Role = Role.VIEWER, status: int = 200) -> str:
    answer = client_of(role).get(f"{URL}{query}")
    assert answer.status_code == status
    return text_of(answer.content.decode())


def test_nobody_sees_it_without_logging_in(client: Client) -> None:
    assert client.get(URL).status_code == 302


def test_a_fleet_that_nobody_hears_says_that_nothing_was_observed() -> None:
    text = opened()
    assert "Nothing was observed: no agent was heard in this time" in text
    assert "What a job has to expect is not known" in text
    assert "None in this time." in text


def test_without_a_failure_it_says_how_rare_they_are_at_least() -> None:
    two_nodes()
    text = opened()
    # 960 GPU-hours of four GPUs; a bound for one is these over 2.9957.
    assert "No failure on 4 GPUs in the 10 d for which they were observed" in text
    assert "GPUs were observed for 33 % of this time" in text
    assert "over 13 d" in text


def test_failures_have_cause_place_job_and_evidence() -> None:
    two_nodes()
    xid("n1", 79, 5.0, gpu=1)
    end_job("llama", 5.0, "failed", why="n1: exit code 1")
    end_job("vit", 50.0, "lost", {"n2": [0]}, why="n2: not heard for 60 s")
    text = opened("?gpus=4&hours=240")
    assert "2 failures on 4 GPUs: 1 hardware, 1 unknown; without those of software" in text
    assert "one in 5 d" in text
    assert "hardware GPU n1 GPU 1 llama Xid 79: GPU fell off the bus and 1 more" in text
    assert "unknown node n2 vit" in text
    # As many GPU-hours as were observed: as many failures as were seen, 0.24 to 7.22.
    assert "A job of 4 GPUs for 240 h meets 2.00 failures, 0.24 to 7.2" in text
    assert "at least one in 86 % of cases" in text


def test_a_failure_from_before_its_node_was_observed_is_told_apart() -> None:
    two_nodes()
    xid("n1", 79, 24.0 * 20)
    text = opened()
    assert "1 failure on 4 GPUs: 1 hardware" in text
    assert "(not observed then)" in text
    assert "1 failure fell outside of observed time" in text
    assert "over 13 d" in text


def test_silences_are_told_where_rates_are() -> None:
    two_nodes()
    agent = Agent.objects.get()
    AgentSilence.objects.create(agent=agent, since=at(48.0), until=at(24.0))
    text = opened()
    assert "Their agents were silent for 10 % of the time since they were first heard" in text
    assert "No failure on 4 GPUs in the 9 d for which they were observed" in text


def test_rates_can_be_by_rack() -> None:
    two_nodes()
    xid("n2", 48, 5.0)
    text = opened("?by=rack")
    assert "oslo/A02 1 " in text
    assert "oslo/A01 0 0.0 0.0 to" in text


def test_spares_are_worth_less_the_more_there_are() -> None:
    two_nodes()
    for hours in (20.0, 60.0, 100.0, 150.0):
        xid("n1", 79, hours)
    text = opened("?repair=60")
    # One failure in 60 h, away for 60 h: on average one is missing.
    assert "0 63.21 % 36.79 %" in text
    assert "1 26.42 % 18.39 %" in text


def test_a_job_of_another_project_is_not_named_nor_linked() -> None:
    two_nodes()
    end_job("secret-job", 5.0, "failed", project="sphinx", why="n1: secret-words")
    answer = client_of(Role.ML_USER).get(URL)
    html = answer.content.decode()
    assert "secret" not in html
    assert "a job of another project" in html


def test_a_bad_range_is_said_and_the_usual_one_shown() -> None:
    two_nodes()
    assert "&#x27;soon&#x27; is no length of time" in opened("?range=soon", status=400)
    assert "No failure on 4 GPUs" in opened("?by=color&gpus=x&repair=-3")
