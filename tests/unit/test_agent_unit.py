"""The systemd unit of the agent, as far as that can be seen without systemd running."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from headroom.cli import main

REPOSITORY = Path(__file__).resolve().parents[2]
UNIT = REPOSITORY / "deploy" / "headroom-agent.service"
HOW_TO = REPOSITORY / "docs" / "how-to" / "install-the-agent.md"


def settings() -> dict[str, list[str]]:
    """Return the unit's settings: a name may be given several times."""
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


def test_the_agent_runs_as_nobody_in_particular_and_gains_no_rights() -> None:
    unit = settings()
    assert unit["User"] == ["headroom"]
    assert unit["NoNewPrivileges"] == ["yes"]
    assert unit["ProtectSystem"] == ["strict"]
    assert unit["CapabilityBoundingSet"] == unit["AmbientCapabilities"] == ["CAP_SYSLOG"]


def test_what_it_reads_is_not_hidden_from_it() -> None:
    unit = settings()
    assert not {"PrivateDevices", "DeviceAllow", "DevicePolicy", "ProtectClock"} & unit.keys()
    assert "ProtectKernelLogs" not in unit
    assert "PrivateNetwork" not in unit


def test_its_command_is_one_that_there_is() -> None:
    (command,) = settings()["ExecStart"]
    program, name, *options = command.split()
    assert program == "/opt/headroom/bin/headroom"
    known = {o for p in main.commands[name].params if isinstance(p, click.Option) for o in p.opts}
    assert {option for option in options if option.startswith("-")} <= known


def test_it_may_take_as_long_to_stop_as_it_needs() -> None:
    (limit,) = settings()["TimeoutStopSec"]
    assert int(limit) > 3 + 5  # its last push, and a driver that hangs


def test_the_how_to_uses_the_paths_of_the_unit() -> None:
    text = HOW_TO.read_text()
    for path in ("/opt/headroom/bin/headroom", "/var/lib/headroom", f"deploy/{UNIT.name}"):
        assert path in text


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_finds_nothing_wrong_with_it(tmp_path: Path) -> None:
    # It looks for the program, too, which is not installed here.
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/headroom/bin/headroom", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
