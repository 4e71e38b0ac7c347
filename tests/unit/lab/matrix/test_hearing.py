"""What ranks report reaches the matrix, and nothing else that comes does harm."""

from __future__ import annotations

import socket
from pathlib import Path

from headroom.contracts import StoreState
from headroom.training.reports import RankReport, Sender, StoreReport
from lab.matrix.hearing import Ear

REPORT = RankReport(rank=1, world=2, step=3, steps=3, span_s=1.0, sections={"gradient_sync": 0.5})


def test_reports_of_ranks_are_heard_in_their_order(tmp_path: Path) -> None:
    ear = Ear(tmp_path)
    (path,) = map(Path, ear.environment.values())
    sender = Sender(path)
    assert ear.take() == []
    assert all(sender.send(REPORT) for _ in range(2))
    assert ear.take() == [REPORT, REPORT]
    assert ear.take() == []
    sender.close()
    ear.close()
    assert not path.exists()


def test_what_is_no_report_of_a_rank_is_left_out(tmp_path: Path) -> None:
    ear = Ear(tmp_path)
    (path,) = map(Path, ear.environment.values())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as odd:
        for said in (b"", b"\xc1", b"{}", b"x" * 20_000):
            odd.sendto(said, str(path))
    sender = Sender(path)
    sender.send(StoreReport(store=StoreState(run="r", lease_epoch=0)))
    sender.send(REPORT)
    assert ear.take() == [REPORT]
    sender.close()
    ear.close()
