"""The mark in AdminComment: whose the hold is, or under which lease a job may start."""

from __future__ import annotations

import pytest

from headroom.slurm import marks


def test_what_is_written_is_read_again() -> None:
    assert marks.read(marks.held("why")) == marks.Mark(is_hold=True)
    assert marks.read(marks.held(by_owner=True)) == marks.Mark(is_hold=True, by_owner=True)
    lease = marks.Mark(is_hold=False, lease="a-7/job/2", restarts=3)
    assert marks.read(marks.leased("a-7/job/2", 3, "n1,n2")) == lease
    assert marks.read(f'"{marks.leased("a-7/job/2", 3, "n1")}"') == lease


@pytest.mark.parametrize(
    "text", ["", "x [headroom hold]", "[headroom lease a]", "[headroom holds]", "headroom"]
)
def test_what_others_write_is_no_mark(text: str) -> None:
    assert marks.read(text) is None


def test_no_text_ends_a_line_or_an_argument() -> None:
    text = marks.held('a "b" \\ c\nupdate jobid=1 priority=1\x00')
    assert not set(text) & set('"\\\n\x00')
    assert len(marks.held("x" * 5_000)) <= 600
