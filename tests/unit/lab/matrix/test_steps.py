"""What a command tells of its steps, and the files that it leaves."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import pytest

from lab.matrix import checkpoints, steps
from lab.matrix.steps import Lines, PatternError, Step


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ('{"step": 3, "loss": 1.5, "sync_s": 0.25, "retries": 2}', Step(3, 1.5, 0.25, 2)),
        ('{"step": 3, "wait_s": 0.5}', Step(3, wait_s=0.5)),
        ('  {"step": "4"}', Step(4)),
        ('{"loss": 1.5}', None),
        ('{"step": true}', None),
        ('{"step": 1', None),
        ("epoch 3 of 9", None),
        ('["step", 3]', None),
        ('{"step": 1e999}', None),
    ],
)
def test_a_line_of_json_tells_a_step(line: str, step: Step | None) -> None:
    assert steps.read(line) == step


def test_a_loss_that_is_no_number_is_told_as_such() -> None:
    found = steps.read('{"step": 1, "loss": NaN}')
    assert found is not None
    assert found.loss is not None
    assert math.isnan(found.loss)


def test_a_pattern_takes_lines_apart() -> None:
    pattern = steps.pattern_of(r"step (?P<step>\d+).*loss (?P<loss>[\d.]+)")
    assert steps.read("[rank 0] step 17 | loss 0.25 |", pattern) == Step(17, 0.25)
    assert steps.read("saving", pattern) is None


@pytest.mark.parametrize(("text", "why"), [("(", "not a regular"), ("loss (.*)", "names no step")])
def test_a_pattern_that_cannot_work_is_refused(text: str, why: str) -> None:
    with pytest.raises(PatternError, match=why):
        steps.pattern_of(text)


def test_only_whole_lines_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = Lines(path)
    assert lines.take() == []
    path.write_text("one\ntw")
    assert lines.take() == ["one"]
    with path.open("a") as file:
        file.write("o\nthree\n")
    assert lines.take() == ["two", "three"]


def test_a_checkpoint_that_is_not_what_it_was_to_be_is_corrupt(tmp_path: Path) -> None:
    for name in ("good.pt", "bad.pt", "untold.pt", "draft.pt.tmp"):
        (tmp_path / name).write_bytes(name.encode())
    good = hashlib.sha256(b"good.pt").hexdigest()
    (tmp_path / "good.pt.sha256").write_text(f"{good}  good.pt\n")
    (tmp_path / "bad.pt.sha256").write_text(good)
    found = checkpoints.look(tmp_path)
    assert sorted(found.digests) == ["bad.pt", "good.pt", "untold.pt"]
    assert (found.told, found.corrupt) == (2, ("bad.pt",))
    (tmp_path / "untold.pt").write_bytes(b"other")
    assert found.differing(checkpoints.look(tmp_path)) == ["untold.pt"]
    assert found.and_(found, "storage").corrupt == ("bad.pt", "storage/bad.pt")
