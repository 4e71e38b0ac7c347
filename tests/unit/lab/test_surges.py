"""Load of no known owner that goes up over a place of the demo."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from lab.fleet import GPUS_PER_NODE, make_fleet
from lab.surges import Surge, Surges, add, nodes_in, surge
from lab.twin import NO_FAILURES, Twin


def make_twin() -> Twin:
    fleet = make_fleet(gpus=512)
    queued = np.zeros(len(fleet.nodes), dtype=np.bool_)
    queued[::4] = True
    twin = Twin(fleet, seed=7, queued=queued, failures=NO_FAILURES)
    twin.advance(60.0)
    return twin


def test_places_are_those_of_the_inventory() -> None:
    twin = make_twin()
    fleet, rack = twin.fleet, twin.fleet.racks[0]
    in_rack = nodes_in(twin, "rack", f"{rack.site}/{rack.name}")
    assert in_rack.sum() == rack.nodes
    in_zone = nodes_in(twin, "zone", f"{rack.site}/{rack.zone}")
    in_feed = nodes_in(twin, "feed", f"{rack.site}/feed-a")
    in_site = nodes_in(twin, "site", rack.site)
    assert in_rack.sum() <= in_zone.sum() <= in_feed.sum() == in_site.sum() < len(fleet.nodes)
    assert not (in_rack & ~in_zone).any()


@pytest.mark.parametrize("place", ["site", "zone", "feed", "rack"])
def test_a_place_that_is_not_there_is_refused_with_those_that_are(place: str) -> None:
    with pytest.raises(ValueError, match=rf"the fleet has no {place} nowhere; it has "):
        nodes_in(make_twin(), place, "nowhere")


def test_what_works_there_draws_more_until_it_is_over_and_tasks_do_not(tmp_path: Path) -> None:
    twin, path = make_twin(), tmp_path / "surges.json"
    rack = twin.fleet.racks[0]
    mine = nodes_in(twin, "rack", f"{rack.site}/{rack.name}")
    add(path, Surge("rack", f"{rack.site}/{rack.name}", 1.2, until=100.0), now=0.0)
    surges = Surges(path)
    surges.step(twin, 50.0)
    assert (twin.conditions.least_activity > 0.0).tolist() == (mine & ~twin.queued).tolist()
    twin.advance(10.0)
    working = twin.busy.reshape(-1, GPUS_PER_NODE).all(axis=1) & mine & ~twin.queued
    assert working.any()
    assert twin.activity.reshape(-1, GPUS_PER_NODE)[working].min() > 1.0
    surges.step(twin, 100.0)
    assert not twin.conditions.least_activity.any()


def test_surges_that_are_over_are_left_out_when_another_one_comes(tmp_path: Path) -> None:
    path = tmp_path / "surges.json"
    add(path, Surge("site", "oslo", 1.0, until=10.0), now=0.0)
    add(path, Surge("site", "bergen", 1.0, until=90.0), now=20.0)
    assert b"oslo" not in path.read_bytes()
    assert b"bergen" in path.read_bytes()


def test_the_command_says_where_a_demo_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADROOM_STATE_DIR", str(tmp_path / "none"))
    answer = CliRunner().invoke(surge, ["rack", "oslo/A01"])
    assert answer.exit_code == 1
    assert "make run starts a demo here" in answer.output
    monkeypatch.setenv("HEADROOM_STATE_DIR", str(tmp_path))
    assert CliRunner().invoke(surge, ["rack", "oslo/A01"]).exit_code == 0
    assert (tmp_path / "demo-surges.json").exists()
