"""Bad rows are refused, and nothing but them."""

from __future__ import annotations

import copy
import json
from collections.abc import Collection
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.contracts import (
    AgentStatus,
    BatchError,
    CheckpointReport,
    GpuColumns,
    HostColumns,
    LimitReport,
    LimitState,
    LinkColumns,
    MeterColumns,
    NodeReport,
    StoreState,
    TelemetryBatch,
    XidColumns,
    decode_batch,
    encode_batch,
)
from telemetry.checks import OutOfScope
from telemetry.ingest.partial import Salvaged, salvage
from telemetry.ingest.refusals import MAX_TOLD, TimeLimits
from telemetry.rows import Mount
from tests.unit.telemetry.inventory import NOW, SCOPE, FakeNames

LIMITS = TimeLimits(NOW, max_future_s=30, max_age_s=3600)
WHOLE = BatchError("invalid_field", "what the fast way said")


class FakeNewNames:
    """Takes all names but those that begin with "foreign"."""

    def jobs(
        self, reported: Collection[str], named: Collection[str], newest_ts: float
    ) -> dict[str, BatchError]:
        return {
            name: BatchError("foreign_job", "it runs elsewhere")
            for name in named
            if name.startswith("foreign")
        }

    def mounts(self, named: Collection[Mount]) -> dict[Mount, BatchError]:
        return {
            mount: BatchError("too_many_names", "one mount too many")
            for mount in named
            if mount.name.startswith("foreign")
        }


def make_document() -> dict[str, Any]:
    """A good batch with rows of every kind, as a decoder without types gives it."""
    gpus = GpuColumns(
        ts=[NOW] * 4,
        gpu=[0, 1, 2, 3],
        power_w=[500.0, None, 300.5, 0.0],
        mem_used=[1, 2, 3, 4],
        job=["a", None, "b", "c"],
    )
    batch = TelemetryBatch(
        agent="agent-1",
        boot_id="boot",
        seq=7,
        oldest_seq=5,
        sent_at=NOW,
        status=AgentStatus(version="1"),
        nodes=[
            NodeReport(node="n1", gpus=gpus, host=HostColumns(ts=[NOW], cpu_util=[10.0])),
            NodeReport(node="n2", gpus=gpus, xids=XidColumns(ts=[NOW], xid=[79], gpu=[None])),
        ],
        links=LinkColumns(ts=[NOW, NOW - 1], link=["l1", "l1"], tx_bytes_per_s=[1.0, 2.0]),
        meters=MeterColumns(ts=[NOW], meter=["m1"], power_w=[-5.0]),
        limits=[
            LimitReport(
                limit="x",
                node="n1",
                kind="power_cap_w",
                state=LimitState.APPLIED,
                at=NOW,
                asked=500,
            )
        ],
        checkpoints=[
            CheckpointReport(
                job="a", node="n1", at=NOW, store=StoreState(run="r", lease_epoch=1, site="s1")
            )
        ],
    )
    document: dict[str, Any] = msgspec.to_builtins(batch)
    return document


def take(document: Any, *, is_json: bool = False) -> Salvaged:
    body = json.dumps(document).encode() if is_json else msgspec.msgpack.encode(document)
    return salvage(
        body,
        WHOLE,
        is_json=is_json,
        scope=SCOPE,
        names=FakeNames(),
        new_names=FakeNewNames(),
        limits=LIMITS,
    )


def kept(document: Any, *, is_json: bool = False) -> TelemetryBatch:
    batch = take(document, is_json=is_json).batch
    assert batch is not None
    return batch


