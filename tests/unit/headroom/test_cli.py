from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from headroom import __version__, logs
from headroom.cli import main
from headroom.settings import NoTokenError, find_token
from tests.unit.headroom.recordings import WALL

REFERENCE = Path("docs/reference/command-line.md")


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HEADROOM_TOKEN", raising=False)
    monkeypatch.setenv("HEADROOM_STATE_DIR", str(tmp_path / "state"))


def make_demo_token(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "demo-token").write_text("hru_demo\n")


def test_version() -> None:
    assert CliRunner().invoke(main, ["version"]).output == f"{__version__}\n"


def test_help_and_an_agent_load_nothing_of_the_server() -> None:
    script = (
        "import sys, headroom.cli\n"
        "heavy = {'urllib3', 'sqlite3', 'psutil', 'yaml', 'pynvml'} & set(sys.modules)\n"
        "import headroom.agent.command\n"
        "foreign = {'django', 'numpy', 'fleet', 'telemetry', 'accounts'} & set(sys.modules)\n"
        "print(heavy, foreign)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set() set()\n"


def test_the_token_file_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADROOM_TOKEN", "hra_env")
    file = tmp_path / "token"
    file.write_text(" hra_file\n")
    assert find_token(file) == "hra_file"
    assert find_token(None) == "hra_env"


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "http://localhost:1", "http://[::1]:2"])
def test_the_demos_token_is_for_this_machines_server(tmp_path: Path, url: str) -> None:
    make_demo_token(tmp_path)
    assert find_token(None, local_server=url) == "hru_demo"


def test_a_replay_finds_a_token_of_its_own_and_never_takes_the_demos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_demo_token(tmp_path)
    asked: list[str] = []

    class Asked(Exception):
        """The command has found its token."""

    def note(_server: str, token: str) -> None:
        asked.append(token)
        raise Asked

    monkeypatch.setattr("headroom.replay.command.Client", note)
    recording = tmp_path / "wall_power.csv"
    recording.write_text(WALL)
    arguments = ["replay", str(recording), "--machine", "h200", "--server", "http://127.0.0.1:1"]
    assert "--token-file" in CliRunner().invoke(main, arguments).output
    (tmp_path / "state" / "replay-token").write_text("hru_replay\n")
    assert isinstance(CliRunner().invoke(main, arguments).exception, Asked)
    assert asked == ["hru_replay"]


def test_the_demos_token_goes_nowhere_else(tmp_path: Path) -> None:
    make_demo_token(tmp_path)
    for url in ("", "https://headroom.example.com", "http://127.0.0.1.example.com"):
        with pytest.raises(NoTokenError):
            find_token(None, local_server=url)


def test_a_token_that_is_not_there_is_told_with_the_way_out(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["agent", "--once", "--spool", str(tmp_path / "s")])
    assert result.exit_code == 1
    assert "--token-file" in result.output
    (tmp_path / "empty").write_text("")
    for name in ("empty", "missing"):
        with pytest.raises(NoTokenError, match=name):
            find_token(tmp_path / name)


@pytest.mark.parametrize(
    "arguments",
    [["agent", "--print"], ["agent", "--sample-s", "0"], ["replay", "x", "--speed", "-1"]],
)
def test_wrong_use_is_told(arguments: list[str]) -> None:
    assert CliRunner().invoke(main, arguments).exit_code == 2


def test_a_server_that_is_no_url_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADROOM_TOKEN", "t")
    arguments = ["agent", "--once", "--server", "oslo", "--spool", str(tmp_path / "s")]
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, "no server URL" in result.output) == (1, True)


def test_every_option_is_documented() -> None:
    text = REFERENCE.read_text()
    for name, command in main.commands.items():
        assert f"`headroom {name}" in text
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                for option in parameter.opts:
                    assert f"`{option}" in text, f"{name} {option}"


def test_a_log_line_is_one_line_of_keys_and_values() -> None:
    record = logging.makeLogRecord(
        {"name": "headroom.x", "levelname": "INFO", "msg": "two words", "cause": 'a\n"b"', "n": 1.5}
    )
    line = logs.KeyValueFormatter().format(record)
    assert re.fullmatch(
        r'ts=\S+ level=info logger=headroom\.x msg="two words" cause="a\\n\\"b\\"" n=1\.500', line
    )


def test_requests_to_a_cluster_are_not_logged_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.root, "level", logging.WARNING)
    monkeypatch.setattr(logging.getLogger("httpx2"), "level", logging.NOTSET)
    logs.set_up()
    assert not logging.getLogger("httpx2").isEnabledFor(logging.INFO)
    assert logging.getLogger("httpx2").isEnabledFor(logging.WARNING)
    assert logging.getLogger("headroom").isEnabledFor(logging.INFO)
