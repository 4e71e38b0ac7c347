"""What one agent may cost: by the nodes that it speaks for, and also with what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from fleet import snapshot
from headroom.contracts import LimitReport, LimitState
from telemetry import intake, stream, views
from telemetry.directory import names_of, scope_of
from telemetry.ingest import rate
from tests.builders.agents import make_agent
from tests.builders.batches import make_batch
from tests.integration.telemetry.conftest import Source, make_node


@pytest.fixture(autouse=True)
def nobody_waits() -> Any:
    rate._waits.clear()
    yield
    rate._waits.clear()


def bad_batch(seq: int = 1) -> Any:
    return make_batch("agent-1", "n1", seq, gpus=9)


def test_an_agent_may_send_by_the_nodes_that_it_speaks_for(
    source: Source, stranger: Source, settings: Settings
) -> None:
    settings.TELEMETRY_MAX_ROWS_PER_S_PER_NODE = 100
    settings.TELEMETRY_MAX_ROWS_PER_S_PER_AGENT = 250
    for number in (3, 4):
        make_node(f"n{number}", source.node.rack, source.node.gpus.get(index=0).model)
    _, of_site = make_agent("of-site", sites=[source.node.rack.site])
    names = names_of(snapshot.fresh())
    shares = [names.share_of(scope_of(token)) for token in (source.token, of_site)]  # type: ignore[arg-type]
    assert [share.rows_per_s for share in shares] == [100, 250]


def test_what_was_refused_counts_against_the_share(source: Source, settings: Settings) -> None:
    settings.TELEMETRY_MAX_ROWS_PER_S_PER_NODE = 1
    settings.TELEMETRY_BURST_ROWS_PER_NODE = 60
    assert source.push(bad_batch()).status_code == 400
    answers = [source.push(bad_batch(seq)) for seq in range(2, 8)]
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["Retry-After"]) >= 1


def test_what_comes_from_an_agent_that_is_to_wait_is_not_decoded(
    source: Source, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.TELEMETRY_MAX_ROWS_PER_S_PER_NODE = 1
    settings.TELEMETRY_BURST_ROWS_PER_NODE = 8
    assert source.push(make_batch("agent-1", "n1", 1)).status_code == 202
    assert source.push(make_batch("agent-1", "n1", 2)).status_code == 429
    monkeypatch.setattr(views, "decode_batch", None)
    answer = source.push(b"whatever it is")
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_fast")


def test_an_agent_that_waited_is_heard_again(source: Source) -> None:
    rate.hold(source.agent.pk, 0.01)
    assert rate.wait_s(source.agent.pk) > 0
    rate.hold(source.agent.pk, -1.0)
    assert source.push(make_batch("agent-1", "n1")).status_code == 202


def test_bad_rows_of_a_body_that_is_too_large_are_not_sought(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "_MOST_SORTED_BYTES", 100)
    answer = source.push(bad_batch())
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "unknown_gpu")
    assert stream.backlog(0) == 0


def test_reports_of_limits_count(source: Source, settings: Settings) -> None:
    settings.TELEMETRY_MAX_ROWS_PER_S_PER_NODE = 1
    settings.TELEMETRY_BURST_ROWS_PER_NODE = 50
    batch = make_batch("agent-1", "n1")
    report = LimitReport(
        limit="x", node="n1", kind="power_cap_w", state=LimitState.APPLIED, at=batch.sent_at,
        asked=500,
    )  # fmt: skip
    batch.limits = [report] * 40
    assert source.push(batch).status_code == 202
    batch.seq = 2
    assert source.push(batch).status_code == 429


def test_what_is_charged_does_not_pass_a_share_that_is_used_up(
    source: Source, settings: Settings
) -> None:
    settings.TELEMETRY_MAX_ROWS_PER_S_PER_NODE = 1
    settings.TELEMETRY_BURST_ROWS_PER_NODE = 10
    scope = scope_of(source.token)
    assert scope is not None
    intake.charge(scope, 32 * 9)
    with pytest.raises(Exception, match="this agent may send 1 rows/s, and 10 at once"):
        intake.charge(scope, 32 * 9)