def gpus_of(document: dict[str, Any], node: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = document["nodes"][node]["gpus"]
    return found


def test_of_a_good_batch_nothing_is_refused() -> None:
    salvaged = take(make_document())
    assert salvaged.batch == msgspec.convert(make_document(), TelemetryBatch)
    assert not salvaged.refusals.told


@pytest.mark.parametrize(
    ("column", "value", "code"),
    [
        ("power_w", "hot", "invalid_field"),
        ("power_w", -3, "invalid_field"),
        ("power_w", float("nan"), "invalid_field"),
        ("power_w", float("inf"), "invalid_field"),
        ("mem_used", 2**70, "invalid_field"),
        ("mem_used", [1], "invalid_field"),
        ("job", "", "invalid_field"),
        ("gpu", None, "invalid_field"),
        ("gpu", 9, "unknown_gpu"),
        ("ts", NOW + 31, "future_time"),
        ("ts", NOW - 3601, "too_old"),
        ("ts", "now", "invalid_field"),
    ],
)
def test_a_bad_value_costs_its_row_alone(column: str, value: Any, code: str) -> None:
    document = make_document()
    gpus_of(document)[column][1] = value
    # 2**70 and what is no number are beyond MessagePack and JSON respectively.
    salvaged = take(document, is_json=value == 2**70)
    assert salvaged.batch is not None
    whole = msgspec.convert(make_document(), TelemetryBatch)
    left, right = salvaged.batch.nodes
    assert left.gpus is not None
    assert (left.gpus.gpu, left.gpus.power_w) == ([0, 2, 3], [500.0, 300.5, 0.0])
    assert (left.host, right) == (whole.nodes[0].host, whole.nodes[1])
    assert (salvaged.batch.links, salvaged.batch.meters) == (whole.links, whole.meters)
    (told,) = salvaged.refusals.told
    assert (told.code, told.field) == (code, f"nodes[0].gpus.{column}[1]")
    assert salvaged.refusals.rows == {code: 1}


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_what_is_no_number_in_json_costs_its_row_alone(literal: str) -> None:
    body = json.dumps(make_document()).replace("300.5", literal, 1).encode()
    salvaged = salvage(
        body,
        WHOLE,
        is_json=True,
        scope=SCOPE,
        names=FakeNames(),
        new_names=FakeNewNames(),
        limits=LIMITS,
    )
    assert salvaged.batch is not None
    assert [len(n.gpus.ts) for n in salvaged.batch.nodes if n.gpus] == [3, 4]
    assert salvaged.refusals.told[0].field == "nodes[0].gpus.power_w[2]"


def test_arrays_of_unlike_length_cost_their_block() -> None:
    document = make_document()
    gpus_of(document)["power_w"].append(1.0)
    salvaged = take(document)
    assert salvaged.batch is not None
    assert salvaged.batch.nodes[0].gpus is None
    assert salvaged.batch.nodes[0].host is not None
    assert salvaged.refusals.rows == {"length_mismatch": 4}
    assert salvaged.refusals.told[0].field == "nodes[0].gpus.power_w"


@pytest.mark.parametrize("change", [{"watts": [1, 2, 3, 4]}, {"gpu": None}, {"power_w": 3}])
def test_a_block_of_another_form_costs_itself_alone(change: dict[str, Any]) -> None:
    document = make_document()
    gpus_of(document).update(change)
    batch = kept(document)
    assert batch.nodes[0].gpus is None
    assert batch.nodes[1].gpus is not None


def test_an_unknown_block_of_a_node_costs_itself_alone() -> None:
    document = make_document()
    document["nodes"][0]["fabric"] = {"ts": [NOW, NOW], "errors": [1, 2]}
    salvaged = take(document)
    assert salvaged.batch == msgspec.convert(make_document(), TelemetryBatch)
    assert salvaged.refusals.rows == {"invalid_field": 2}


def test_an_unknown_node_costs_its_rows_alone() -> None:
    document = make_document()
    document["nodes"][0]["node"] = "n9"
    salvaged = take(document)
    assert salvaged.batch is not None
    assert [report.node for report in salvaged.batch.nodes] == ["n2"]
    assert salvaged.refusals.rows == {"unknown_node": 5}


def test_an_unknown_link_or_meter_costs_its_row_alone() -> None:
    document = make_document()
    document["links"]["link"][0] = "nowhere"
    document["meters"]["meter"][0] = "nothing"
    salvaged = take(document)
    assert salvaged.batch is not None
    assert salvaged.batch.links == LinkColumns(ts=[NOW - 1], link=["l1"], tx_bytes_per_s=[2.0])
    assert salvaged.batch.meters is None
    assert salvaged.refusals.rows == {"unknown_link": 1, "unknown_meter": 1}


def test_a_bad_status_costs_no_row() -> None:
    document = make_document()
    document["status"]["errors"] = -1
    salvaged = take(document)
    assert salvaged.batch == msgspec.structs.replace(
        msgspec.convert(make_document(), TelemetryBatch), status=None
    )
    assert salvaged.refusals.told[0].field == "status.errors"
    assert not salvaged.refusals.rows.total()


@pytest.mark.parametrize(
    ("name", "change", "field"),
    [
        ("limits", {"state": "lost"}, "limits[1].state"),
        ("checkpoints", {"at": "now"}, "checkpoints[1].at"),
        ("checkpoints", {"at": NOW + 3600}, "checkpoints[1].at"),
        ("checkpoints", {"node": "n9"}, "checkpoints[1].node"),
        ("checkpoints", {"store": {"run": "r", "lease_epoch": 1, "site": "s9"}},
         "checkpoints[1].store.site"),
    ],
)  # fmt: skip
def test_a_bad_report_costs_itself_alone(name: str, change: dict[str, Any], field: str) -> None:
    document = make_document()
    document[name].append({**document[name][0], **change})
    salvaged = take(document)
    assert salvaged.batch == msgspec.convert(make_document(), TelemetryBatch)
    assert salvaged.refusals.told[0].field == field
    assert salvaged.refusals.rows.total() == 1


@pytest.mark.parametrize(
    "change",
    [
        {"nodes": 3},
        {"nodes": None},
        {"links": []},
        {"limits": {}},
        {"checkpoints": 1},
        {"meters": {"ts": [NOW]}},
    ],
)
def test_a_part_of_another_form_costs_itself_alone(change: dict[str, Any]) -> None:
    (name,) = change
    batch = kept({**make_document(), **change})
    without = make_document()
    del without[name]
    assert batch == msgspec.convert(without, TelemetryBatch)


def test_of_many_refused_rows_the_first_are_told_and_all_counted() -> None:
    document = make_document()
    rows = MAX_TOLD + 30
    document["nodes"][0]["gpus"] = {"ts": [NOW] * rows, "gpu": [9] * rows}
    refusals = take(document).refusals
    assert len(refusals.told) == MAX_TOLD
    assert refusals.rows == {"unknown_gpu": rows}


def test_where_no_row_is_left_there_is_no_batch() -> None:
    document = make_document()
    for name in ("links", "meters", "limits", "checkpoints"):
        del document[name]
    document["nodes"] = [{"node": "n9", "gpus": gpus_of(document)}]
    salvaged = take(document)
    assert salvaged.batch is None
    assert salvaged.refusals.rows == {"unknown_node": 4}


@pytest.mark.parametrize(("path", "name"), [("node", "n3"), ("link", "l3"), ("meter", "m3")])
def test_another_agents_things_cost_the_whole_batch(path: str, name: str) -> None:
    document = make_document()
    if path == "node":
        document["nodes"][1]["node"] = name
    else:
        document[f"{path}s"][path][0] = name
    with pytest.raises(OutOfScope) as refused:
        take(document)
    assert refused.value.error.code == f"foreign_{path}"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"agent": "agent-2"}, "agent"),
        ({"seq": "one"}, "seq"),
        ({"seq": 0}, "seq"),
        ({"oldest_seq": 9}, "oldest_seq"),
        ({"sent_at": float("nan")}, "sent_at"),
        ({"boot_id": None}, "boot_id"),
        ({"extra": 1}, ""),
    ],
)
def test_what_stands_around_the_rows_has_to_be_right(change: dict[str, Any], field: str) -> None:
    with pytest.raises(BatchError) as refused:
        take({**make_document(), **change})
    assert refused.value.error.field == field


