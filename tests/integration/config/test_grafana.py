"""The dashboards for Grafana ask for what /metrics has, of the data source that one chooses."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from admission.annotations.happenings import KINDS
from tests.builders.accounts import client_of

ROOT = Path(settings.BASE_DIR)
BOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
ROOMS = ("telemetry", "policies", "admission", "config")
#: What a family of a type is asked for by, after its name in the text.
_ENDINGS = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}

pytestmark = pytest.mark.django_db
on_each = pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)


@cache
def board(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def exported(client: Client) -> set[str]:
    """Return the names that can be asked for, of all modules of metrics that there are."""
    for room in ROOMS:
        for path in (ROOT / room).rglob("metrics.py"):
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    families = text_string_to_metric_families(client.get("/metrics").content.decode())
    return {
        family.name + ending for family in families for ending in _ENDINGS.get(family.type, ("",))
    }


def expressions(path: Path) -> Iterator[str]:
    """Yield what panels and variables ask Prometheus."""
    for panel in board(path)["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for variable in board(path)["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["definition"]


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"\bheadroom_\w+", re.sub(r'"[^"]*"', "", expression)))


def test_there_is_one_of_the_fleet_and_one_of_headroom_itself() -> None:
    assert [path.stem for path in BOARDS] == ["headroom-fleet", "headroom-itself"]


@on_each
def test_every_expression_asks_for_metrics_that_are_exported(path: Path) -> None:
    known = exported(client_of())
    asked = {expression: names_in(expression) for expression in expressions(path)}
    assert all(asked.values()), "an expression without a metric of ours"
    assert {name for names in asked.values() for name in names} - known == set()


@on_each
def test_every_panel_asks_the_data_source_that_is_chosen(path: Path) -> None:
    variables = board(path)["templating"]["list"]
    chosen = {each["name"]: each["query"] for each in variables if each["type"] == "datasource"}
    assert chosen.pop("datasource") == "prometheus"
    # Annotations are of a data source of their own, which the board of the fleet has.
    assert chosen == ({"events": "graphite"} if path.stem == "headroom-fleet" else {})
    panels = [each for each in board(path)["panels"] if each["type"] != "row"]
    asking = [*panels, *(target for each in panels for target in each["targets"])]
    assert {each["datasource"]["uid"] for each in asking} == {"${datasource}"}


@on_each
def test_panels_have_ids_of_their_own_and_do_not_overlap(path: Path) -> None:
    panels = board(path)["panels"]
    assert len({each["id"] for each in panels}) == len(panels)
    cells = [
        (x, y)
        for at in (each["gridPos"] for each in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


@on_each
def test_annotations_ask_for_kinds_of_happenings_and_are_off_at_first(path: Path) -> None:
    for each in board(path)["annotations"]["list"]:
        assert each["datasource"] == {"type": "graphite", "uid": "${events}"}
        assert each["target"]["queryType"] == "tags"
        assert set(each["target"]["tags"]) <= set(KINDS)
        assert each["enable"] is False  # nobody has to have that data source
