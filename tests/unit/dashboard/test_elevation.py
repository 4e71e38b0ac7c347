"""The elevation of a rack as SVG."""

from __future__ import annotations

import math
from typing import Any
from xml.etree import ElementTree

from dashboard import racks
from dashboard.racks import GpuCell, NodeLine, RackNow
from dashboard.svg.rack import elevation


def make_node(name: str = "n1", **given: Any) -> NodeLine:
    values: dict[str, Any] = {
        "id": 7,
        "name": name,
        "position_u": 1,
        "height_u": 8,
        "load_w": 5000.0,
        "enforced_w": 7000.0,
        "hottest_c": 60.0,
        "heat_margin_c": 20.0,
        "clock_ratio": 0.9,
        "throttling": 0,
        "age_s": 1.0,
        "stale": False,
        "seen": True,
        "gpus": [GpuCell(id=i, index=i, level=5, figure="60", words="60 °C") for i in range(8)],
        **given,
    }
    return NodeLine(**values)


def make_rack(*nodes: NodeLine, height_u: int = 42) -> RackNow:
    numbers = dict.fromkeys(
        (
            "load_w",
            "budget_w",
            "inventory_w",
            "measured_w",
            "enforced_w",
            "hottest_c",
            "heat_margin_c",
            "link_use",
            "age_s",
        ),
        math.nan,
    )
    return RackNow(
        id=1,
        name="A<01>",
        site="oslo",
        row="A",
        height_u=height_u,
        zone="",
        density="",
        seen=True,
        throttling=0,
        unexpected=0,
        gpus=8,
        stale_nodes=0,
        nodes=list(nodes),
        feeds=[],
        **numbers,
    )


def _boxes(rack: RackNow, css: str) -> list[dict[str, str]]:
    root = ElementTree.fromstring(elevation(rack))
    return [e.attrib for e in root.iter() if css in e.attrib.get("class", "").split()]


def test_a_node_stands_at_its_unit_and_the_lowest_is_at_the_bottom() -> None:
    low, high = _boxes(
        make_rack(make_node(), make_node("n2", id=8, position_u=35), height_u=42), "node-box"
    )
    assert float(low["y"]) > float(high["y"])
    assert abs(float(high["y"]) - 7) < 1


def test_every_node_and_gpu_is_a_link_with_its_numbers() -> None:
    root = ElementTree.fromstring(elevation(make_rack(make_node())))
    links = [e.attrib for e in root.iter("a")]
    assert [link["href"] for link in links] == ["/nodes/7/", *(f"/gpus/{i}/" for i in range(8))]
    assert all(link["aria-label"] for link in links)
    assert len({link["id"] for link in links}) == 9


def test_nodes_without_a_place_or_above_the_top_are_drawn_below_the_frame() -> None:
    rack = make_rack(make_node(position_u=-1), make_node("n2", id=8, position_u=40), height_u=42)
    frame = _boxes(rack, "rack-frame")[0]
    below = float(frame["y"]) + float(frame["height"])
    assert all(float(box["y"]) > below for box in _boxes(rack, "node-box"))


def test_names_are_escaped_and_long_ones_shortened() -> None:
    svg = elevation(make_rack(make_node("<script>" + "x" * 200)))
    assert "<script>" not in svg
    assert "A<01>" not in svg
    texts = [e.text or "" for e in ElementTree.fromstring(svg).iter("text")]
    assert max(len(text) for text in texts) <= 30


def test_a_node_of_one_unit_still_shows_its_gpus() -> None:
    boxes = _boxes(make_rack(make_node(height_u=1)), "gpu-box")
    assert len(boxes) == 8
    assert all(float(box["height"]) >= 1 and float(box["width"]) > 5 for box in boxes)


def test_the_switch_has_a_legend_for_each_metric() -> None:
    assert set(racks.GPU_LEGENDS) == set(racks.GPU_METRICS)
