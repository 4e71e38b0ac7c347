"""What each distribution carries. A node installs no laws, no twin and no faults."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
#: Packages of the distribution that a node installs: contracts, client, command line, agent, jobs,
#: the runner of jobs, what their training loops use, and the replay of recordings, a client.
NODE = {
    "headroom",
    "headroom.agent",
    "headroom.agent.actuation",
    "headroom.agent.nvml",
    "headroom.agent.sources",
    "headroom.agent.sources.redfish",
    "headroom.agent.traffic",
    "headroom.checkpoints",
    "headroom.documents",
    "headroom.jobs",
    "headroom.jobs.formats",
    "headroom.kueue",
    "headroom.replay",
    "headroom.schedulers",
    "headroom.slurm",
    "headroom.training",
    "headroom.work",
}
#: Modules beside those packages.
NODE_MODULES = {
    "__init__",
    "__main__",
    "checkpoint_commands",
    "cli",
    "client",
    "contracts",
    "dcgm",
    "disk",
    "errors",
    "heartbeat",
    "layouts",
    "logs",
    "numbers",
    "options",
    "places",
    "settings",
    "signals",
    "traffic",
}
#: Kinds of files that are read and not imported.
DATA = {".yaml", ".css", ".js", ".toml"}
#: What the other distribution may hold, with all below it.
LAB = ("lab.matrix", "lab.plan", "physics")


def built(folder: Path, source: str) -> list[str]:
    """Build a distribution from a copy of the tree, and return its files without metadata."""
    tree = folder / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, tree)
    ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    for room in ("headroom", "lab", "physics"):
        shutil.copytree(REPOSITORY / room, tree / room, ignore=ignored)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", folder, tree / source],
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if ".dist-info/" not in name]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return built(tmp_path_factory.mktemp("node"), ".")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return built(tmp_path_factory.mktemp("lab"), "lab")


def packages(files: list[str]) -> set[str]:
    """Return the names of the folders that hold the files."""
    return {name.rpartition("/")[0].replace("/", ".") for name in files}


def test_a_node_installs_neither_laws_nor_faults(node: list[str]) -> None:
    assert packages(node) == NODE
    assert {Path(each).stem for each in node if each.count("/") == 1} == NODE_MODULES
    assert {Path(each).suffix for each in node} == {".py"}


def test_the_laboratory_holds_laws_and_matrix_and_nothing_of_the_server(lab: list[str]) -> None:
    found = packages(lab)
    assert not [name for name in found if not f"{name}.".startswith(tuple(f"{x}." for x in LAB))]
    assert set(LAB) <= found
    for data in ("lab/matrix/standard", "lab/matrix/report", "physics/hardware"):
        here = {each.name for each in (REPOSITORY / data).iterdir() if each.suffix in DATA}
        assert here
        assert {f"{data}/{name}" for name in here} <= set(lab)


def test_the_two_are_of_one_version_and_share_no_file(node: list[str], lab: list[str]) -> None:
    assert not set(node) & set(lab)
    own = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    other = tomllib.loads((REPOSITORY / "lab" / "pyproject.toml").read_text())["project"]
    assert other["version"] == own["version"]
    assert other["dependencies"] == [f"headroom=={own['version']}"]
    extras = own["optional-dependencies"]
    assert extras["matrix"] == [f"headroom-lab=={own['version']}"]
    assert extras["plan"] == [f"headroom-lab[plan]=={own['version']}"]
