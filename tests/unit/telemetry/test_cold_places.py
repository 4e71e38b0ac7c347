"""Where files of the cold tier lie: a directory, or a bucket (here pyarrow's own in memory)."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from pytest_django import Settings

from telemetry.cold.places import Bucket, Directory, Place, place


@pytest.fixture(params=["directory", "bucket"])
def somewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Directory(tmp_path / "cold") if request.param == "directory" else Bucket("mock:///cold")


def test_a_file_is_given_back_listed_and_removed(somewhere: Place) -> None:
    if isinstance(somewhere, Bucket):
        somewhere._files.create_dir("cold/t")  # what object stores do without
    assert list(somewhere.listed()) == []
    somewhere.put("t/a.parquet", b"one")
    somewhere.put("t/b.parquet", b"two")
    assert somewhere.get("t/a.parquet") == b"one"
    assert {path for path, _ in somewhere.listed()} == {"t/a.parquet", "t/b.parquet"}
    somewhere.delete("t/a.parquet")
    somewhere.delete("t/a.parquet")
    assert [path for path, _ in somewhere.listed()] == ["t/b.parquet"]
    with pytest.raises(FileNotFoundError):
        somewhere.get("t/a.parquet")


def test_a_file_that_was_not_finished_is_none_to_a_reader_but_can_be_found(tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    directory.put("t/a.parquet", b"one")
    (tmp_path / "t" / ".unfinished-b.parquet").write_bytes(b"tw")
    with pytest.raises(FileNotFoundError):
        directory.get("t/b.parquet")
    assert "t/.unfinished-b.parquet" in {path for path, _ in directory.listed()}


def test_others_cannot_read_the_directory(tmp_path: Path) -> None:
    Directory(tmp_path / "cold").put("t/a.parquet", b"one")
    assert stat.S_IMODE((tmp_path / "cold").stat().st_mode) == 0o700


def test_the_setting_says_where(settings: Settings, tmp_path: Path) -> None:
    settings.TELEMETRY_COLD_URL = ""
    assert place().uri("x") == str(settings.STATE_DIR / "cold" / "x")
    settings.TELEMETRY_COLD_URL = f"file://{tmp_path}/with%20space"
    assert place().uri("x") == f"{tmp_path}/with space/x"
    settings.TELEMETRY_COLD_URL = "mock:///bucket/prefix/"
    assert place().uri("t/x") == "mock:///bucket/prefix/t/x"
