"""The agent installed by itself: without the server, from the files of the repository."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
#: Only the server has these.
FOREIGN = {"django", "celery", "redis", "psycopg", "numpy", "granian"}


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_agent_installs_and_reads_without_the_server(tmp_path: Path) -> None:
    source = tmp_path / "source"  # a build writes into the folder that it is made from
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    shutil.copytree(
        REPOSITORY / "headroom", source / "headroom", ignore=shutil.ignore_patterns("__pycache__")
    )
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", f"{source}[agent]", cwd=tmp_path)

    installed = json.loads(run(python, "-m", "pip", "list", "--format", "json", cwd=tmp_path))
    assert not FOREIGN & {package["name"].lower() for package in installed}
    assert len(installed) < 15

    headroom = tmp_path / "venv" / "bin" / "headroom"
    exporter = ("--dcgm", "http://127.0.0.1:1/metrics")  # needs its parser, not an answer
    options = ("agent", "--once", "--node", "n1", "--config", "/dev/null", "--sample-s", "0.2")
    batch = json.loads(run(headroom, *options, *exporter, "--print", cwd=tmp_path))
    assert batch["nodes"][0]["host"]["mem_total"][0] > 0
    assert "host of n1" in run(headroom, *options, "--table", cwd=tmp_path)
