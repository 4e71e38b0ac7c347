from __future__ import annotations

from pathlib import Path

import pytest

from lab.matrix.reading import ScenarioError, load, read
from lab.matrix.scenario import LEVELS, QUANTITIES, FaultKind, Level, Period, Runner, seconds

BASE = "name: feed-loss\ntitle: One feed is lost\nduration: 40m\n"


def problems_of(text: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        read(text.encode(), source="x.yaml")
    return str(caught.value).splitlines()


def test_a_scenario_is_read_with_its_defaults() -> None:
    found = read(
        (
            BASE
            + """
fleet: {gpus: 128, power_share: 0.7}
warm_up: 5m
faults:
  - {kind: feed_loss, at: 10m, for: 1m30s, target: {names: ["*/feed-a"]}}
  - {kind: link_loss, at: 12m, for: 8m, loss_share: 0.02, target: {level: storage}}
expect:
  - never: {series: over_budget_w, above: 0, during: after}
  - recovers: {series: running_gpus, share: 0.9, time: 10m}
"""
        ).encode()
    )
    assert (found.fleet.gpus, found.fleet.sites, found.fleet.power_share) == (128, 2, 0.7)
    assert found.runs_on == (Runner.TWIN,)
    feed, loss = found.faults
    assert (feed.at_s, feed.until_s, feed.level) == (600.0, 690.0, Level.DOMAIN)
    assert (loss.until_s, loss.level) == (1200.0, Level.STORAGE)
    assert (found.first_fault_s, found.last_fault_s) == (600.0, 1200.0)
    never = found.expect[0].never
    assert never is not None
    assert never.during is Period.AFTER


def test_without_a_length_a_fault_acts_to_the_end_of_the_run() -> None:
    found = read((BASE + "faults: [{kind: node_loss, at: 10m}]").encode())
    assert found.faults[0].until_s == float("inf")
    assert found.last_fault_s == found.duration_s == 2400.0


def test_a_lease_begins_and_ends() -> None:
    text = BASE + "faults: [{kind: node_loss, at: 10m, for: 1m}]"
    fault = read(text.encode()).faults[0]
    assert [fault.acts(at) for at in (599.9, 600.0, 659.9, 660.0)] == [False, True, True, False]


def test_a_kill_is_a_moment() -> None:
    text = BASE + "faults: [{kind: kill, at: 10m, target: {count: 1}}]"
    fault = read(text.encode()).faults[0]
    assert fault.acts(600.0)
    assert not fault.acts(610.0)
    for kind in ("kill", "move"):
        told = problems_of(BASE + f"faults: [{{kind: {kind}, at: 1m, for: 1m}}]")[0]
        assert f"a {kind} is a moment" in told


@pytest.mark.parametrize(
    ("text", "length"), [("90s", 90.0), ("10m", 600.0), ("1h30m", 5400.0), ("0.5d", 43200.0)]
)
def test_lengths_of_time(text: str, length: float) -> None:
    assert seconds(text) == length


@pytest.mark.parametrize(
    ("more", "field", "line", "way_out"),
    [
        ("durations: 1m\n", "durations", 4, "`duration`"),
        ("warm_up: 90\n", "warm_up", 4, "has a unit"),
        ("warm_up: 90 sec\n", "warm_up", 4, "90s"),
        ("warm_up: 40m\n", "duration", 3, "make the duration longer"),
        ("faults: [{kind: feed_los, at: 1m}]\n", "faults[0].kind", 4, "feed_loss"),
        ("faults:\n  - {kind: node_loss, at: 50m}\n", "faults[0].at", 5, "move it"),
        ("faults: [{kind: node_loss, at: 1m, for: 0s}]\n", "faults[0].for", 4, "some seconds"),
        ("faults: [{kind: power_limit, at: 1m}]\n", "faults[0]", 4, "such as share"),
        (
            "faults: [{kind: power_limit, at: 1m, share: 0.5, limit_w: 400}]\n",
            "faults[0]",
            4,
            "exactly one of share, limit_w",
        ),
        (
            "faults: [{kind: node_loss, at: 1m, share: 0.5}]\n",
            "faults[0].share",
            4,
            "leave it out",
        ),
        (
            "faults: [{kind: node_loss, at: 1m, target: {level: link}}]\n",
            "faults[0].target.level",
            4,
            "one of: node",
        ),
        ("faults: [{kind: feed_loss, at: 1m}]\n", "faults[0].target", 4, "target.names"),
        ("faults: [{kind: pause, at: 1m}]\n", "faults[0].for", 4, "say for how long"),
        ("faults: [{kind: shrink_batch, at: 1m}]\n", "faults[0]", 4, "such as share"),
        ("expect: [{}]\n", "expect[0]", 4, "one of: never"),
        (
            "expect: [{never: {series: a, above: 1}, at_most: {measure: b, value: 1}}]\n",
            "expect[0]",
            4,
            "it has 2 expectations",
        ),
        ("expect: [{never: {series: a}}]\n", "expect[0].never", 4, "above: 0"),
        ("expect: [{never: {series: a, above: 1, below: 0}}]\n", "expect[0].never", 4, "one of"),
        (
            "expect: [{recovers: {series: a, above: 1, time: 1m}}]\n",
            "expect[0].recovers",
            4,
            "use never or at_most",
        ),
        (
            "expect: [{never: {series: a, above: 1, during: faults}}]\n",
            "expect[0].never",
            4,
            "use never or at_most",
        ),
        (
            "faults: [{kind: node_loss, at: 1m, for: 1m}]\n"
            "expect: [{within: {series: a, above: 1, time: 1m, fault: 1}}]\n",
            "expect[0].within.fault",
            5,
            "give the place of one",
        ),
        (
            "faults: [{kind: node_loss, at: 1m, for: 30m}]\n"
            "expect: [{recovers: {series: a, above: 1, time: 10m}}]\n",
            "expect[0].recovers.time",
            5,
            "make the duration longer",
        ),
    ],
)
def test_what_is_wrong_is_told_with_place_and_way_out(
    more: str, field: str, line: int, way_out: str
) -> None:
    told = problems_of(BASE + more)[0]
    assert told.startswith(f"x.yaml: line {line}, ")
    assert f": {field}: " in told
    assert way_out in told


def test_all_that_the_types_do_not_see_is_told_at_once() -> None:
    text = BASE + "faults: [{kind: power_limit, at: 50m}]\nexpect: [{}]\n"
    assert len(problems_of(text)) == 3


@pytest.mark.parametrize("text", ["", "[]", "name: a", "a: &b 1", "\x00", BASE + "x: !!int 1"])
def test_what_is_no_scenario_is_refused(text: str) -> None:
    assert problems_of(text)


def test_a_file_that_is_not_there_is_told_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"no\.yaml: cannot be read: No such file"):
        load(tmp_path / "no.yaml")
    (tmp_path / "big.yaml").write_text("#" * 300_000)
    with pytest.raises(ScenarioError, match="more than 262144 bytes"):
        load(tmp_path / "big.yaml")
    (tmp_path / "latin.yaml").write_bytes("title: é".encode("latin-1"))
    with pytest.raises(ScenarioError, match=r"latin\.yaml: it is not UTF-8"):
        load(tmp_path / "latin.yaml")


def test_every_kind_has_its_quantities_and_levels() -> None:
    assert set(QUANTITIES) == set(LEVELS) == set(FaultKind)
