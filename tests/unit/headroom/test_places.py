"""Places for files; buckets and SFTP: tests/integration/headroom/test_checkpoint_stores.py."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import fsspec
import pytest

from headroom.places import Directory, Elsewhere, NoSuchPlace, Place, Unreachable, open_place


@pytest.fixture(params=["directory", "elsewhere", "growing"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "directory":
        yield Directory(tmp_path / "place")
    elif request.param == "elsewhere":
        yield Elsewhere("memory://place")
        fsspec.filesystem("memory").rm("/place", recursive=True)
    else:
        yield Elsewhere(f"local://{tmp_path}/place")


def test_files_are_given_back_listed_and_removed(place: Place) -> None:
    assert list(place.files()) == []
    place.put("a/one", b"1")
    place.put("a/b/two", b"22")
    place.put("c/three", b"333")
    place.put("c/three", b"4444")
    assert place.get("a/b/two") == b"22"
    found = {each.path: each for each in place.files("a")}
    assert {path: each.size for path, each in found.items()} == {"a/one": 1, "a/b/two": 2}
    assert all(abs(datetime.now(UTC) - each.at) < timedelta(minutes=1) for each in found.values())
    assert {each.path: each.size for each in place.files()}["c/three"] == 4
    place.delete("a/one")
    place.delete("a/one")
    assert [each.path for each in place.files("a")] == ["a/b/two"]
    with pytest.raises(FileNotFoundError):
        place.get("a/one")


def test_what_is_stored_is_nobody_elses_business(tmp_path: Path) -> None:
    Directory(tmp_path / "place").put("a/one", b"1")
    assert stat.S_IMODE((tmp_path / "place").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "place" / "a" / "one").stat().st_mode) == 0o600


def test_a_folder_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unreachable, match=f"{tmp_path}/file cannot be used: .*File exists"):
        Directory(tmp_path / "file").put("a", b"1")


@pytest.mark.parametrize("url", ["{}/with%20space", "file://{}/with%20space"])
def test_a_path_may_have_spaces(tmp_path: Path, url: str) -> None:
    place = open_place(url.format(tmp_path))
    assert str(place) == f"{tmp_path}/with space"


def test_an_address_of_no_kind_is_refused() -> None:
    with pytest.raises(NoSuchPlace, match="gopher"):
        open_place("gopher://x/y")


def test_a_password_is_not_shown() -> None:
    assert str(Elsewhere("memory://somebody:secret@host/place")) == "memory://somebody@host/place"
