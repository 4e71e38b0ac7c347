"""``/api/v1/xid-events`` and ``/api/v1/ecc-events``."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from fleet.models import Gpu, Node
from headroom.agent.sources.kernel_log import parse_line, parse_xid
from headroom.contracts import XidColumns
from telemetry.faults.models import EccEvent
from telemetry.models import XidEvent
from tests.builders.accounts import api_client
from tests.builders.batches import make_batch
from tests.builders.readings import make_node
from tests.data_sets import data_set
from tests.integration.telemetry.conftest import Source, drain_everything

pytestmark = pytest.mark.django_db
XIDS, ECC = "/api/v1/xid-events", "/api/v1/ecc-events"
T0 = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)


def make_xid(node: Node, index: int | None, minute: int, xid: int) -> XidEvent:
    gpu = None if index is None else node.gpus.get(index=index)
    at = T0 + timedelta(minutes=minute)
    return XidEvent.objects.create(node=node, gpu=gpu, ts=at, xid=xid, text=f"Xid {xid}")


def make_ecc(gpu: Gpu, minute: int) -> EccEvent:
    at = T0 + timedelta(minutes=minute)
    return EccEvent.objects.create(
        gpu=gpu, since=at - timedelta(seconds=10), at=at, count=2, total=9
    )


@pytest.fixture
def nodes() -> tuple[Node, Node]:
    here, there = make_node("n1"), make_node("n2", site="bergen", rack="B01")
    make_xid(here, 0, 0, 45)
    make_xid(here, 1, 10, 79)
    make_xid(here, None, 20, 12_028)
    make_xid(there, 0, 30, 13)
    return here, there


def codes(query: str = "") -> list[int]:
    answer = api_client().get(f"{XIDS}?{query}")
    assert answer.status_code == 200, answer.content
    return [row["xid"] for row in answer.json()["results"]]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", [13, 12_028, 79, 45]),
        ("xid=79", [79]),
        ("site=oslo", [12_028, 79, 45]),
        ("node=n2", [13]),
        ("severity=info", [13, 12_028, 79, 45]),
        # What is not listed may be anything: it is taken for a warning.
        ("severity=warning", [13, 12_028, 79]),
        ("severity=critical", [79]),
        ("since=2026-11-20T08:10:00Z&until=2026-11-20T08:30:00Z", [12_028, 79]),
    ],
)
def test_xid_errors_come_newest_first_and_are_filtered(
    nodes: tuple[Node, Node], query: str, found: list[int]
) -> None:
    assert codes(query) == found


def test_xid_errors_of_a_rack_and_of_a_gpu(nodes: tuple[Node, Node]) -> None:
    here, there = nodes
    assert codes(f"rack={there.rack_id}") == [13]
    assert codes(f"gpu={here.gpus.get(index=1).pk}") == [79]


def test_a_code_comes_with_its_meaning(nodes: tuple[Node, Node]) -> None:
    (row,) = api_client().get(f"{XIDS}?xid=79").json()["results"]
    assert (row["title"], row["severity"]) == ("GPU fell off the bus", "critical")
    assert "drain" in row["advice"]
    assert (row["site"], row["rack"], row["node"], row["gpu_index"]) == ("oslo", "A01", "n1", 1)
    assert row["text"] == "Xid 79"


def test_a_code_of_no_gpu_and_of_no_list_is_shown_all_the_same(nodes: tuple[Node, Node]) -> None:
    (row,) = api_client().get(f"{XIDS}?xid=12028").json()["results"]
    assert (row["gpu"], row["gpu_index"], row["node"]) == (None, None, "n1")
    assert row["title"] == "Xid error"


def test_memory_errors_say_how_many_came_since_when(nodes: tuple[Node, Node]) -> None:
    here, there = nodes
    make_ecc(here.gpus.get(index=1), 5)
    make_ecc(there.gpus.get(index=0), 6)
    rows = api_client().get(ECC).json()["results"]
    assert [(row["node"], row["gpu_index"], row["count"], row["total"]) for row in rows] == [
        ("n2", 0, 2, 9),
        ("n1", 1, 2, 9),
    ]
    assert (rows[0]["since"], rows[0]["at"]) == ("2026-11-20T08:05:50Z", "2026-11-20T08:06:00Z")
    for query in ("site=oslo", "node=n1", f"rack={here.rack_id}", "until=2026-11-20T08:06:00Z"):
        (row,) = api_client().get(f"{ECC}?{query}").json()["results"]
        assert row["node"] == "n1"


@pytest.mark.parametrize(
    ("query", "field"), [("severity=loud", "severity"), ("since=today", "since"), ("xid=x", "xid")]
)
def test_a_wrong_filter_is_named(query: str, field: str) -> None:
    answer = api_client().get(f"{XIDS}?{query}")
    assert (answer.status_code, answer.json()["error"]["field"]) == (400, field)


@pytest.mark.parametrize("url", [XIDS, ECC])
def test_they_are_read_only_and_not_for_everybody(client: Client, url: str) -> None:
    assert client.get(url).status_code == 401
    assert api_client().post(url, {}, content_type="application/json").status_code == 405


def test_a_page_costs_the_same_however_many_there_are(
    nodes: tuple[Node, Node], django_assert_num_queries: object
) -> None:
    client = api_client()
    # The token, the page, and around it how long a statement may take.
    with django_assert_num_queries(4):  # type: ignore[operator]
        client.get(XIDS)


def test_a_line_of_a_real_kernel_log_is_told_with_the_throttling_beside_it(source: Source) -> None:
    lines = (data_set("kernel-xid-logs") / "dmesg-xid-119.log").read_text().splitlines()
    parsed = [xid for line in lines if (xid := parse_xid(parse_line(line).text))]
    now = time.time()
    stuck = [0x80 if gpu == 4 else 0 for gpu in range(8)]
    batch = make_batch("agent-1", "n1", ts=[now - 60], throttle=stuck)
    batch.nodes[0].xids = XidColumns(
        ts=[now - 50 + i for i in range(len(parsed))],
        xid=[line.code for line in parsed],
        gpu=[4] * len(parsed),
        text=[lines[0]] * len(parsed),
    )
    for seq in (1, 2):  # the log is read again when the agent starts anew
        batch.seq = seq
        assert source.push(batch).status_code == 202
    drain_everything()
    rows = api_client().get(f"{XIDS}?node=n1").json()["results"]
    assert {row["xid"] for row in rows} == {119}
    assert len(rows) == len(parsed)
    assert rows[0]["title"] == "GPU system processor does not answer"
    (event,) = api_client().get("/api/v1/throttle-events").json()["results"]
    assert (event["gpu_index"], set(event["xids"])) == (4, {119})
