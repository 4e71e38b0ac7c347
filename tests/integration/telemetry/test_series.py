from __future__ import annotations

from typing import Any

import pytest

from fleet import snapshot
from fleet.models import CoolingZone, Gpu, Link, Meter, Node, PowerDomain, Rack
from telemetry import samples, series
from telemetry.series import Kind, Method, NotFound, Series, SeriesRequest, query
from telemetry.spans import ParameterError
from tests.builders.readings import make_node, write_samples

pytestmark = pytest.mark.django_db

#: On a full hour, so that buckets begin where spans do.
T0 = 1_800_000_000.0
LATER = T0 + 86_400


def ask(kind: Kind, source: int, *fields: str, length_s: float = 3600, **more: Any) -> Series:
    now = more.pop("now", LATER)
    return query(SeriesRequest(kind, source, fields, T0, T0 + length_s, **more), now)


def gpus_of(node: Node) -> list[Gpu]:
    return list(node.gpus.order_by("index"))


class TestOneSource:
    def test_few_readings_come_as_they_are(self) -> None:
        gpu = gpus_of(make_node())[0]
        write_samples(
            samples.GPU, gpu.pk, [T0, T0 + 10, T0 + 20], power_w=[500.5, None, 502], mem_used=2**35
        )
        found = ask(Kind.GPU, gpu.pk, "power_w", "mem_used")
        assert found.step_s is None
        assert found.columns == {
            "t": [T0, T0 + 10, T0 + 20],
            "power_w": [500.5, None, 502.0],
            "mem_used": [2**35] * 3,
        }

    def test_readings_outside_of_the_span_and_of_others_stay_out(self) -> None:
        one, other = gpus_of(make_node())
        write_samples(samples.GPU, one.pk, [T0 - 1, T0, T0 + 60], power_w=[1, 2, 3])
        write_samples(samples.GPU, other.pk, [T0 + 5], power_w=9)
        assert ask(Kind.GPU, one.pk, "power_w", length_s=60).columns["power_w"] == [2]

    def test_many_readings_become_means_over_buckets(self) -> None:
        gpu = gpus_of(make_node())[0]
        ts = [T0 + s for s in range(600)]
        write_samples(
            samples.GPU,
            gpu.pk,
            ts,
            power_w=[1.0 + s % 60 for s in range(600)],
            throttle=[4 if s == 61 else 0 for s in range(600)],
            energy_j=[1000.0 + s for s in range(600)],
        )
        fields = ("power_w", "throttle", "energy_j")
        found = ask(Kind.GPU, gpu.pk, *fields, length_s=600, points=10)
        assert found.step_s == 60
        assert found.columns["t"] == [T0 + 60 * i for i in range(10)]
        assert found.columns["power_w"] == [30.5] * 10
        # A throttle that was over within a bucket still shows; a counter is at its last.
        assert found.columns["throttle"] == [0, 4, *[0] * 8]
        assert found.columns["energy_j"][0] == 1059

    def test_a_band_shows_what_the_mean_hides(self) -> None:
        gpu = gpus_of(make_node())[0]
        write_samples(samples.GPU, gpu.pk, [T0 + s for s in range(60)], temp_c=[50.0] * 59 + [90.0])
        found = ask(Kind.GPU, gpu.pk, "temp_c", length_s=60, points=10, band=True)
        assert found.columns["temp_c_min"][-1] == 50
        assert found.columns["temp_c_max"][-1] == 90

    def test_a_reading_is_its_own_band(self) -> None:
        gpu = gpus_of(make_node())[0]
        write_samples(samples.GPU, gpu.pk, [T0], temp_c=50, power_w=300)
        found = ask(Kind.GPU, gpu.pk, "temp_c", "power_w", band=True)
        assert {name: values[0] for name, values in found.columns.items() if name != "t"} == {
            "temp_c": 50,
            "temp_c_min": 50,
            "temp_c_max": 50,
            "power_w": 300,
            "power_w_min": 300,
            "power_w_max": 300,
        }

    @pytest.mark.parametrize("points", [600, 20])
    def test_a_silent_time_is_a_gap(self, points: int) -> None:
        gpu = gpus_of(make_node())[0]
        ts = [T0 + s for s in (*range(0, 1000, 10), *range(2000, 3000, 10))]
        write_samples(samples.GPU, gpu.pk, ts, power_w=500)
        found = ask(Kind.GPU, gpu.pk, "power_w", points=points)
        assert found.columns["power_w"].count(None) == 1

    def test_links_meters_and_hosts_have_series_too(self) -> None:
        node = make_node()
        link = Link.objects.create(
            name="l", kind="wan", site=node.rack.site, capacity_bits_per_s=1e9
        )
        meter = Meter.objects.create(name="m", node=node)
        write_samples(samples.LINK, link.pk, [T0], tx_bytes_per_s=1e9, latency_s=2e-6)
        write_samples(samples.METER, meter.pk, [T0], power_w=-5.25)
        write_samples(samples.HOST, node.pk, [T0], cpu_util=12.5)
        assert ask(Kind.LINK, link.pk, "latency_s").columns["latency_s"] == [2e-6]
        assert ask(Kind.METER, meter.pk, "power_w").columns["power_w"] == [-5.25]
        assert ask(Kind.HOST, node.pk, "cpu_util").columns["cpu_util"] == [12.5]

    def test_a_job_that_never_reported_has_an_empty_series(self) -> None:
        assert ask(Kind.JOB, 1, "loss").columns == {"t": [], "loss": []}


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.JOB])
def test_what_the_inventory_does_not_have_is_not_found(kind: Kind) -> None:
    with pytest.raises(NotFound):
        ask(kind, 1, "power_w")


