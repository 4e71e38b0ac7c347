from __future__ import annotations

import msgspec

from headroom.agent.actuation.reports import Reports
from headroom.contracts import LimitReport, LimitState
from tests.unit.headroom.builders import Clock

REPORT = LimitReport(
    limit="l1", node="n1", gpu=0, kind="power_cap_w", state=LimitState.APPLIED, at=0.0,
    asked=400, applied=400,
)  # fmt: skip


def test_a_report_says_since_when_it_is_so() -> None:
    clock = Clock(10.0)
    reports = Reports(clock)
    reports.add(REPORT)
    clock.now = 20.0
    reports.add(msgspec.structs.replace(REPORT, watts_after=398.0))
    reports.add(msgspec.structs.replace(REPORT, applied=300))
    assert [report.at for report in reports.take()] == [10, 10, 20]


def test_the_same_again_is_not_told_and_the_end_is_told_once() -> None:
    reports = Reports(Clock())
    ended = msgspec.structs.replace(REPORT, state=LimitState.EXPIRED)
    for report in (REPORT, REPORT, ended, REPORT):
        reports.add(report)
    assert [report.state.value for report in reports.take()] == ["applied", "expired", "applied"]
    assert reports.take() == []


def test_what_got_nowhere_waits_in_its_old_place() -> None:
    reports = Reports(Clock())
    reports.add(REPORT)
    first = reports.take()
    reports.add(msgspec.structs.replace(REPORT, gpu=1))
    reports.put_back(first)
    assert [report.gpu for report in reports.take()] == [0, 1]
