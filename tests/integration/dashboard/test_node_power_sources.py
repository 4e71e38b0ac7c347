"""The Node page says who tells its power, and who is off."""

from __future__ import annotations

import re
import time

import pytest
from django.test import Client

from fleet.models import Meter, Node
from telemetry import housekeeping, samples
from telemetry.trust.read import window
from tests.builders.readings import make_node, write_samples
from tests.html import html_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def node() -> Node:
    """A node whose meter tells 2 kW, and whose two GPUs and host tell as much."""
    node, span = make_node(), window(time.time())
    ts = [span.start + s for s in range(-30, 630, 10)]
    for gpu in node.gpus.all():
        energy_j = [500.0 * place * 10 for place in range(len(ts))]
        told_w = 900.0 if gpu.index == 1 else 500.0
        write_samples(samples.GPU, gpu.pk, ts, power_w=told_w, energy_j=energy_j)
    write_samples(samples.HOST, node.pk, ts, power_w=1000.0)
    write_samples(samples.METER, Meter.objects.create(name="m", node=node).pk, ts, power_w=2000.0)
    housekeeping.roll_up(time.time())
    return node


def test_the_source_that_is_off_is_named(viewer: Client, node: Node) -> None:
    page = html_of(viewer.get(f"/nodes/{node.pk}/"))
    section = page.split('id="power-sources"')[1].split("</table>")[0]
    rows = [
        re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", row)).strip()
        for row in re.split("<tr[^>]*>", section)[2:]
    ]
    assert rows == [
        "the node energy counters of its GPUs 2.0 kW agrees",
        "the node power readings of its GPUs 2.4 kW differs: the others agree",
        "the node its power meter 2.0 kW agrees",
        "GPU 1 energy counters of its GPUs 0.5 kW differs: one of them is off",
        "GPU 1 power readings of its GPUs 0.9 kW differs: one of them is off",
    ]


def test_a_node_with_nothing_to_compare_has_no_such_table(viewer: Client) -> None:
    assert "power-sources" not in html_of(viewer.get(f"/nodes/{make_node().pk}/"))