class TestManySources:
    def test_a_node_is_put_together_from_its_gpus(self) -> None:
        node = make_node(gpus=2)
        one, two = gpus_of(node)
        ts = [T0 + 10 * i for i in range(12)]
        write_samples(samples.GPU, one.pk, ts, power_w=500, temp_c=60, sm_mhz=1900, throttle=4)
        write_samples(samples.GPU, two.pk, ts, power_w=300, temp_c=70, sm_mhz=1700, throttle=32)
        fields = ("power_w", "temp_c", "sm_mhz", "throttle", "gpus_reporting")
        found = ask(Kind.NODE, node.pk, *fields, length_s=120)
        assert found.step_s == 20
        rows = set(zip(*(found.columns[name] for name in fields), strict=True))
        assert rows == {(800, 70, 1800, 36, 2)}

    def test_gpus_out_of_step_with_each_other_show_no_dips(self) -> None:
        node = make_node(gpus=2)
        one, two = gpus_of(node)
        write_samples(samples.GPU, one.pk, [T0 + 10 * i for i in range(60)], power_w=400)
        late = [T0 + 10 * i + (9.9 if i % 2 else 0.1) for i in range(60)]
        write_samples(samples.GPU, two.pk, late, power_w=400)
        found = ask(Kind.NODE, node.pk, "power_w", length_s=600)
        assert set(found.columns["power_w"]) == {800}

    def test_a_nodes_own_meter_counts_where_it_reads_something(self) -> None:
        node = make_node(gpus=1)
        meter = Meter.objects.create(name="m", node=node)
        ts = [T0 + 10 * i for i in range(8)]
        write_samples(samples.GPU, gpus_of(node)[0].pk, ts, power_w=500)
        # From T0 + 40 on it is broken.
        write_samples(samples.METER, meter.pk, ts, power_w=[900.0] * 4 + [0.0] * 2 + [-3.0] * 2)
        found = ask(Kind.NODE, node.pk, "power_w", "gpu_power_w", length_s=80)
        assert found.columns["power_w"] == [900, 900, 500, 500]
        assert found.columns["gpu_power_w"] == [500] * 4

    def test_a_node_known_by_its_meter_alone_has_power(self) -> None:
        node = make_node(gpus=0)
        meter = Meter.objects.create(name="m", node=node)
        write_samples(samples.METER, meter.pk, [T0, T0 + 10], power_w=900)
        found = ask(Kind.NODE, node.pk, "power_w", "temp_c", "gpus_reporting")
        assert found.columns["power_w"] == [900]
        assert found.columns["temp_c"] == [None]
        assert found.columns["gpus_reporting"] == [0]

    def test_a_hosts_own_reading_is_added_to_its_gpus(self) -> None:
        node = make_node(gpus=1)
        write_samples(samples.GPU, gpus_of(node)[0].pk, [T0], power_w=500)
        write_samples(samples.HOST, node.pk, [T0], cpu_power_w=150)
        assert ask(Kind.NODE, node.pk, "power_w").columns["power_w"] == [650]

    def test_a_rack_is_the_sum_of_its_nodes(self) -> None:
        one, two = make_node("n1", gpus=1), make_node("n2", gpus=1)
        other = make_node("n3", gpus=1, rack="A02")
        for node, power in ((one, 500), (two, 300), (other, 9000)):
            write_samples(samples.GPU, gpus_of(node)[0].pk, [T0, T0 + 10], power_w=power)
        found = ask(Kind.RACK, one.rack_id, "power_w", "nodes_reporting")
        assert found.columns["power_w"] == [800]
        assert found.columns["nodes_reporting"] == [2]

    def test_a_racks_own_meter_counts_before_its_nodes(self) -> None:
        node = make_node(gpus=1)
        meter = Meter.objects.create(name="m", rack=node.rack)
        write_samples(samples.GPU, gpus_of(node)[0].pk, [T0, T0 + 30], power_w=500)
        write_samples(samples.METER, meter.pk, [T0, T0 + 10], power_w=700)
        found = ask(Kind.RACK, node.rack_id, "power_w", "nodes_reporting")
        assert found.columns["power_w"][0] == 700
        assert found.columns["nodes_reporting"][0] == 1

    def test_a_place_is_the_sum_of_what_was_heard_in_its_racks_and_says_of_how_much(self) -> None:
        one, two = make_node("n1", gpus=1), make_node("n2", gpus=1, rack="A02")
        far = make_node("n3", gpus=1, site="bergen")
        zone = CoolingZone.objects.create(site=one.rack.site, name="z", kind="air", capacity_w=1e6)
        Rack.objects.filter(pk=one.rack_id).update(cooling_zone=zone)
        snapshot.invalidate()
        for node, power in ((one, 500), (two, 300), (far, 9000)):
            write_samples(samples.GPU, gpus_of(node)[0].pk, [T0, T0 + 10], power_w=power)
        write_samples(samples.HOST, one.pk, [T0, T0 + 10], power_w=100)
        # Of the second minute but one GPU was heard: what is missing is missing, not zero.
        write_samples(samples.GPU, gpus_of(one)[0].pk, [T0 + 60], power_w=510)
        fields = ("gpu_power_w", "power_w", "gpus_reporting", "nodes_reporting")
        found = ask(Kind.SITE, one.rack.site_id, *fields, points=60, method=Method.MEAN)
        assert [found.columns[name][0] for name in fields] == [800, 900, 2, 2]
        assert [found.columns[name][-1] for name in fields] == [510, 510, 1, 1]
        assert ask(Kind.ZONE, zone.pk, *fields, points=60).columns["gpu_power_w"][0] == 500
        # No reading is looked at for the extremes of a place: they are those of means.
        extents = ask(Kind.SITE, one.rack.site_id, *fields, points=60, extents=True).extents
        assert not extents["gpu_power_w"].exact
        assert (extents["gpu_power_w"].least, extents["gpu_power_w"].greatest) == (510, 800)

    def test_a_power_domain_carries_half_of_a_rack_on_two_feeds(self) -> None:
        both, alone = make_node("n1", gpus=1), make_node("n2", gpus=1, rack="A02")
        site = both.rack.site
        root, *feeds = (
            PowerDomain.objects.create(site=site, name=name, kind=kind, capacity_w=1e6)
            for name, kind in (("u", "utility"), ("a", "feed"), ("b", "feed"))
        )
        PowerDomain.objects.filter(pk__in=[feed.pk for feed in feeds]).update(parent=root)
        Rack.objects.filter(pk=both.rack_id).update(feed_a=feeds[0], feed_b=feeds[1])
        Rack.objects.filter(pk=alone.rack_id).update(feed_a=feeds[0])
        snapshot.invalidate()
        for node, power in ((both, 500), (alone, 300)):
            write_samples(samples.GPU, gpus_of(node)[0].pk, [T0, T0 + 10], power_w=power)
        drawn = {
            each.name: ask(Kind.POWER_DOMAIN, each.pk, "gpu_power_w", "power_w").columns
            for each in (root, *feeds)
        }
        assert {name: found["power_w"] for name, found in drawn.items()} == {
            "u": [800], "a": [550], "b": [250],
        }  # fmt: skip
        assert drawn["b"]["gpu_power_w"] == [250]

    def test_a_place_of_too_many_things_is_refused_with_the_way_out(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        node = make_node(gpus=2)
        monkeypatch.setattr(series, "MOST_SUMMED", 2)
        snapshot.invalidate()
        with pytest.raises(ParameterError, match="ask for the racks of this place"):
            ask(Kind.SITE, node.rack.site_id, "power_w")

    @pytest.mark.parametrize("kind", [Kind.ZONE, Kind.POWER_DOMAIN, Kind.SITE])
    def test_a_place_that_is_not_there_is_not_found(self, kind: Kind) -> None:
        with pytest.raises(NotFound):
            ask(kind, 4711, "power_w")

    def test_buckets_that_still_fill_are_left_out(self) -> None:
        node = make_node(gpus=2)
        one, two = gpus_of(node)
        ts = [T0 + 10 * i for i in range(12)]
        write_samples(samples.GPU, one.pk, ts, power_w=400)
        # The last readings of the second are on their way.
        write_samples(samples.GPU, two.pk, ts[:-4], power_w=400)
        found = ask(Kind.NODE, node.pk, "power_w", length_s=120, now=T0 + 121)
        assert (
            found.columns["power_w"][-1] == 400
        )  # T0 + 80: over 15 s ago, so it is really missing
        assert found.columns["t"][-1] == T0 + 80

    def test_a_rack_without_nodes_has_an_empty_series(self) -> None:
        node = make_node(gpus=0)
        rack = node.rack
        node.delete()
        assert ask(Kind.RACK, rack.pk, "power_w").columns == {"t": [], "power_w": []}
