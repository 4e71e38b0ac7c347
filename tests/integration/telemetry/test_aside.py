"""Batches that cannot be stored: kept once and within bounds, told of, and let go of in the end."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from django.core.management import CommandError, call_command

from config import condition, room_metrics
from telemetry import aside, rows, stream, tasks
from tests.builders.batches import make_batch
from tests.integration.telemetry.conftest import Source, drain_everything


@pytest.fixture
def break_batches(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Have no row of any GPU be stored, until what this returns is called."""
    real = rows.gather

    def fails(pairs: Any, *args: Any) -> Any:
        gathered = real(pairs, *args)
        if np.size(gathered.rows["gpu"].columns["gpu_id"]):
            raise ValueError("unforeseen \u202e")
        return gathered

    monkeypatch.setattr(rows, "gather", fails)
    return lambda: monkeypatch.setattr(rows, "gather", real)


def push(source: Source, *seqs: int) -> None:
    """Send batches, as an agent does that holds all from 1 on; each is set aside."""
    for seq in seqs:
        assert source.push(make_batch("agent-1", "n1", seq)).status_code == 202
        tasks.step_around(0)
    assert stream.backlog(0) == 0


def told(*words: str) -> str:
    out = io.StringIO()
    call_command("set_aside", *words, stdout=out)
    return out.getvalue()


def test_one_that_is_sent_again_and_again_is_kept_once(
    source: Source, break_batches: Callable[[], None]
) -> None:
    push(source, 1, 1, 2, 1)
    assert [kept.seq for kept in aside.found()] == [1, 2]
    assert [kept.error[:10] for kept in aside.found()] == ["ValueError"] * 2


def test_they_are_told_of_until_they_are_stored(
    source: Source, break_batches: Callable[[], None]
) -> None:
    push(source, 1, 2)
    found = condition.look(stream.connection())
    (trouble,) = [each for each in condition.troubles(found) if each.name == "set-aside"]
    assert "cannot be stored: 2." in trouble.sentence
    assert condition.facts(found)["worker"]["ok"] is False
    assert b"headroom_telemetry_set_aside_batches 2.0" in room_metrics.generate()
    tasks.write_all()
    assert len(aside.found()) == 2

    break_batches()
    source.push(make_batch("agent-1", "n1", 2))
    drain_everything()
    tasks.write_all()
    assert [kept.seq for kept in aside.found()] == [1]
    source.push(make_batch("agent-1", "n1", 1))
    drain_everything()
    tasks.write_all()
    assert aside.found() == []
    assert condition.facts(condition.look(stream.connection()))["worker"]["ok"] is True


def test_one_that_its_agent_gave_up_is_let_go_of(
    source: Source, break_batches: Callable[[], None]
) -> None:
    push(source, 1)
    break_batches()
    source.push(make_batch("agent-1", "n1", 2, oldest_seq=2))
    drain_everything()
    assert aside.settle() == 1


@pytest.mark.parametrize(("bound", "most"), [("MOST", 3), ("MOST_BYTES", 6_000)])
def test_they_are_bounded_in_number_bytes_and_age(
    source: Source,
    break_batches: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    bound: str,
    most: int,
) -> None:
    monkeypatch.setattr(aside, bound, most)
    push(source, *range(1, 11))
    kept = aside.found()
    assert 1 <= len(kept) <= 5
    # The first ones, which tell most.
    assert [each.seq for each in kept] == list(range(1, len(kept) + 1))
    assert sum(len(each.body) for each in kept) < 6_000
    assert 0 < stream.connection().ttl("telemetry:set-aside") <= 7 * 86_400


def test_an_operator_sees_exports_and_forgets_them(
    source: Source, break_batches: Callable[[], None], tmp_path: Path
) -> None:
    assert told() == "None is set aside.\n"
    push(source, 7)
    line = told()
    assert "agent-1  boot_id boot-1  seq 7" in line
    assert "ValueError: unforeseen ⟨U+202E⟩" in line
    with pytest.raises(CommandError, match="--out"):
        told("export")
    path = Path(told("export", "--out", str(tmp_path / "aside")).strip())
    assert path.stat().st_mode & 0o777 == 0o600
    assert msgspec.msgpack.decode(path.read_bytes(), type=stream.Message).seq == 7
    assert told("forget") == "1 batches are forgotten.\n"
    assert aside.found() == []


def test_one_of_another_release_is_dropped(source: Source) -> None:
    stream.connection().xadd("telemetry:0", {"m": b"\x00"})
    (entry,) = stream.read(0, 1, 10**6)
    aside.keep(0, entry, ValueError())
    assert (stream.backlog(0), aside.found()) == (0, [])
