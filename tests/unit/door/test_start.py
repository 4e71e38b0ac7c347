"""How the web server is started."""

from __future__ import annotations

import argparse

import pytest

from config.door.__main__ import flags, room_for


def test_all_connections_fit_where_enough_files_may_be_open(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert room_for(16_384, 20_000) == 16_384
    assert capsys.readouterr().err == ""


def test_fewer_connections_are_held_and_told_where_too_few_files_may_be_open(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert room_for(16_384, 4096) == 3584
    said = capsys.readouterr().err
    assert "4096 files" in said
    assert "LimitNOFILE" in said


def test_what_bounds_clients_is_set_and_not_left_to_granian() -> None:
    given = flags(argparse.Namespace(host="::", port=8001, workers=3), 4000)
    for flag in ("--backlog", "--backpressure", "--http1-header-read-timeout"):
        assert flag in given
    assert given[given.index("--backpressure") + 1] == "4000"
