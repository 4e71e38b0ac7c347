"""Ranks that start again in place: real processes, real gloo, and kill -9 at any moment."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="needs PyTorch: pip install -r examples/ddp/requirements.txt",
)

REPOSITORY = Path(__file__).resolve().parents[4]
LOOP = REPOSITORY / "bench/training_ranks.py"
RANKS, STEPS, EVERY, WIDTH = 3, 40, 5, 64
_LIMIT_S = 120.0
_LAUNCHER = ("-m", "headroom.training")
#: The same for ranks that do not train: what DDP imports takes longer than all else here.
_COLD_LAUNCHER = (
    "-c", "from headroom.training import __main__ as it; it._WARM = it._WARM[:2]; it.main()"
)  # fmt: skip


class Launched:
    """A launcher, with all that it starts. What they say goes to a file, which nobody waits for."""

    def __init__(self, *words: object, launcher: tuple[str, ...] = _LAUNCHER) -> None:
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by close
        command = [sys.executable, *launcher, "run", *map(str, words)]
        self.process = subprocess.Popen(
            command, cwd=REPOSITORY, env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=self._said, stderr=self._said,
        )  # fmt: skip

    def end(self) -> tuple[int, str]:
        code = self.process.wait(_LIMIT_S)
        self._said.seek(0)
        return code, self._said.read()

    def pids(self) -> set[int]:
        return {each.pid for each in psutil.Process(self.process.pid).children(recursive=True)}

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._said.close()


@pytest.fixture
def launch() -> Iterator[Callable[..., Launched]]:
    made: list[Launched] = []

    def start(*words: object, launcher: tuple[str, ...] = _LAUNCHER) -> Launched:
        made.append(Launched(*words, launcher=launcher))
        return made[-1]

    yield start
    for each in made:
        each.close()


def until(is_so: Callable[[], bool], launched: Launched) -> None:
    end = time.monotonic() + _LIMIT_S
    while not is_so():
        assert launched.process.poll() is None, launched.end()
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.005)


def told(folder: Path, rank: int) -> list[dict[str, Any]]:
    """Return what a rank has written down so far; the last line may be cut."""
    path = folder / f"rank-{rank}.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def steps(folder: Path, rank: int) -> list[dict[str, Any]]:
    return [each for each in told(folder, rank) if "step" in each]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[list[float]]:
    """The losses of each rank, by step."""
    folder = tmp_path_factory.mktemp("undisturbed")
    launched = Launched("--ranks", RANKS, "--", LOOP, folder, STEPS, EVERY, WIDTH)
    try:
        assert launched.end() == (0, "")
    finally:
        launched.close()
    return [[each["loss"] for each in steps(folder, rank)] for rank in range(RANKS)]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_rank_that_is_killed_changes_no_loss_and_costs_what_was_not_saved(
    undisturbed: list[list[float]], launch: Callable[..., Launched], tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    victim, at = chance.randrange(RANKS), chance.randrange(2, STEPS - 10)
    launched = launch("--ranks", RANKS, "--", LOOP, tmp_path, STEPS, EVERY, WIDTH)
    until(lambda: any(each["step"] >= at for each in steps(tmp_path, victim)), launched)
    os.kill(steps(tmp_path, victim)[-1]["pid"], signal.SIGKILL)
    code, said = launched.end()
    assert code == 0, said
    assert "a rank has failed: all start again" in said
    (begun,) = {tuple(e["from"] for e in told(tmp_path, r) if "from" in e) for r in range(RANKS)}
    first, again = begun
    assert (first, again % EVERY) == (0, 0)
    for rank in range(RANKS):
        lives = [each["pid"] for each in told(tmp_path, rank) if "from" in each]
        made = {pid: [e for e in steps(tmp_path, rank) if e["pid"] == pid] for pid in lives}
        before, after = made.values()
        # None is lost, and none is repeated but those since the last checkpoint.
        assert [each["step"] for each in before] == list(range(1, len(before) + 1))
        assert [each["step"] for each in after] == list(range(again + 1, STEPS + 1))
        assert again <= len(before) <= again + EVERY + 1
        for each in (*before, *after):
            assert each["loss"] == pytest.approx(undisturbed[rank][each["step"] - 1], abs=1e-6)


def script(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "script.py"
    path.write_text(
        f"import os, signal, subprocess, sys, time\nrank = int(os.environ['RANK'])\n{text}"
    )
    return path


def test_a_rank_that_always_fails_ends_all_with_its_status(
    launch: Callable[..., Launched], tmp_path: Path
) -> None:
    path = script(
        tmp_path,
        "print('life', os.environ['TORCHELASTIC_RESTART_COUNT'], flush=True) if rank == 0 else 0\n"
        "sys.exit(7) if rank == 1 else time.sleep(600)",
    )
    code, said = launch("--ranks", 2, "--max-restarts", 2, path, launcher=_COLD_LAUNCHER).end()
    assert code == 7
    assert said.count("a rank has failed: all start again") == 2
    assert said.count("a rank has failed: for good") == 1
    lives = [line for line in said.splitlines() if line.startswith("life")]
    assert set(lives) <= {"life 0", "life 1", "life 2"}


#: PyTorch is imported once, and not by the store of each run.
ENDS = """
import os, sys
import torch.distributed
from headroom.training.restarting import run