@pytest.mark.parametrize("body", [b"", b"\xc1", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000])
@pytest.mark.parametrize("is_json", [True, False])
def test_what_is_no_document_is_refused_whole(body: bytes, is_json: bool) -> None:
    with pytest.raises(BatchError) as refused:
        salvage(
            body,
            WHOLE,
            is_json=is_json,
            scope=SCOPE,
            names=FakeNames(),
            new_names=FakeNewNames(),
            limits=LIMITS,
        )
    assert refused.value is WHOLE


_junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["ts", "gpu", "node", "x", ""]), inner, max_size=3)
    ),
    max_leaves=5,
)
_blocks = st.sampled_from([("nodes", 0, "gpus"), ("nodes", 1, "gpus"), ("links",)])


@settings(max_examples=150, deadline=None)
@given(
    cells=st.lists(
        st.tuples(_blocks, st.integers(0, 6), st.integers(0, 3), _junk), min_size=1, max_size=6
    )
)
def test_whatever_stands_in_a_cell_its_neighbors_are_taken(
    cells: list[tuple[tuple[Any, ...], int, int, Any]],
) -> None:
    document = make_document()
    touched: dict[tuple[Any, ...], set[int]] = {}
    for block, column, row, junk in cells:
        columns = document
        for step in block:
            columns = columns[step]
        values = columns[sorted(columns)[column % len(columns)]]
        values[row % len(values)] = junk
        touched.setdefault(block, set()).add(row % len(values))
    try:
        batch = kept(document)
    except OutOfScope:
        return  # junk that named another agent's link
    assert decode_batch(encode_batch(batch), json=False) == batch
    good: Any = msgspec.convert(make_document(), TelemetryBatch)
    for index in (0, 1):
        untouched = {0, 1, 2, 3} - touched.get(("nodes", index, "gpus"), set())
        assert _rows(good.nodes[index].gpus, untouched) <= _rows(batch.nodes[index].gpus)
    assert _rows(good.links, {0, 1} - touched.get(("links",), set())) <= _rows(batch.links)


