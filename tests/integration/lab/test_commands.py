"""``python -m lab`` as a process of its own, against a server over real sockets."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.lab.fake_server import OPERATOR_TOKEN, FakeServer, serve

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(OPERATOR_TOKEN + "\n")
    return path


def start(fake: FakeServer, command: str, token_file: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "lab", command, "--server", fake.url),
            *("--token-file", str(token_file), *options),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "error"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_demo_pushes_until_it_is_told_to_end(token_file: Path) -> None:
    with serve() as fake:
        process = start(fake, "demo", token_file, "--gpus", "64", "--sample-s", "0.5")
        deadline = time.monotonic() + 120.0
        while len(fake.batches) < 30 and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60.0)
        assert process.returncode == 0, err
        assert out == ""
        assert 'msg="fleet enrolled"' in err
        assert "hra_" not in err
        assert OPERATOR_TOKEN not in err


def test_the_demo_ends_with_a_reason_when_it_is_not_allowed_in(tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("hru_viewer")
    with serve() as fake:
        process = start(fake, "demo", token_file, "--gpus", "8")
        _, err = process.communicate(timeout=30.0)
        assert process.returncode == 1
        assert "not an operator" in err
        assert "Traceback" not in err


def test_load_prints_one_json_object_and_succeeds(token_file: Path) -> None:
    with serve() as fake:
        process = start(
            fake, "load", token_file, "--gpus", "64", "--rate", "0", "--duration-s", "0.5"
        )
        out, err = process.communicate(timeout=60.0)
        assert process.returncode == 0, err
        result = json.loads(out)
        assert result["batches_stored"] == len(fake.batches) > 0


def test_load_fails_when_not_all_was_stored(token_file: Path) -> None:
    with serve() as fake:
        fake.forget = True
        process = start(
            fake,
            "load",
            token_file,
            *("--gpus", "64", "--duration-s", "0.2", "--drain-timeout-s", "0.3"),
        )
        out, err = process.communicate(timeout=60.0)
        assert process.returncode == 1, err
        assert json.loads(out)["batches_waiting"] > 0
