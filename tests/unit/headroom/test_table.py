from __future__ import annotations

from headroom.agent.table import as_tables
from headroom.contracts import (
    GpuColumns,
    LinkColumns,
    NodeReport,
    TelemetryBatch,
    XidColumns,
)


def make(**parts: object) -> TelemetryBatch:
    return TelemetryBatch(
        agent="a",
        boot_id="b",
        seq=1,
        oldest_seq=1,
        sent_at=0.0,
        **parts,  # type: ignore[arg-type]
    )


def lines(batch: TelemetryBatch) -> list[list[str]]:
    return [line.split() for line in as_tables(batch).splitlines()]


def test_each_thing_has_a_column_with_its_newest_reading() -> None:
    gpus = GpuColumns(
        ts=[0.0, 0.0, 1.0, 1.0],
        gpu=[0, 1, 0, 1],
        power_w=[1.0, 2.0, 612.25, None],
        mem_used=[None, None, 85_520_809_984, 0],
    )
    found = lines(make(nodes=[NodeReport(node="n1", gpus=gpus)]))
    assert found[0] == ["gpus", "of", "n1"]
    assert found[1] == ["gpu", "0", "1"]
    assert ["power_w", "612.25", "-"] in found
    assert ["mem_used", "85520809984", "0"] in found
    assert not [line for line in found if line and line[0] == "temp_c"]


def test_links_stand_for_themselves_and_every_xid_is_shown() -> None:
    found = lines(
        make(
            nodes=[NodeReport(node="n1", xids=XidColumns(ts=[0.0, 1.0], xid=[79, 119]))],
            links=LinkColumns(ts=[0.0], link=["up"], errors=[3]),
        )
    )
    assert ["xid", "79", "119"] in found
    assert ["links"] in found
    assert ["errors", "3"] in found


def test_nothing_is_said_to_be_nothing() -> None:
    assert as_tables(make()) == "nothing was read"
