"""Sections and windows of a loop."""

from __future__ import annotations

import pytest

from headroom.training import Section, SectionError
from headroom.training.sections import Sections
from tests.unit.headroom.builders import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock(100.0)


@pytest.fixture
def sections(clock: Clock) -> Sections:
    return Sections(clock)


def test_time_is_counted_by_name_over_all_times_that_a_section_was_open(
    sections: Sections, clock: Clock
) -> None:
    for _ in range(2):
        sections.start_section("forward")
        clock.now += 1.5
        sections.start_section(Section.GRADIENT_SYNC)
        clock.now += 0.5
        sections.end_all_sections()
    assert sections.counts.sections == {"forward": 4.0, "gradient_sync": 1.0}


def test_a_section_ends_with_its_block_also_when_that_fails(
    sections: Sections, clock: Clock
) -> None:
    def risky() -> None:
        with sections.section("risky"):
            clock.now += 2.0
            raise KeyError

    with pytest.raises(KeyError):
        risky()
    with sections.section("risky"):
        clock.now += 1.0
    assert sections.counts.sections == {"risky": 3.0}


def test_a_window_holds_what_was_counted_in_it_and_windows_may_overlap(
    sections: Sections, clock: Clock
) -> None:
    sections.begin_window("epoch")
    sections.counts.steps += 3
    sections.spent("forward", 1.0)
    clock.now += 3.0
    sections.begin_window("tail")
    sections.counts.steps += 1
    sections.counts.samples += 8
    clock.now += 1.0
    tail, epoch = sections.end_window("tail"), sections.end_window("epoch")
    assert (tail.time_s, tail.steps, tail.samples, tail.sections) == (1.0, 1, 8, {})
    assert (epoch.time_s, epoch.steps, epoch.samples) == (4.0, 4, 8)
    assert epoch.sections == {"forward": 1.0}


@pytest.mark.parametrize("kind", ["section", "window"])
def test_what_is_open_twice_or_never_was_is_refused_by_its_name(
    sections: Sections, kind: str
) -> None:
    begin = sections.start_section if kind == "section" else sections.begin_window
    end = sections.end_section if kind == "section" else sections.end_window
    with pytest.raises(SectionError, match="'a' is not open"):
        end("a")
    begin("a")
    with pytest.raises(SectionError, match="'a' is open already"):
        begin("a")
