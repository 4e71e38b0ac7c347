"""A site is lost: ten thousand firings in one round."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fleet import snapshot
from policies.incidents import follow, notify
from policies.incidents.models import Delivery, IncidentMember, NotificationChannel
from tests.builders.arrays import make_arrays
from tests.builders.firings import NOW, make_firing

COUNT = 10_000


def timed(what: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    what()
    return time.perf_counter() - begin


@pytest.mark.slow
@pytest.mark.django_db
def test_ten_thousand_firings_at_once(
    monkeypatch: pytest.MonkeyPatch, django_assert_max_num_queries: Any
) -> None:
    fleet = make_arrays(sites=2, racks=1500)
    monkeypatch.setattr(snapshot, "current", lambda max_age_s=2.0: fleet)
    NotificationChannel.objects.create(name="ops", kind="webhook", target="https://example.com/")
    names = fleet.nodes.names.tolist()
    firings = [make_firing(f"node {name}", rule) for rule in ("stale", "hot") for name in names][
        : COUNT - 1
    ]
    firings.append(make_firing("power_domain s1/utility", "feed-loss"))
    took = {}
    with django_assert_max_num_queries(40):
        took["open"] = timed(lambda: follow.fired(firings, now=NOW))
    assert IncidentMember.objects.count() == COUNT
    with django_assert_max_num_queries(15):
        took["same again"] = timed(lambda: follow.fired(firings, now=NOW + timedelta(seconds=2)))
    with django_assert_max_num_queries(30):
        took["notify"] = timed(lambda: notify.queue_due(now=NOW + timedelta(seconds=10)))
    assert Delivery.objects.count() == 3
    with django_assert_max_num_queries(40):
        took["clear"] = timed(lambda: follow.cleared(firings, now=NOW + timedelta(minutes=5)))
    assert not IncidentMember.objects.filter(cleared_at=None).exists()
    assert took["open"] < 12, took
    assert took["same again"] < 3, took
    print(took)
