"""``headroom checkpoints keep … -- COMMAND``: what the command leaves behind goes with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headroom.checkpoints import Store

_LIMIT_S = 120.0
_RUN = "loop"
#: Stages step 1 and goes on until it is told to end; then it stages step 2, and leaves.
_LOOP = """
import signal, sys, time
from pathlib import Path
from headroom.checkpoints import About, Store, stage

folder, near = Path(sys.argv[1]), Store.at(sys.argv[2])
ends = []

def save(step):
    made = folder / str(step)
    made.mkdir()
    (made / "state").write_bytes(bytes([step]) * 9000)
    stage(made, near, About(run="loop", step=step), move=True)

signal.signal(signal.SIGTERM, lambda *_: ends.append(1))
save(1)
while not ends:
    time.sleep(0.02)
save(2)
sys.exit(143)
"""


def keeping(folder: Path, *command: str, far: Path | None = None) -> subprocess.Popen[bytes]:
    """Start a keeper with a command, in a process group of their own."""
    to = folder / "far" if far is None else far
    keep = [sys.executable, "-m", "headroom", "checkpoints", "keep", str(folder / "near")]
    return subprocess.Popen([*keep, "--to", str(to), "--", *command], start_new_session=True)


def steps_of(folder: Path) -> list[int]:
    return [name.step for name in Store.at(folder).names(_RUN)]


def wait_for(is_so: Callable[[], object]) -> None:
    end = time.monotonic() + _LIMIT_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def ended(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(_LIMIT_S)
    finally:
        process.kill()


@pytest.mark.parametrize("to_group", [True, False], ids=["to-all-of-the-job", "to-the-keeper"])
def test_what_a_loop_saves_as_it_leaves_is_sent_before_the_job_is_over(
    tmp_path: Path, to_group: bool
) -> None:
    loop = (sys.executable, "-c", _LOOP, str(tmp_path), str(tmp_path / "near"))
    process = keeping(tmp_path, *loop)
    wait_for(lambda: steps_of(tmp_path / "far") == [1])
    (os.killpg if to_group else os.kill)(process.pid, signal.SIGTERM)
    assert ended(process) == 143
    assert steps_of(tmp_path / "near") == steps_of(tmp_path / "far") == [1, 2]


@pytest.mark.parametrize(("code", "seen"), [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137)])
def test_the_end_of_the_command_is_that_of_the_keeper(tmp_path: Path, code: str, seen: int) -> None:
    assert ended(keeping(tmp_path, "/bin/sh", "-c", code)) == seen


def test_a_store_that_cannot_be_reached_holds_up_no_end(tmp_path: Path) -> None:
    no_folder = tmp_path / "file"
    no_folder.write_text("")
    save = _LOOP.replace("while not ends", "while False")
    command = (sys.executable, "-c", save, str(tmp_path), str(tmp_path / "near"))
    assert ended(keeping(tmp_path, *command, far=no_folder / "far")) == 143
    assert steps_of(tmp_path / "near") == [1, 2]


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    keep = [sys.executable, "-m", "headroom", "checkpoints", "keep", str(tmp_path / "near")]
    done = subprocess.run([*keep, "/no/such"], capture_output=True, text=True, timeout=_LIMIT_S)
    assert (done.returncode, done.stderr) == (1, "Error: /no/such: No such file or directory\n")
