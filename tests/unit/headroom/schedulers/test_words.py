"""Our words in the comment of a job."""

from __future__ import annotations

import pytest

from headroom.jobs.spec import Response
from headroom.schedulers import words


def test_an_owner_says_what_the_scheduler_has_no_option_for() -> None:
    found = words.read(
        "run 7; headroom: peak_w=650 cap_w=400 class=checkpoint-heavy min_batch_scale=0.5"
        " responses=shrink-batch,pause checkpoint_s=600 signal=USR1; and more"
    )
    assert (found.peak_w, found.cap_w, found.job_class) == (650.0, 400.0, "checkpoint-heavy")
    assert found.responses == (Response.SHRINK_BATCH, Response.PAUSE)
    assert (found.min_batch_scale, found.checkpoint_s, found.signal) == (0.5, 600.0, "USR1")
    assert found.wrong == []


def test_a_comment_for_others_says_nothing() -> None:
    assert words.read("peak_w=650") == words.Words()


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("peak=5", "is none of peak_w"),
        ("peak_w=much", "is a number"),
        ("peak_w=nan", "is above 0"),
        ("peak_w=-1", "is above 0"),
        ("signal=KILL", "is one of USR1"),
        ("responses=sing", "are of continue"),
        ("class=A B", "is the name of"),
        ("move_to=Oslo!", "are names of schedulers"),
        ("move_to=", "are names of schedulers"),
        ("moved=soon", "is written by bridges"),
    ],
)
def test_what_cannot_be_read_is_left_out_and_told(word: str, told: str) -> None:
    found = words.read(f"headroom: {word} cap_w=300")
    assert told in found.wrong[0]
    assert found.cap_w == 300.0


def test_an_owner_names_the_schedulers_that_have_the_checkpoints_too() -> None:
    assert words.read("headroom: move_to=hall-b,hall-c,hall-b").move_to == ("hall-b", "hall-c")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "headroom: moved=a-7/move/2"),
        ("run 7", "run 7; headroom: moved=a-7/move/2"),
        ("run 7; headroom: cap_w=400; x", "run 7; headroom: moved=a-7/move/2 cap_w=400; x"),
        ("headroom: moved=a-7/move/1 cap_w=400", "headroom: moved=a-7/move/2 cap_w=400"),
    ],
)
def test_a_job_that_moved_says_by_which_move_and_what_it_said_before(
    before: str, after: str
) -> None:
    assert words.came_by("a-7/move/2", before) == after
    assert words.read(after).moved == "a-7/move/2"
