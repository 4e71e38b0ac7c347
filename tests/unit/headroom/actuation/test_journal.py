from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from headroom.agent.actuation.journal import Entry, HeldLimit, Journal, JournalError

ENTRY = Entry(
    uuid="GPU-1",
    gpu=1,
    kind="power_cap_w",
    original=650.5,
    ours=(400.0, 500.0),
    limits=(HeldLimit("l1", 350),),
)


def test_what_was_put_is_there_for_the_next_life(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "limits.json"
    Journal(path).put(ENTRY)
    again = Journal(path)
    assert again.entries == {ENTRY.key: ENTRY}
    again.drop(ENTRY.key)
    assert Journal(path).entries == {}


def test_after_a_reboot_there_is_nothing_to_undo(tmp_path: Path) -> None:
    path = tmp_path / "limits.json"
    Journal(path, machine_boot="one").put(ENTRY)
    assert Journal(path, machine_boot="one").get(ENTRY.key) == ENTRY
    assert Journal(path, machine_boot="two").get(ENTRY.key) is None


@pytest.mark.parametrize("content", [b"", b"{", b'{"entries": []}', b"\xff", b"[]"])
def test_a_damaged_journal_is_not_taken_for_an_empty_one(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "limits.json"
    path.write_bytes(content)
    with pytest.raises(JournalError, match="put right what is wrong"):
        Journal(path)
    assert path.read_bytes() == content


def test_an_entry_is_on_disk_when_put_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def noted_fsync(fd: int) -> None:
        steps.append("folder" if os.path.isdir(f"/proc/self/fd/{fd}") else "file")  # noqa: PTH112
        fsync(fd)

    def noted_replace(self: Path, target: Any) -> Path:
        steps.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    Journal(tmp_path / "limits.json").put(ENTRY)
    assert steps == ["file", "rename", "folder"]


def test_a_write_that_fails_leaves_the_journal_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path / "limits.json")
    journal.put(ENTRY)

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(JournalError, match="No space left"):
            journal.drop(ENTRY.key)
    assert journal.get(ENTRY.key) == ENTRY
    assert Journal(tmp_path / "limits.json").get(ENTRY.key) == ENTRY
