from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.agent.batches import chosen, halved, thinned
from headroom.contracts import (
    CheckpointReport,
    GpuColumns,
    HostColumns,
    LimitReport,
    LimitState,
    LinkColumns,
    MeterColumns,
    NodeReport,
    StorageColumns,
    StoreState,
    TelemetryBatch,
    XidColumns,
    blocks,
    row_count,
)


def make(**parts: object) -> TelemetryBatch:
    return TelemetryBatch(
        agent="a",
        boot_id="b",
        seq=7,
        oldest_seq=1,
        sent_at=0.0,
        **parts,  # type: ignore[arg-type]
    )


def node(name: str = "n1", **parts: object) -> NodeReport:
    return NodeReport(node=name, **parts)  # type: ignore[arg-type]


def rows(count: int, *, gpus: int = 1) -> GpuColumns:
    """Readings of so many GPUs, one after another, each with its number as its temperature."""
    steps = [(t, gpu) for t in range(count) for gpu in range(gpus)]
    return GpuColumns(
        ts=[float(t) for t, _ in steps],
        gpu=[gpu for _, gpu in steps],
        temp_c=[float(t) for t, _ in steps],
    )


def times(batch: TelemetryBatch, path: str) -> list[float]:
    return dict(blocks(batch))[path].ts


@pytest.mark.parametrize(
    ("count", "kept"), [(1, [0]), (2, [0]), (3, [0, 2]), (5, [0, 2, 4]), (6, [0, 2, 4])]
)
def test_every_second_reading_stays_and_the_first_of_all(count: int, kept: list[float]) -> None:
    assert times(thinned(make(nodes=[node(gpus=rows(count))])), "nodes[0].gpus") == kept


def test_each_thing_keeps_its_own_every_second() -> None:
    batch = thinned(make(nodes=[node(gpus=rows(3, gpus=2))]))
    block = batch.nodes[0].gpus
    assert block is not None
    assert list(zip(block.ts, block.gpu, strict=True)) == [(0, 0), (0, 1), (2, 0), (2, 1)]
    assert block.temp_c == [0, 0, 2, 2]
    assert block.power_w is None


def test_all_blocks_are_thinned_but_the_kernels_xids() -> None:
    ts = [0.0, 1.0, 2.0]
    batch = make(
        nodes=[
            node(
                host=HostColumns(ts=ts),
                storage=StorageColumns(ts=ts, mount=["/a"] * 3),
                xids=XidColumns(ts=ts, xid=[79, 79, 79]),
            )
        ],
        links=LinkColumns(ts=ts, link=["l", "m", "l"]),
        meters=MeterColumns(ts=ts, meter=["m"] * 3),
    )
    found = {path: block.ts for path, block in blocks(thinned(batch))}
    assert found == {
        "nodes[0].host": [0, 2],
        "nodes[0].storage": [0, 2],
        "nodes[0].xids": ts,
        "links": [0, 1],
        "meters": [0, 2],
    }


def test_a_reading_with_an_xid_stays() -> None:
    block = rows(5)
    block.xid = [None, 79, None, None, None]
    assert times(thinned(make(nodes=[node(gpus=block)])), "nodes[0].gpus") == [0, 1, 2, 4]


def test_thinning_comes_to_an_end_with_one_reading_of_each() -> None:
    batch = make(nodes=[node(gpus=rows(5, gpus=8))])
    counts = []
    for _ in range(5):
        batch = thinned(batch)
        counts.append(row_count(batch))
    assert counts == [24, 16, 8, 8, 8]


def test_a_batch_is_cut_in_two_by_its_rows() -> None:
    report = LimitReport(
        limit="l", node="n1", kind="power_cap_w", state=LimitState.APPLIED, at=0.0, asked=300
    )
    told = CheckpointReport(job="j", node="n1", at=0.0, store=StoreState(run="r", lease_epoch=0))
    batch = make(
        nodes=[node("n1", gpus=rows(4)), node("n2", host=HostColumns(ts=[0.0, 1.0]))],
        links=LinkColumns(ts=[0.0, 1.0], link=["a", "b"]),
        limits=[report],
        checkpoints=[told],
    )
    cut = halved(batch)
    assert cut is not None
    first, second = cut
    assert {path: len(block) for path, block in blocks(first)} == {"nodes[0].gpus": 4}
    assert {path: len(block) for path, block in blocks(second)} == {"nodes[0].host": 2, "links": 2}
    assert second.nodes[0].node == "n2"
    assert (first.limits, second.limits) == ([report], [])
    assert (first.checkpoints, second.checkpoints) == ([told], [])


@pytest.mark.parametrize("parts", [{}, {"nodes": [node(gpus=rows(1))]}])
def test_a_batch_of_one_row_cannot_be_cut(parts: dict[str, object]) -> None:
    assert halved(make(**parts)) is None


@given(
    counts=st.lists(st.integers(0, 6), min_size=1, max_size=4),
    links=st.lists(st.sampled_from("abc"), max_size=8),
)
def test_two_halves_hold_every_row_once(counts: list[int], links: list[str]) -> None:
    batch = make(
        nodes=[node(f"n{i}", gpus=rows(count)) for i, count in enumerate(counts) if count],
        links=LinkColumns(ts=[float(i) for i in range(len(links))], link=list(links)),
    )
    cut = halved(batch)
    if cut is None:
        assert row_count(batch) < 2
        return

    def identities(part: TelemetryBatch) -> list[tuple[str, float]]:
        found = [(r.node, ts) for r in part.nodes if r.gpus is not None for ts in r.gpus.ts]
        return found + [("links", ts) for ts in (part.links.ts if part.links else [])]

    assert identities(cut[0]) + identities(cut[1]) == identities(batch)
    assert abs(row_count(cut[0]) - row_count(cut[1])) <= 1


def test_what_is_left_without_rows_is_left_out() -> None:
    batch = make(nodes=[node("n1", gpus=rows(2)), node("n2", gpus=rows(2))])
    left = chosen(batch, lambda path, block: [] if path.startswith("nodes[0]") else [1])
    assert [report.node for report in left.nodes] == ["n2"]
    assert times(left, "nodes[0].gpus") == [1]
    assert (left.seq, left.agent) == (7, "a")
