"""``headroom checkpoints``, without a network; with one: test_checkpoint_stores.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from headroom.checkpoints import Store
from headroom.checkpoints.store import chunk_path
from headroom.cli import main
from tests.unit.headroom.checkpoints.builders import make_folder, read_folder

FILES = {"state.pt": b"s" * 5000, "rng": b"1"}


def run(*words: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["checkpoints", *map(str, words)])
    return done.exit_code, done.output


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = make_folder(tmp_path / "folder", FILES)
    about = tmp_path / "about.json"
    about.write_text(json.dumps({"code_revision": "9fceb02", "layout": {"data": 2}}))
    for step in (1, 2):
        make_folder(folder, {"rng": str(step).encode()})
        words = ["--run", "gpt", "--step", str(step), "--about", str(about)]
        assert run("save", folder, tmp_path / "store", *words)[0] == 0
    return tmp_path / "store"


def spoil_newest(store: Path) -> None:
    older, newest = Store.at(store).readable("gpt")
    (new,) = set(newest.manifest.chunks()) - set(older.manifest.chunks())
    (store / chunk_path(new)).write_bytes(b"rotten")


def test_what_is_known_is_in_the_list(store: Path) -> None:
    code, output = run("list", store, "--json")
    said = [json.loads(line) for line in output.splitlines()]
    assert code == 0
    assert [each["about"]["step"] for each in said] == [1, 2]
    assert said[0]["about"]["code_revision"] == "9fceb02"


def test_what_is_not_whole_is_said_and_ends_with_3(store: Path) -> None:
    assert run("verify", store) == (0, run("verify", store)[1])
    spoil_newest(store)
    code, output = run("verify", store)
    assert code == 3
    assert "gpt at step 1 " in output
    assert "is not whole" in output


def test_restoring_says_what_it_passed_over(store: Path, tmp_path: Path) -> None:
    spoil_newest(store)
    code, output = run("restore", store, tmp_path / "back", "--run", "gpt")
    assert code == 0
    assert "passed over gpt at step 2" in output
    assert read_folder(tmp_path / "back") == {**FILES, "rng": b"1"}


def test_a_step_may_be_asked_for(store: Path, tmp_path: Path) -> None:
    words: list[str | Path] = ["restore", store, tmp_path / "back", "--run", "gpt", "--step"]
    assert run(*words, "7") == (1, f"Error: {store} has no checkpoint of gpt at step 7\n")
    assert "at step 1" in run(*words, "1")[1]


def test_what_arrived_counts_when_it_was_verified_there(store: Path, tmp_path: Path) -> None:
    far = tmp_path / "far"
    assert run("ship", store, far, "--run", "gpt", "--check", "there")[0] == 0
    assert run("list", far) == (0, "")
    assert "at step 2" in run("verify", far, "--arrivals")[1]
    assert "step 2" in run("list", far)[1]


def test_old_ones_are_removed(store: Path) -> None:
    assert "1 checkpoints and 1 chunks removed" in run("collect", store, "--newest", "1")[1]
    assert "step 2" in run("list", store)[1]


@pytest.mark.parametrize("text", ["[]", "{", '{"layout": "wide"}', '{"colour": "red"}'])
def test_what_is_said_about_it_is_checked(store: Path, tmp_path: Path, text: str) -> None:
    file = tmp_path / "wrong.json"
    file.write_text(text)
    words: list[str | Path] = [
        "save",
        tmp_path / "folder",
        store,
        "--run",
        "gpt",
        "--step",
        "3",
        "--about",
        file,
    ]
    code, output = run(*words)
    assert code == 1
    assert str(file) in output


def test_without_the_extra_the_way_to_install_it_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    for name in [each for each in sys.modules if each.startswith("headroom.checkpoints")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("headroom.checkpoints")
    assert "pip install 'headroom[checkpoints]'" in run("list", tmp_path)[1]


def test_every_command_and_option_is_documented() -> None:
    text = Path("docs/reference/command-line.md").read_text()
    group = main.commands["checkpoints"]
    assert isinstance(group, click.Group)
    for name, command in group.commands.items():
        assert f"`headroom checkpoints {name} " in text
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert f"`{parameter.opts[0]}" in text, f"{name} {parameter.opts[0]}"
