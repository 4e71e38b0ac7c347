"""The systemd units of the server, as far as that can be seen without systemd running."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
UNITS = [REPOSITORY / "deploy" / name for name in ("headroom.service", "headroom@.service")]
PYTHON = "/srv/headroom/.venv/bin/python"

needs_systemd = pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="systemd is not installed"
)


def settings(unit: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_it_runs_as_nobody_in_particular_and_gains_no_rights(unit: Path) -> None:
    found = settings(unit)
    assert found["User"] == ["headroom"]
    assert found["NoNewPrivileges"] == ["yes"]
    assert found["ProtectSystem"] == ["strict"]
    assert found["CapabilityBoundingSet"] == [""]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_no_secret_is_written_down(unit: Path) -> None:
    assert not re.search(r"PASSWORD|SECRET_KEY=|TOKEN=|_URL=", unit.read_text())


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_all_parts_stop_before_systemd_kills_them(unit: Path) -> None:
    (limit,) = settings(unit)["TimeoutStopSec"]
    # The supervisor gives each of its four ranks 10 s; a part by itself is one.
    assert int(limit) >= (50 if unit.name == "headroom.service" else 15)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_what_hangs_is_ended_and_started_again(unit: Path) -> None:
    found = settings(unit)
    assert int(found["WatchdogSec"][0]) <= 60
    assert found["Restart"][0] in ("always", "on-failure")
    # Of web it is not the main process that beats.
    assert ("NotifyAccess" in found) == (unit.name == "headroom@.service")


@needs_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_finds_nothing_wrong_with_it(unit: Path, tmp_path: Path) -> None:
    # It looks for the program, too, which is not installed here.
    copy = tmp_path / unit.name.replace("@.", "@web.")
    copy.write_text(unit.read_text().replace(PYTHON, "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_calls_it_well_protected(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name.replace("@.", "@web.")
    copy.write_text(unit.read_text().replace(PYTHON, "/bin/true"))
    done = subprocess.run(
        [
            "systemd-analyze",
            "security",
            "--offline=true",
            "--no-pager",
            "--threshold=25",
            str(copy),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    # In tenths: from 0, nothing can be reached, to 100.
    assert done.returncode == 0, done.stdout[-2000:]
