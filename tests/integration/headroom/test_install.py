"""What is installed without the server, from the files of the repository: agent, and matrix."""

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


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of what the two distributions are made of: a build writes into its folder."""
    folder = tmp_path / "source"
    folder.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, folder)
    ignored = shutil.ignore_patterns("__pycache__", "build")
    for room in ("headroom", "lab", "physics"):
        shutil.copytree(REPOSITORY / room, folder / room, ignore=ignored)
    return folder


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The Python of a bare virtual environment."""
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    return tmp_path / "venv" / "bin" / "python"


def installed_by(python: Path, *wanted: str | Path) -> set[str]:
    """Install what is wanted, and return the names of all packages that are there then."""
    run(python, "-m", "pip", "install", "--quiet", *wanted, cwd=python.parent)
    listed = run(python, "-m", "pip", "list", "--format", "json", cwd=python.parent)
    return {package["name"].lower() for package in json.loads(listed)}


@pytest.mark.slow
def test_the_agent_installs_and_reads_without_the_server(
    source: Path, python: Path, tmp_path: Path
) -> None:
    installed = installed_by(python, f"{source}[agent]")
    assert not FOREIGN & installed
    assert len(installed) < 15

    headroom = python.with_name("headroom")
    exporter = ("--dcgm", "http://127.0.0.1:1/metrics")  # needs its parser, not an answer
    options = ("agent", "--once", "--node", "n1", "--config", "/dev/null", "--sample-s", "0.2")
    batch = json.loads(run(headroom, *options, *exporter, "--print", cwd=tmp_path))
    assert batch["nodes"][0]["host"]["mem_total"][0] > 0
    assert "host of n1" in run(headroom, *options, "--table", cwd=tmp_path)


@pytest.mark.slow
def test_the_matrix_installs_without_the_server_and_without_numpy(
    source: Path, python: Path, tmp_path: Path
) -> None:
    assert not FOREIGN & installed_by(python, source, source / "lab")
    assert "links between" in run(python.with_name("headroom"), "matrix", "ways", cwd=tmp_path)
