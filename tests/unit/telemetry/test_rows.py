"""From batches to records and from the records of many batches to rows."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.contracts import (
    GpuColumns,
    HostColumns,
    JobColumns,
    LinkColumns,
    NodeReport,
    StorageColumns,
    TelemetryBatch,
    XidColumns,
)
from telemetry import rows
from telemetry.directory import AgentScope, KnownNode, KnownThing
from telemetry.rows import Directory, Gathered, Mount, NotPackable, Packed
from telemetry.samples import NULL_INT

SCOPE = AgentScope(1, "agent", node_ids=frozenset({10, 20}), site_ids=frozenset())


class FakeNames:
    """Two nodes of the agent's and one of another's, a link on each."""

    nodes = {
        "n1": KnownNode(10, 1, {index: 100 + index for index in range(8)}),
        "n2": KnownNode(20, 1, {index: 200 + index for index in range(4)}),
        "other": KnownNode(30, 1, {0: 300}),
    }
    links = {"l1": KnownThing(7, 10, 1), "l3": KnownThing(8, 30, 1)}

    def node(self, name: str) -> KnownNode | None:
        return self.nodes.get(name)

    def link(self, name: str) -> KnownThing | None:
        return self.links.get(name)


def pack(*reports: NodeReport, **parts: Any) -> Packed:
    batch = TelemetryBatch(
        agent="agent", boot_id="b", seq=1, oldest_seq=1, sent_at=0.0, nodes=list(reports), **parts
    )
    packed = rows.pack(batch, SCOPE, FakeNames())  # type: ignore[arg-type]
    # As it comes off the stream.
    return msgspec.msgpack.decode(msgspec.msgpack.encode(packed), type=Packed)


def gather(
    *packed: Packed, jobs: dict[str, int] | None = None, mounts: dict[Mount, int] | None = None
) -> Gathered:
    gpu_ids = [100 + index for index in range(8)] + [200 + index for index in range(4)]
    known = {"gpu": np.array(gpu_ids), "host": np.array([10, 20]), "link": np.array([7])}
    directory = Directory(known, jobs or {}, mounts or {})
    return rows.gather([(each, float(at)) for at, each in enumerate(packed)], directory)


def values(gathered: Gathered, kind: str, column: str) -> list[Any]:
    """The values of a column, None for null."""
    array = gathered.rows[kind].columns[column]
    return [None if v == NULL_INT or v != v else v for v in array.tolist()]


_WATTS = st.none() | st.floats(0, 1e6, width=32)
_JOULES = st.none() | st.floats(0, 1e18)
_COUNTER = st.none() | st.integers(0, 2**63 - 1)


@st.composite
def gpu_blocks(draw: st.DrawFn) -> GpuColumns:
    size = draw(st.integers(0, 5))

    def column(of: Any) -> Any:
        return draw(st.none() | st.lists(of, min_size=size, max_size=size))

    return GpuColumns(
        ts=draw(st.lists(st.floats(0, 1e10), min_size=size, max_size=size)),
        gpu=draw(st.lists(st.integers(0, 3), min_size=size, max_size=size)),
        power_w=column(_WATTS),
        energy_j=column(_JOULES),
        throttle=column(_COUNTER),
        job=column(st.none() | st.sampled_from(["a", "b"])),
    )


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["n1", "n2"]), gpu_blocks()), max_size=6))
def test_every_reading_arrives_once_with_its_nulls(found: list[tuple[str, GpuColumns]]) -> None:
    expected = []
    for node, block in found:
        nothing: list[None] = [None] * len(block)
        columns = (block.power_w, block.energy_j, block.throttle, block.job)
        for ts, gpu, *rest in zip(
            block.ts, block.gpu, *(c or nothing for c in columns), strict=True
        ):
            job = {"a": 1, "b": 2, None: None}[rest.pop()]
            expected.append((FakeNames.nodes[node].gpu_ids[gpu], ts, *rest, job))
    # Half of the reports in one batch, half in another.
    reports = [NodeReport(node=node, gpus=block) for node, block in found]
    half = len(reports) // 2
    gathered = gather(pack(*reports[:half]), pack(*reports[half:]), jobs={"a": 1, "b": 2})
    names = ("gpu_id", "ts", "power_w", "energy_j", "throttle", "job_id")
    stored = []
    if "gpu" in gathered.rows:
        stored = list(zip(*(values(gathered, "gpu", name) for name in names), strict=True))
    assert sorted(stored, key=repr) == sorted(expected, key=repr)
    assert gathered.dropped == 0


def test_each_row_knows_when_its_batch_was_received() -> None:
    one = pack(NodeReport(node="n1", gpus=GpuColumns(ts=[5.0, 5.0], gpu=[0, 1])))
    other = pack(NodeReport(node="n2", gpus=GpuColumns(ts=[6.0], gpu=[0])))
    assert gather(one, other).received_at["gpu"].tolist() == [0.0, 0.0, 1.0]


def test_a_name_that_is_unknown_or_anothers_is_not_packable() -> None:
    for node, gpu in (("n9", 0), ("n2", 4), ("other", 0)):
        with pytest.raises(NotPackable):
            pack(NodeReport(node=node, gpus=GpuColumns(ts=[1.0], gpu=[gpu])))
    for link in ("l3", "l9"):
        with pytest.raises(NotPackable):
            pack(links=LinkColumns(ts=[1.0, 1.0], link=["l1", link]))
    with pytest.raises(NotPackable):
        pack(NodeReport(node="n2", xids=XidColumns(ts=[1.0], xid=[79], gpu=[5])))


def test_places_of_jobs_are_those_of_their_own_batch() -> None:
    def jobs(*names: str) -> Packed:
        return pack(jobs=JobColumns(ts=[1.0] * len(names), job=list(names)))

    found = [jobs("b", "a", "b"), pack(), jobs("c"), jobs("a")]
    assert rows.job_names(found) == {"a", "b", "c"}
    assert values(gather(*found, jobs={"a": 1, "b": 2, "c": 3}), "job", "job_id") == [2, 1, 2, 3, 1]


def test_things_that_were_removed_in_between_are_left_out_and_counted() -> None:
    storage = StorageColumns(ts=[1.0, 1.0], mount=["/a", "/b"], fsync_s=[0.25, 0.5])
    report = NodeReport(
        node="n1", gpus=GpuColumns(ts=[1.0, 1.0], gpu=[0, 1]), host=HostColumns(ts=[1.0]),
        storage=storage,
    )  # fmt: skip
    known = {"gpu": np.array([101]), "host": np.array([20]), "link": np.array([])}
    gathered = rows.gather([(pack(report), 0.0)], Directory(known, {}, {Mount(10, "/b"): 5}))
    assert values(gathered, "gpu", "gpu_id") == [101]
    assert gathered.received_at["gpu"].tolist() == [0.0]
    assert "host" not in gathered.rows
    assert (values(gathered, "storage", "mount_id"), values(gathered, "storage", "fsync_s")) == (
        [5],
        [0.5],
    )
    assert gathered.dropped == 3


def test_the_span_holds_all_times_those_of_xids_too() -> None:
    packed = pack(
        NodeReport(node="n1", gpus=GpuColumns(ts=[5.0, 3.0], gpu=[0, 1])),
        NodeReport(node="n2", xids=XidColumns(ts=[9.0], xid=[48])),
    )
    assert (packed.span, packed.rows) == ((3.0, 9.0), 3)
    assert pack().span is None
