"""The status of the queue in Redis, as the last cycle left it."""

from __future__ import annotations

import numpy as np
import pytest

from admission.core.cycle.decide import Waiting
from admission.core.cycle.order import order
from admission.core.cycle.queue import Stage
from admission.core.reasons import Reason, ReasonToken
from admission.core.snapshot import Tuning
from admission.queue import queue_status
from admission.queue.queue_status import PendingStatus, QueueStatus, TraceLine
from policies.scopes import Scope, ScopeKind
from tests.builders.jobs import make_request

NO_ORDER = order((), (), {}, now=0.0, tuning=Tuning())
FEED = Scope(ScopeKind.POWER_DOMAIN, "oslo/feed-b2")


def reason(token: ReasonToken = ReasonToken.FEED_POWER, scope: Scope | None = FEED) -> Reason:
    evidence = {"at": np.float64(12.5), "rows": np.int64(3), "restrictions": [4]}
    return Reason(token, 41_200.0, 36_800.0, "W", scope, "needs 41.2 kW on feed b2", evidence)


def put_up(count: int, cycle: int = 1) -> None:
    lines = queue_status.reason_lines([reason(ReasonToken.THERMAL, None), reason()])
    queue_status.publish(
        QueueStatus(
            cycle=cycle, at=100.0 + cycle, waiting=count, running=3, admitted=1
        ),
        {
            f"job-{place}/train": PendingStatus(
                place + 1, lines, 60.0, 120.0, 300.0, "the queue", (TraceLine("order", True, "1"),)
            )
            for place in range(count)
        },
    )  # fmt: skip


def test_a_status_is_read_as_it_was_published() -> None:
    put_up(2_500)
    found = queue_status.read()
    assert found is not None
    assert (found.at, found.waiting, found.failed) == (101.0, 2_500, ())
    assert queue_status.order(first=2_498, count=5) == ["job-2498/train", "job-2499/train"]
    assert queue_status.order(count=0) == []
    assert queue_status.positions()["job-1999/train"] == 2_000
    pending_statuses = queue_status.pending_statuses(["job-7/train", "gone/train"])
    assert list(pending_statuses) == ["job-7/train"]
    one = pending_statuses["job-7/train"]
    assert (one.position, one.p10_s, one.p90_s, one.trace[0].check) == (8, 60.0, 300.0, "order")
    first, second = one.reasons
    assert (first.token, first.scope_kind, first.scope_name) == (
        "FeedPowerHeadroom", "power_domain", "oslo/feed-b2",
    )  # fmt: skip
    assert first.short == pytest.approx(4_400.0)
    assert first.evidence == {"at": 12.5, "rows": 3, "restrictions": [4]}
    assert (second.token, second.scope_kind) == ("ThermalHeadroom", "")


def test_a_new_status_takes_the_place_of_the_old_one() -> None:
    put_up(30)
    put_up(2, cycle=2)
    found = queue_status.read()
    assert found is not None
    assert found.cycle == 2
    assert queue_status.order() == ["job-0/train", "job-1/train"]
    assert queue_status.pending_statuses(["job-20/train"]) == {}
    put_up(0, cycle=3)
    assert (queue_status.order(), queue_status.pending_statuses(["job-0/train"])) == ([], {})


def test_without_a_status_nothing_is_known() -> None:
    queue_status.forget()
    assert (
        queue_status.read(),
        queue_status.order(),
        queue_status.pending_statuses(["job-0/train"]),
    ) == (
        None,
        [],
        {},
    )


def test_what_waits_is_counted_by_class_and_reason() -> None:
    waiting = [
        Waiting(
            make_request(f"job-{place}", job_class=job_class, submitted_at=100.0 - place),
            (reason(token),), reason(token), place, NO_ORDER, 0, Stage.FLEET,
        )
        for place, (job_class, token) in enumerate(
            [("a", ReasonToken.THERMAL), ("a", ReasonToken.THERMAL), ("b", ReasonToken.ON_HOLD)]
        )
    ]  # fmt: skip
    counts = {(each.job_class, each.reason): each for each in queue_status.counts(waiting, 110.0)}
    assert {key: each.count for key, each in counts.items()} == {
        ("a", "ThermalHeadroom"): 2, ("b", "OnHold"): 1,
    }  # fmt: skip
    assert counts["a", "ThermalHeadroom"].oldest_s == 11.0
