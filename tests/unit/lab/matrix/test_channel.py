"""What a command is told over files, and what is written down of it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from headroom.training.hearing import Mailbox
from headroom.work.contract import SignalKind
from lab.matrix import channel as module
from lab.matrix.channel import Channel
from lab.matrix.faults.acts import DirectiveAct


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    return Channel(tmp_path)


@pytest.fixture
def command(channel: Channel) -> Mailbox:
    """The side of the command: that of every loop with ``headroom.training``."""
    found = Mailbox.of(channel.environment)
    assert found is not None
    return found


def test_what_is_told_is_heard_and_what_was_done_is_seen(
    channel: Channel, command: Mailbox
) -> None:
    assert not channel.is_heard
    command.say()
    assert channel.is_heard
    shrink = channel.tell(SignalKind.SET_BATCH_SCALE, 0.5)
    pause = channel.tell(SignalKind.PAUSE)
    heard = command.read()
    assert (heard.seq, heard.batch_scale, heard.paused) == (2, 0.5, 2)
    command.say(done=1, step=7)
    channel.look()
    assert shrink.done_s is not None
    assert (shrink.step, pause.done_s) == (7, None)
    command.say(done=2, step=9)
    channel.look()
    # What was done stays as it was seen.
    assert (shrink.step, pause.step) == (7, 9)


def test_another_start_finds_what_is_in_force_and_not_what_was_done_once(
    channel: Channel, command: Mailbox
) -> None:
    channel.tell(SignalKind.SET_BATCH_SCALE, 0.5)
    channel.tell(SignalKind.CHECKPOINT)
    command.say(done=1)
    channel.begin()
    assert not channel.is_heard
    heard = command.read()
    assert (heard.batch_scale, heard.checkpoint) == (0.5, 0)


@pytest.mark.parametrize("said", [b"", b"{", b"[]", b'{"done": -1}', b"\xff"])
def test_what_is_no_status_says_nothing(channel: Channel, tmp_path: Path, said: bytes) -> None:
    line = channel.tell(SignalKind.PAUSE)
    (tmp_path / "status.json").write_bytes(said)
    channel.look()
    assert line.done_s is None


def test_the_ledger_has_all_lines_with_times_of_the_run(
    channel: Channel, command: Mailbox, tmp_path: Path
) -> None:
    zero_s = time.monotonic()
    channel.tell(SignalKind.PAUSE)
    command.say(done=1, step=3)
    channel.look()
    channel.tell(SignalKind.RESUME)
    channel.close(zero_s)
    # It is over: nobody is there to be told.
    channel.tell(SignalKind.PAUSE)
    text = (tmp_path / "ledger.jsonl").read_text()
    pause, resume = [json.loads(line) for line in text.splitlines()]
    assert (pause["kind"], pause["step"], resume["kind"]) == ("pause", 3, "resume")
    assert 0 <= pause["told_s"] <= pause["done_s"] <= resume["told_s"]
    assert resume["done_s"] is None
    assert resume["was_late"]


def test_only_who_had_time_has_missed_it(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    line = channel.tell(SignalKind.PAUSE)
    assert channel.is_late(line)
    assert not channel.has_lasted(line, 0.0)
    monkeypatch.setattr(module, "_HEARS_WITHIN_S", 0.0)
    assert not channel.is_late(line)
    assert channel.has_lasted(line, 60.0)


def test_what_came_too_late_still_did_when_the_command_is_over(channel: Channel) -> None:
    act = DirectiveAct(channel, (SignalKind.PAUSE, None), SignalKind.RESUME)
    act.begin()
    channel.close(time.monotonic())
    assert act.end() == module.TOO_LATE


def test_a_pause_lasts_from_when_it_was_done(channel: Channel, command: Mailbox) -> None:
    line = channel.tell(SignalKind.PAUSE)
    command.say(done=1)
    channel.look()
    assert not channel.is_late(line)
    assert channel.has_lasted(line, 0.0)
    assert not channel.has_lasted(line, 60.0)
