"""Sources of power are compared from roll-ups, for pages, API and metrics."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import REGISTRY

from fleet.models import Meter, Node
from telemetry import housekeeping, samples
from telemetry.trust import metrics
from telemetry.trust.compare import Standing, Told
from telemetry.trust.read import NodePower, compare
from tests.builders.accounts import api_client
from tests.builders.readings import make_node, write_samples

pytestmark = pytest.mark.django_db

#: On a full hour.
T0 = 1_800_000_000.0
NOW = T0 + 720
SECONDS = range(-30, 700, 5)


def write(
    node: Node,
    *,
    counted_w: float = 500.0,
    told_w: float = 500.0,
    host_w: float | None = 1000.0,
    meter_w: float | None = None,
) -> None:
    """Store what sources tell of a node of two GPUs, with a counter that is read each 10 s."""
    ts = [T0 + s for s in SECONDS]
    for gpu in node.gpus.all():
        energy_j = [counted_w * (s + 30) if s % 10 == 0 else None for s in SECONDS]
        write_samples(samples.GPU, gpu.pk, ts, power_w=told_w, energy_j=energy_j)
    if host_w is not None:
        write_samples(samples.HOST, node.pk, ts, power_w=host_w)
    if meter_w is not None:
        meter = Meter.objects.create(name=f"{node.name}-meter", node=node)
        write_samples(samples.METER, meter.pk, ts, power_w=meter_w)


def of(node: Node) -> NodePower:
    housekeeping.roll_up(NOW)
    (found,) = compare([node.pk], NOW)
    return found


def told(found: NodePower) -> dict[Told, tuple[float, Standing]]:
    return {
        each.source.told_by: (round(each.source.mean_w, 3), each.standing) for each in found.sources
    }


def test_counters_readings_and_meter_are_means_of_the_same_ten_minutes() -> None:
    node = make_node()
    write(node, meter_w=2050.0)
    assert told(of(node)) == {
        Told.ENERGY_COUNTER: (2000, Standing.AGREES),
        Told.POWER_READING: (2000, Standing.AGREES),
        Told.NODE_METER: (2050, Standing.AGREES),
    }


@pytest.mark.parametrize(
    ("off", "odd"),
    [
        ({"counted_w": 900.0}, Told.ENERGY_COUNTER),
        ({"told_w": 900.0}, Told.POWER_READING),
        ({"meter_w": 3000.0}, Told.NODE_METER),
    ],
)
def test_the_source_that_is_off_is_named(off: dict[str, float], odd: Told) -> None:
    node = make_node()
    write(node, **{"meter_w": 2000.0, **off})
    found = of(node)
    assert [each.source.told_by for each in found.sources if each.standing is Standing.ODD] == [odd]
    is_of_gpus = odd is not Told.NODE_METER
    assert all(
        (each.standing is Standing.DISPUTED) == is_of_gpus
        for judged in found.gpus.values()
        for each in judged
    )


def test_a_rack_meter_tells_of_a_node_what_the_others_leave() -> None:
    one, other = make_node("n1"), make_node("n2")
    write(one, told_w=900.0)
    write(other, meter_w=2000.0)
    pdu = Meter.objects.create(name="pdu", rack=one.rack)
    write_samples(samples.METER, pdu.pk, [T0 + s for s in SECONDS], power_w=4010.0)
    assert told(of(one)) == {
        Told.ENERGY_COUNTER: (2000, Standing.AGREES),
        Told.POWER_READING: (2800, Standing.ODD),
        Told.RACK_METER: (2010, Standing.AGREES),
    }


def test_without_the_host_gpus_are_a_part() -> None:
    node = make_node()
    write(node, host_w=None, meter_w=2600.0)
    assert {standing for _, standing in told(of(node)).values()} == {Standing.AGREES}
    assert [each.source.is_floor for each in of(node).sources] == [True, True, False]


def test_a_failed_meter_and_a_silent_gpu_tell_nothing() -> None:
    node = make_node()
    write(node, meter_w=-1.0)
    node.gpus.create(index=7, model=node.gpus.all()[0].model)
    assert told(of(node)) == {}
    assert sorted(of(node).gpus) == [0, 1]


def test_metrics_count_what_is_off() -> None:
    write(make_node("n1"), told_w=900.0, meter_w=2000.0)
    write(make_node("n2", rack="A02"), meter_w=2000.0)
    housekeeping.roll_up(NOW)
    metrics.show(NOW)

    def shown(**labels: str) -> float | None:
        return REGISTRY.get_sample_value("headroom_power_sources_disagreeing", labels)

    assert shown(of="node", source="power_reading", standing="odd") == 1
    assert shown(of="node", source="node_meter", standing="odd") == 0
    assert shown(of="gpu", source="energy_counter", standing="disputed") == 2


@pytest.fixture
def at_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("telemetry.api.power_sources.time.time", lambda: NOW)


@pytest.mark.usefixtures("at_now")
class TestApi:
    def get(self, query: str) -> Any:
        return api_client().get(f"/api/v1/power-sources{query}")

    def test_it_lists_the_sources_of_a_node(self) -> None:
        write(make_node(), told_w=900.0, meter_w=2000.0)
        housekeeping.roll_up(NOW)
        body = self.get("?node=n1").json()
        assert (body["start"], body["end"]) == (T0, T0 + 600)
        assert body["sources"][1] == {
            "told_by": "power_reading",
            "mean_w": 2800,
            "is_part": False,
            "standing": "odd",
            "trust": 0,
        }
        assert [gpu["index"] for gpu in body["gpus"]] == [0, 1]

    def test_a_node_that_was_never_heard_has_none(self) -> None:
        make_node()
        assert self.get("?node=n1").json()["sources"] == []

    @pytest.mark.parametrize(("query", "status"), [("", 404), ("?node=x", 404), ("?nod=n1", 400)])
    def test_an_unknown_node_or_parameter_is_refused(self, query: str, status: int) -> None:
        make_node()
        assert self.get(query).status_code == status
