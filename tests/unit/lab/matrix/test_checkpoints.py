"""When a command that runs has a checkpoint that it could go on from."""

from __future__ import annotations

from pathlib import Path

from lab.matrix.checkpoints import SIDECAR, FirstOne


def test_a_file_is_whole_once_its_digest_is_beside_it(tmp_path: Path) -> None:
    first = FirstOne(is_signed=True)
    (tmp_path / "a.pt").write_bytes(b"half")
    assert not first.is_there([tmp_path], 0.0)
    assert not first.is_there([tmp_path], 9.0)
    (tmp_path / f"a.pt{SIDECAR}").write_text("0")
    assert first.is_there([tmp_path], 9.1)


def test_a_file_without_digest_is_whole_once_it_stays_as_it_is(tmp_path: Path) -> None:
    first = FirstOne(is_signed=False)
    file = tmp_path / "below" / "a.pt"
    file.parent.mkdir()
    file.write_bytes(b"half")
    assert not first.is_there([tmp_path], 0.0)
    file.write_bytes(b"more than half")
    assert not first.is_there([tmp_path], 0.6)
    assert not first.is_there([tmp_path], 1.0)
    assert first.is_there([tmp_path], 1.2)


def test_drafts_are_no_checkpoints_and_one_that_was_there_stays(tmp_path: Path) -> None:
    first = FirstOne(is_signed=False)
    (tmp_path / "a.pt.tmp").write_bytes(b"half")
    assert not first.is_there([tmp_path], 0.0)
    assert not first.is_there([tmp_path], 9.0)
    whole = (tmp_path / "a.pt.tmp").rename(tmp_path / "a.pt")
    assert not first.is_there([tmp_path, tmp_path / "storage"], 9.1)
    assert first.is_there([tmp_path], 9.7)
    whole.unlink()
    assert first.is_there([tmp_path], 9.8)
