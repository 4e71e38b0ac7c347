from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from accounts.models import AuditEntry
from fleet.models import Gpu, Site
from tests.builders.inventory import make_inventory

pytestmark = pytest.mark.django_db

FLEET = make_inventory(gpus=16)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.yaml"
    path.write_text(FLEET)
    return path


def run(*words: object) -> str:
    out = io.StringIO()
    call_command("fleet", *map(str, words), stdout=out, no_color=True)
    return out.getvalue()


def test_plan_shows_and_does_nothing(file: Path) -> None:
    shown = run("plan", file)
    assert "+ site site-1" in shown
    assert "+ GPU site-1-r0001-n1/0" in shown
    assert "to create" in shown
    assert not Site.objects.exists()


def test_apply_with_yes_does_not_ask(file: Path) -> None:
    assert "Applied." in run("apply", file, "--yes")
    assert Gpu.objects.count() == 16
    assert run("apply", file, "--yes") == "Nothing to change.\n"
    assert AuditEntry.objects.get(action="fleet.apply").actor.endswith("(command line)")


def test_on_a_terminal_a_bar_says_how_much_is_written(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    run("apply", file, "--yes")
    assert re.search(r"Rows written .*100%", terminal.getvalue())


@pytest.mark.parametrize(("answer", "sites"), [("y", 1), ("n", 0), ("", 0)])
def test_apply_asks_first(
    answer: str, sites: int, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda prompt: answer)
    if sites:
        run("apply", file)
    else:
        with pytest.raises(CommandError, match="Nothing was changed"):
            run("apply", file)
    assert Site.objects.count() == sites


def test_apply_without_a_terminal_needs_yes(file: Path) -> None:
    with pytest.raises(CommandError, match="--yes"):
        run("apply", file)


def test_a_change_in_the_meantime_stops_the_apply(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow_reader(prompt: str) -> str:
        Site.objects.create(name="meanwhile")
        return "y"

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", slow_reader)
    with pytest.raises(CommandError, match="plan again"):
        run("apply", file)


def test_problems_are_shown_with_file_and_line(file: Path) -> None:
    file.write_text("sites:\n  - name: oslo\n    color: red\n")
    with pytest.raises(CommandError, match=r"fleet\.yaml:3: sites\[0\]\.color: unknown"):
        run("plan", file)


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="No such file"):
        run("plan", tmp_path / "none.yaml")


def test_export_writes_what_plan_takes(file: Path, tmp_path: Path) -> None:
    run("apply", file, "--yes")
    copy = tmp_path / "copy.yaml"
    run("export", copy)
    assert run("export") == copy.read_text()
    assert run("plan", copy, "--prune-sites") == "Nothing to change.\n"


def test_racks_too_dense_for_their_cooling_are_warned_of(tmp_path: Path) -> None:
    file, errors = tmp_path / "air.yaml", io.StringIO()
    file.write_text(FLEET.replace("kind: rear-door", "kind: air").replace("44000", "20000"))
    call_command("fleet", "plan", str(file), stdout=io.StringIO(), stderr=errors, no_color=True)
    assert errors.getvalue() == ""
    file.write_text(
        FLEET.replace("kind: rear-door", "kind: air").replace("rated_w: 4600", "rated_w: 14600")
    )
    call_command("fleet", "plan", str(file), stdout=io.StringIO(), stderr=errors, no_color=True)
    assert errors.getvalue().startswith("! rack site-1/")
