"""What a command has said is read by its place in all of it, while its shim moves it on."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from headroom.work import output, shim
from headroom.work.output import Output


class Shim:
    """The part of a shim that keeps what its command says, in files of so many bytes."""

    def __init__(self, folder: Path, of_bytes: int) -> None:
        self.command = shim.Command.__new__(shim.Command)
        self.command._log_bytes = 2 * of_bytes
        self.command._log = shim._append("log")
        self.command._written = self.command._before = 0

    def say(self, said: bytes) -> None:
        self.command._keep(said)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_nothing_is_there_before_anything_was_said(folder: Path) -> None:
    assert output.read(folder, None, 10) is None
    Shim(folder, 100)
    assert output.read(folder, None, 10) == Output(0, 0, 0, b"")


def test_places_count_all_that_was_said_though_the_oldest_is_gone(folder: Path) -> None:
    said = Shim(folder, 100)
    all_of_it = b"".join(b"%09d\n" % line for line in range(100))
    for at in range(0, 1000, 10):
        said.say(all_of_it[at : at + 10])
        found = output.read(folder, 0, 10_000)
        assert found is not None
        assert found.size == at + 10
        assert found.data == all_of_it[found.first : found.size]
        assert found.size - found.first <= 200
    found = output.read(folder, None, 25)
    assert found == Output(800, 1000, 975, all_of_it[975:])
    # Across both files, in the middle of one, before the first byte and behind the last.
    assert output.read(folder, 895, 10) == Output(800, 1000, 895, all_of_it[895:905])
    assert output.read(folder, 3, 5) == Output(800, 1000, 800, all_of_it[800:805])
    assert output.read(folder, 5000, 5) == Output(800, 1000, 1000, b"")


def test_a_reader_beside_a_flood_never_sees_what_stands_elsewhere(folder: Path) -> None:
    said = Shim(folder, 4000)
    stop = threading.Event()

    def flood() -> None:
        line = 0
        while not stop.is_set():
            said.say(b"".join(b"%09d\n" % each for each in range(line, line + 50)))
            line += 50

    writer = threading.Thread(target=flood)
    writer.start()
    try:
        seen = reads = 0
        until = time.monotonic() + 30
        # It is moved on meanwhile, ten times at least.
        while reads < 500 or seen < 40_000:
            assert time.monotonic() < until
            reads += 1
            found = output.read(folder, None, 500)
            if found is None or not found.data:
                continue
            seen = max(seen, found.size)
            first, _, rest = found.data.partition(b"\n")
            at = found.start + len(first) + 1
            if rest:
                assert rest.startswith(b"%09d\n" % (at // 10)), found
    finally:
        stop.set()
        writer.join()


def test_files_that_a_job_puts_there_are_neither_followed_nor_waited_for(folder: Path) -> None:
    secret = folder / "secret"
    secret.write_text("secret")
    (folder / "log").symlink_to(secret)
    os.mkfifo(folder / "log.1")
    assert output.read(folder, None, 100) is None
    (folder / "log").unlink()
    (folder / "log").write_bytes(b"said\0\xff")
    for note in (b"nonsense", b"-1 -1", b"1 " + b"9" * 200):
        (folder / "log.start").write_bytes(note)
        found = output.read(folder, None, 100)
        assert found is not None
        assert found.data == b"said\0\xff"
