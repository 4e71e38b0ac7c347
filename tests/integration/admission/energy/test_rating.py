"""Hours are rated by the tariff that held and by the grid, whichever comes first."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command

from accounts.models import AuditEntry
from accounts.roles import Role
from admission.energy import actions
from admission.energy import ledger as closing
from admission.energy.actions import Told
from admission.energy.models import GridHour, SiteHour, Tariff
from fleet.models import Site
from tests.builders.accounts import make_user
from tests.builders.ledger import Ledger

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


def make(ledger: Ledger, after: timedelta = -HOUR, **given: object) -> Tariff:
    user = make_user(Role.OPERATOR)
    now, site = ledger.hour + 2 * HOUR, Site.objects.get()
    return actions.make_tariff(user, site, ledger.hour + after, given, now=now)


def test_a_tariff_that_comes_later_rates_hours_that_are_closed(ledger: Ledger) -> None:
    ledger.close()
    make(ledger, price_per_kwh=0.2, carbon_g_per_kwh=300.0, gpu_hour=1.5)
    row = SiteHour.objects.get()
    assert (row.price_per_kwh, row.carbon_g_per_kwh, row.gpu_hour) == (0.2, 300.0, 1.5)
    assert row.carbon_source == "tariff"
    entry = AuditEntry.objects.get(action="energy.tariff")
    assert entry.detail["price_per_kwh"] == 0.2


def test_a_price_holds_from_its_date_on(ledger: Ledger) -> None:
    make(ledger, after=HOUR, price_per_kwh=0.2)
    assert ledger.close().price_per_kwh is None


def test_a_stated_pue_closes_hours_again(ledger: Ledger) -> None:
    ledger.read("n1", {0: 500.0})
    ledger.job("llama", {"n1": [0]})
    assert ledger.close().overhead_mj == 0
    make(ledger, pue=1.25)
    assert closing.close_due((ledger.hour + 2 * HOUR).timestamp())
    row = SiteHour.objects.get(hour=ledger.hour)
    assert row.overhead_mj == pytest.approx(row.it_mj / 4, abs=1)
    assert row.basis == SiteHour.OverheadBasis.STATED


def test_the_highest_hour_of_a_month_carries_its_demand_charge(ledger: Ledger) -> None:
    ledger.read("n1", {0: 500.0})
    first = ledger.close()
    make(ledger, demand_per_kw=10.0)
    first.refresh_from_db()
    kw = (first.jobs_mj + first.idle_mj + first.unmanaged_mj) / 3.6e9
    assert first.demand == pytest.approx(10 * kw)
    later = SiteHour.objects.get()
    later.pk, later.hour, later.idle_mj = None, ledger.hour + HOUR, 10 * first.unmanaged_mj
    later.five_minutes_mj = []
    later.save()
    actions.take_grid(Site.objects.get(), [Told(later.hour, 1.0)], GridHour.Source.FILE,
                      now=ledger.hour + 2 * HOUR)  # fmt: skip
    if (ledger.hour + HOUR).month == ledger.hour.month:
        first.refresh_from_db()
        assert first.demand == 0.0
    assert SiteHour.objects.get(hour=later.hour).demand > 10 * kw


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"pue": 0.9}, "pue"),
        ({"carbon_g_per_kwh": -1.0}, "carbon_g_per_kwh"),
        ({"price_per_kwh": float("nan")}, "price_per_kwh"),
        ({"zone": "DE/../x"}, "zone"),
        ({"demand_interval_min": 7}, "demand_interval_min"),
        ({"demand_interval_min": 0}, "demand_interval_min"),
    ],
)
def test_a_tariff_that_cannot_be_is_refused_by_its_field(
    ledger: Ledger, given: dict[str, Any], field: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        make(ledger, **given)
    assert field in caught.value.message_dict


def test_a_tariff_begins_with_an_hour_and_once(ledger: Ledger) -> None:
    with pytest.raises(ValidationError, match="whole hour"):
        make(ledger, after=timedelta(minutes=5))
    make(ledger)
    with pytest.raises(ValidationError, match="already exists"):
        actions.make_tariff(
            make_user(Role.OPERATOR), Site.objects.get(), ledger.hour - HOUR, {},
            now=ledger.hour,
        )  # fmt: skip


def test_a_file_of_the_grid_is_imported(ledger: Ledger, tmp_path: Path) -> None:
    ledger.close()
    make(ledger, price_per_kwh=0.2, carbon_g_per_kwh=300.0)
    file = tmp_path / "grid.csv"
    file.write_text(f"hour,carbon_g_per_kwh\n{ledger.hour.isoformat()},99.5\n")
    out = StringIO()
    call_command("import_grid", "oslo", str(file), stdout=out)
    assert out.getvalue() == "1 hours of oslo\n"
    row = SiteHour.objects.get()
    assert (row.carbon_g_per_kwh, row.carbon_source, row.price_per_kwh) == (99.5, "file", 0.2)
    file.write_text("hour,price_per_kwh\nnow,1\n")
    with pytest.raises(CommandError, match="line 2: hour"):
        call_command("import_grid", "oslo", str(file))
    with pytest.raises(CommandError, match="no site 'paris'"):
        call_command("import_grid", "paris", str(file))


def test_what_is_not_told_anew_stays(ledger: Ledger) -> None:
    site, now = Site.objects.get(), ledger.hour + HOUR
    actions.take_grid(site, [Told(ledger.hour, 100.0, 0.5)], GridHour.Source.FILE, now=now)
    actions.take_grid(site, [Told(ledger.hour, 90.0)], GridHour.Source.ELECTRICITY_MAPS, now=now)
    row = GridHour.objects.get()
    assert (row.carbon_g_per_kwh, row.price_per_kwh) == (90.0, 0.5)