def _rows(block: Any, only: set[int] | None = None) -> set[tuple[Any, ...]]:
    """The rows of a block, each with the names of its fields."""
    if block is None:
        return set()
    fields = {n: v for n, v in msgspec.structs.asdict(block).items() if v is not None}
    return {
        tuple((name, values[i]) for name, values in fields.items())
        for i in range(len(block.ts))
        if only is None or i in only
    }


@settings(max_examples=150, deadline=None)
@given(junk=_junk, place=st.data())
def test_whatever_stands_anywhere_it_is_taken_or_refused(junk: Any, place: st.DataObject) -> None:
    document = copy.deepcopy(make_document())
    inside: Any = document
    while True:
        keys = list(range(len(inside))) if isinstance(inside, list) else sorted(inside)
        key = place.draw(st.sampled_from(keys))
        if not isinstance(inside[key], list | dict) or not inside[key] or place.draw(st.booleans()):
            break
        inside = inside[key]
    inside[key] = junk
    try:
        batch = take(document).batch
    except BatchError:
        return
    if batch is not None:
        assert decode_batch(encode_batch(batch), json=False) == batch


def test_a_job_that_runs_elsewhere_costs_its_row() -> None:
    document = make_document()
    document["jobs"] = {"ts": [NOW] * 3, "job": ["a", "foreign", "b"], "loss": [1.0, 2.0, 3.0]}
    found = take(document)
    assert found.batch is not None
    assert found.batch.jobs is not None
    assert found.batch.jobs.loss == [1.0, 3.0]
    assert [(e.code, e.field) for e in found.refusals.told] == [("foreign_job", "jobs.job[1]")]


def test_a_gpu_that_is_labeled_with_it_keeps_its_reading() -> None:
    document = make_document()
    gpus_of(document)["job"][2] = "foreign"
    found = take(document)
    assert found.batch is not None
    gpus = found.batch.nodes[0].gpus
    assert gpus is not None
    assert (gpus.job, gpus.power_w) == (["a", None, None, "c"], [500.0, None, 300.5, 0.0])
    assert [e.field for e in found.refusals.told] == ["nodes[0].gpus.job[2]"]


def test_a_mount_too_many_costs_its_row() -> None:
    document = make_document()
    document["nodes"][1]["storage"] = {
        "ts": [NOW] * 2,
        "mount": ["/home", "foreign"],
        "read_s": [1.0, 2.0],
    }
    found = take(document)
    assert found.batch is not None
    storage = found.batch.nodes[1].storage
    assert storage is not None
    assert storage.mount == ["/home"]
    assert [e.field for e in found.refusals.told] == ["nodes[1].storage.mount[1]"]
