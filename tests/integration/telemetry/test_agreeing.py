"""Good layouts are agreed on before Django, together; whatever else they may be is handed on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
import redis
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from headroom.layouts import CONTENT_TYPE, Encoder, Layout, LayoutNode, layout_of
from telemetry import agreements, naming, stream
from telemetry.ingest import agreeing, batches
from telemetry.ingest.batches import Post, Untaken
from telemetry.models import IngestPosition
from tests.builders.batches import make_batch
from tests.integration.telemetry.conftest import Source
from tests.integration.telemetry.test_layouts import agree
from tests.integration.telemetry.test_names import place


def make_layout(agent: str = "agent-1", node: str = "n1", **changes: Any) -> Layout:
    layout = layout_of(make_batch(agent, node))
    assert layout is not None
    return msgspec.structs.replace(layout, **changes)


def make_post(source: Source, layout: Layout | bytes, *, token: str = "") -> Post:
    body = layout if isinstance(layout, bytes) else msgspec.json.encode(layout)
    return Post(f"Bearer {token or source.token}", "application/json", "", body)


def ids_of(answers: Sequence[bytes | Untaken]) -> list[str]:
    return [msgspec.json.decode(each)["layout"] for each in answers if isinstance(each, bytes)]


def test_layouts_of_many_agents_cost_few_queries_together(source: Source, stranger: Source) -> None:
    agreeing.take_all([make_post(source, make_layout())])  # inventory and tokens are known
    posts = [
        make_post(who, make_layout(agent, node, boot_id=f"life-{number}", jobs=["slurm-1"]))
        for number in range(10)
        for who, agent, node in ((source, "agent-1", "n1"), (stranger, "agent-2", "n2"))
    ]
    with CaptureQueriesContext(connection) as asked:
        answers = agreeing.take_all(posts)
    assert len(ids_of(answers)) == 20
    assert len(asked) < 20
    assert IngestPosition.objects.filter(boot_id__startswith="life-").count() == 20


def test_the_id_is_that_of_the_long_way_and_batches_under_it_are_taken(source: Source) -> None:
    batch = make_batch("agent-1", "n1", 1)
    layout = layout_of(batch)
    assert layout is not None
    (layout_id,) = ids_of(agreeing.take_all([make_post(source, layout)]))
    assert agree(source, layout).json() == {"layout": layout_id}
    body = Encoder(layout, layout_id).encode(batch)
    assert body is not None
    post = Post(f"Bearer {source.token}", CONTENT_TYPE, "", body)
    assert isinstance(batches.take_all([post])[0], bytes)
    # Another process has it from Redis.
    agreements.forget()
    assert isinstance(batches.take_new([post])[0], bytes)


def test_what_is_wrong_is_handed_on_and_its_neighbors_are_agreed_on(
    source: Source, stranger: Source
) -> None:
    place("gpt", "n2")
    answers = agreeing.take_all(
        [
            make_post(source, make_layout()),
            make_post(source, make_layout("agent-2", "n2")),
            make_post(source, make_layout("agent-1", "n2")),
            make_post(source, make_layout("agent-1", "n9")),
            make_post(source, make_layout(nodes=[LayoutNode(node="n1", gpus=[9])])),
            make_post(source, make_layout(boot_id="server:inbox")),
            make_post(source, make_layout(jobs=["gpt"])),
            make_post(source, make_layout(), token="hra_unknown"),
            make_post(source, b"no layout"),
            Post(f"Bearer {source.token}", "application/json", "br", b""),
            make_post(source, b" " * (batches.MAX_BATCH_BYTES + 1)),
            make_post(stranger, make_layout("agent-2", "n2")),
        ]
    )
    assert [place for place, told in enumerate(answers) if isinstance(told, bytes)] == [0, 11]
    assert {told for told in answers if isinstance(told, Untaken)} == {Untaken.HANDED_ON}


def test_one_life_too_many_is_handed_on_and_the_rest_is_agreed_on(
    source: Source, stranger: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(naming, "MAX_BOOT_IDS", 2)
    posts = [make_post(source, make_layout(boot_id=f"life-{n}")) for n in range(3)]
    answers = agreeing.take_all([*posts, make_post(stranger, make_layout("agent-2", "n2"))])
    assert [isinstance(told, bytes) for told in answers] == [True, True, False, True]


def test_a_layout_counts_against_its_agents_share_once_and_beyond_it_is_handed_on(
    source: Source, stranger: Source, settings: Settings
) -> None:
    settings.TELEMETRY_MAX_ROWS_PER_S_PER_NODE = 1
    post = make_post(source, make_layout())
    settings.TELEMETRY_BURST_ROWS_PER_NODE = 2 * (len(post.body) // 32 + 1)
    answers = agreeing.take_all([post] * 3 + [make_post(stranger, make_layout("agent-2", "n2"))])
    assert [isinstance(told, bytes) for told in answers] == [True, True, False, True]
    # From here on its requests are not looked at, here as there.
    assert agreeing.take_all([post]) == [Untaken.HANDED_ON]
    assert agree(source, make_layout()).status_code == 429


def test_an_agent_has_but_so_many_layouts(source: Source) -> None:
    for number in range(30):
        agreeing.take_all([make_post(source, make_layout(version=str(number)))])
    assert stream.connection().hlen(f"telemetry:layouts:{source.agent.pk}") <= 8


def test_all_are_handed_on_while_redis_is_away(source: Source) -> None:
    with patch.object(stream, "take_rows_of_all", side_effect=redis.ConnectionError):
        assert agreeing.take_all([make_post(source, make_layout())]) == [Untaken.HANDED_ON]


def test_nothing_to_agree_on_asks_for_nothing(source: Source) -> None:
    assert agreeing.take_all([make_post(source, b"")]) == [Untaken.HANDED_ON]
