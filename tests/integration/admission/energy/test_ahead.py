"""What is known of the hours ahead: the grid's figures, else the tariff; and jobs go by it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from accounts.roles import Role
from admission.cycle import live
from admission.energy import actions, ahead
from admission.energy.actions import Told
from admission.energy.models import GridHour
from fleet.models import Site
from headroom.jobs.reading import SpecError
from headroom.jobs.reading import read as read_spec
from tests.builders.accounts import make_user
from tests.builders.readings import make_node

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


@pytest.fixture
def hour(db: None) -> datetime:
    make_node("n1", gpus=2)
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0)


def tell(hour: datetime, *prices: float | None) -> None:
    told = [Told(hour + n * HOUR, price_per_kwh=each) for n, each in enumerate(prices)]
    source = GridHour.Source.FILE
    actions.take_grid(Site.objects.get(), told, source, now=datetime.now(UTC))


def state(hour: datetime, **given: float) -> None:
    actions.make_tariff(make_user(Role.OPERATOR), Site.objects.get(), hour, given, now=hour)


def test_the_grid_goes_before_the_tariff_and_its_gaps_are_not_known(hour: datetime) -> None:
    state(hour - HOUR, price_per_kwh=0.3, carbon_g_per_kwh=200.0)
    state(hour + 2 * HOUR, price_per_kwh=0.3, carbon_g_per_kwh=100.0)
    tell(hour, 0.1, 0.2)
    found = ahead.read(hour.timestamp() + 60.0)
    assert found.sites == ("oslo",)
    assert found.price[0, :2].tolist() == [0.1, 0.2]
    assert np.isnan(found.price[0, 2:]).all()
    # It tells of no carbon: the tariffs that hold at each hour.
    assert found.carbon[0, :3].tolist() == [200.0, 200.0, 100.0]


def test_where_nobody_tells_nothing_is_known(hour: datetime) -> None:
    found = ahead.read(hour.timestamp())
    assert np.isnan(found.price).all()
    assert np.isnan(found.carbon).all()


def test_cycles_go_by_figures_that_have_just_come(hour: datetime) -> None:
    now = datetime.now(UTC).timestamp()
    before = live.snapshot(now).ahead
    assert before is not None
    assert np.isnan(before.price).all()
    tell(hour, 0.1, 0.2)
    after = live.snapshot(now).ahead
    assert after is not None
    assert after.price[0, 1] == 0.2


def test_who_may_wait_says_for_what() -> None:
    text = """
    project: vision
    class: training
    phases:
      - {name: train, gang: {gpus: 1}, walltime_s: 60, energy: {may_wait_s: 3600}}
    """
    with pytest.raises(SpecError) as error:
        read_spec(text.encode(), "application/yaml")
    assert error.value.problems[0].field == "phases[0].energy.prefer"