def left(status):
    return lambda: sys.exit(status)

def fail():
    raise ValueError("trouble")

def die():
    os.kill(os.getpid(), 9)

mains = [left(None), left(3), left("words"), fail, die, left(143)]
print([run(main, 1, max_restarts=0) for main in mains])
"""


def test_ends_are_told_as_shells_do() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDS], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[0, 3, 1, 1, 137, 143]\n"
    assert "words\n" in done.stderr
    assert "ValueError: trouble" in done.stderr


def test_who_was_told_to_leave_is_not_started_again(
    launch: Callable[..., Launched], tmp_path: Path
) -> None:
    text = (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        f"open(f'{tmp_path}/ready-{{rank}}', 'x').close()\n"
        "time.sleep(600)"
    )
    launched = launch("--ranks", 2, script(tmp_path, text), launcher=_COLD_LAUNCHER)
    until(lambda: len(list(tmp_path.glob("ready-*"))) == 2, launched)
    launched.process.terminate()
    code, said = launched.end()
    # A second start would have found its file there.
    assert (code, said) == (143, "")


def test_who_is_told_to_end_starts_nothing_again_whenever_that_comes() -> None:
    text = (
        "import sys\nfrom headroom.training.restarting import run\n"
        "print('ready', flush=True)\nsys.exit(run(lambda: sys.exit(7), 2, max_restarts=10**6))"
    )
    for wait_s in (0.0, 0.01, 0.3):
        process = subprocess.Popen(
            [sys.executable, "-c", text], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
        )
        with process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            # At any moment of a life: what comes of it is the same.
            time.sleep(wait_s)
            process.send_signal(signal.SIGTERM)
            assert process.wait(_LIMIT_S) in (7, 143, -signal.SIGTERM)


def is_running(pid: int) -> bool:
    """Say whether a process is there, and not only waits for its parent to hear of its end."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_nothing_outlives_a_launcher_that_is_killed_or_a_rank(
    launch: Callable[..., Launched], tmp_path: Path
) -> None:
    text = (
        "life = os.environ['TORCHELASTIC_RESTART_COUNT']\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"open(f'{tmp_path}/{{life}}-{{rank}}-{{child.pid}}', 'x').close()\n"
        "time.sleep(600)"
    )
    launched = launch("--ranks", 2, script(tmp_path, text), launcher=_COLD_LAUNCHER)

    def children(life: int) -> list[int]:
        return [int(each.name.split("-")[2]) for each in tmp_path.glob(f"{life}-*")]

    until(lambda: len(children(0)) == 2, launched)
    before = launched.pids()
    parents = [psutil.Process(each).ppid() for each in children(0)]
    os.kill(parents[0], signal.SIGKILL)
    until(lambda: len(children(1)) == 2, launched)
    until(lambda: not any(map(is_running, before)), launched)
    ranks = [psutil.Process(each).ppid() for each in children(1)]
    launched.process.kill()
    launched.process.wait()
    end = time.monotonic() + _LIMIT_S
    while any(map(is_running, ranks)) and time.monotonic() < end:
        time.sleep(0.01)
    assert not [pid for pid in ranks if is_running(pid)]
    for each in children(1):
        # What a rank of a killed launcher has started is the job's affair: its agent ends it.
        os.kill(each, signal.SIGKILL)


def test_the_store_that_dies_is_started_again_with_all(
    launch: Callable[..., Launched], tmp_path: Path
) -> None:
    text = (
        "life = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
        f"open(f'{tmp_path}/{{life}}-{{os.getpid()}}', 'x').close()\n"
        "time.sleep(0 if life else 600)"
    )
    launched = launch("--ranks", 1, script(tmp_path, text), launcher=_COLD_LAUNCHER)
    until(lambda: bool(list(tmp_path.glob("0-*"))), launched)
    (rank,) = (int(each.name.split("-")[1]) for each in tmp_path.glob("0-*"))
    (store,) = launched.pids() - {rank}
    os.kill(store, signal.SIGKILL)
    assert launched.end()[0] == 0


def test_ranks_do_not_draw_the_same_random_numbers(
    launch: Callable[..., Launched], tmp_path: Path
) -> None:
    text = "import random, numpy\nprint(random.random(), numpy.random.random())"
    words = ("--ranks", 2, "--import", "numpy", script(tmp_path, text))
    code, said = launch(*words, launcher=_COLD_LAUNCHER).end()
    assert code == 0
    drawn = said.split()
    assert len(set(drawn)) == 4


def test_arguments_and_the_folder_of_a_script_are_its_own(
    launch: Callable[..., Launched], tmp_path: Path
) -> None:
    (tmp_path / "beside.py").write_text("said = 'found'")
    path = script(tmp_path, "import beside\nprint(beside.said, sys.argv[1:], __name__)")
    code, said = launch("--ranks", 1, path, "--lr", "0.1", "--ranks", "9").end()
    assert (code, said) == (0, "found ['--lr', '0.1', '--ranks', '9'] __main__\n")
