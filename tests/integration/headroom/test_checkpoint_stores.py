"""Checkpoints in real stores: a bucket of SeaweedFS, and a folder that a real SSH server serves."""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headroom.checkpoints import Checkpoint, Keep, Store, collect, latest_whole, restore, save, ship
from headroom.checkpoints.store import chunk_path
from headroom.cli import main
from headroom.places import Unreachable, open_place
from tests.object_store.store import BUCKET, ObjectStore
from tests.unit.headroom.checkpoints.builders import (
    RUN,
    SMALL,
    about,
    make_folder,
    make_store,
    read_folder,
)

FILES = {"model.pt": random.Random(1).randbytes(60_000), "rng": b"1"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with ObjectStore(tmp_path_factory.mktemp("store")) as store:
        yield store


@pytest.fixture
def bucket(server: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{tmp_path.name}"


@pytest.fixture
def sftp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder behind an SSH server, whose key this user knows."""
    paramiko = pytest.importorskip("paramiko", reason="paramiko is not installed")
    (tmp_path / "served").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    with _SshServer(paramiko, tmp_path / "served") as found:
        known = f"[127.0.0.1]:{found.port} {found.key.get_name()} {found.key.get_base64()}\n"
        make_folder(tmp_path, {".ssh/known_hosts": known.encode()})
        yield f"sftp://somebody:secret@127.0.0.1:{found.port}/checkpoints"


@pytest.fixture(params=["bucket", "sftp"])
def far(request: pytest.FixtureRequest) -> Store:
    return Store(open_place(request.getfixturevalue(request.param)), SMALL)


@pytest.fixture
def near(tmp_path: Path) -> Store:
    return make_store(tmp_path / "near")


@pytest.fixture
def saved(near: Store, tmp_path: Path) -> Checkpoint:
    return save(make_folder(tmp_path / "folder", FILES), near, about(1))


def test_it_goes_there_and_comes_back(
    near: Store, far: Store, saved: Checkpoint, tmp_path: Path
) -> None:
    done = ship(saved, near, far)
    assert done.sent == done.chunks
    restore(far, tmp_path / "back", RUN)
    assert read_folder(tmp_path / "back") == FILES
    back = make_store(tmp_path / "back-near")
    ship(saved, far, back)
    assert latest_whole(back, RUN) == (saved, [])


def test_only_what_is_new_goes_and_what_is_old_is_removed(
    near: Store, far: Store, saved: Checkpoint, tmp_path: Path
) -> None:
    ship(saved, near, far)
    later = save(make_folder(tmp_path / "folder", {"rng": b"2"}), near, about(2))
    assert ship(later, near, far).sent == 1
    done = collect(far, Keep(newest=1))
    assert (done.checkpoints, done.chunks) == ([saved.name], 1)
    assert {digest for digest, _ in far.chunks()} == set(later.manifest.chunks())
    assert restore(far, tmp_path / "back", RUN).checkpoint == later


def test_what_is_damaged_or_lost_there_is_passed_over(
    near: Store, far: Store, saved: Checkpoint, tmp_path: Path
) -> None:
    ship(saved, near, far)
    later = save(make_folder(tmp_path / "folder", {"rng": b"2"}), near, about(2))
    ship(later, near, far)
    (new,) = set(later.manifest.chunks()) - set(saved.manifest.chunks())
    far.place.put(chunk_path(new), b"rotten")
    found = restore(far, tmp_path / "back", RUN)
    assert found.checkpoint == saved
    assert [each.name for each in found.passed_over] == [later.name]


def test_the_command_line_does_it_all(bucket: str, tmp_path: Path) -> None:
    folder, near = make_folder(tmp_path / "folder", FILES), str(tmp_path / "near")

    def run(*words: str) -> str:
        done = CliRunner().invoke(main, ["checkpoints", *words, "--run", RUN])
        assert done.exit_code == 0, done.output
        return done.output

    assert "at step 7" in run("save", str(folder), near, "--step", "7")
    assert "nothing to resume from" in run("lag", near, bucket)
    assert "of 2 chunks" in run("ship", near, bucket)
    assert "has it" in run("ship", near, bucket)
    assert "0 steps" in run("lag", near, bucket)
    assert "step 7" in run("list", bucket)
    assert '"step": 7' in run("list", bucket, "--json")
    assert "whole" in run("verify", bucket)
    run("restore", bucket, str(tmp_path / "back"))
    assert read_folder(tmp_path / "back") == FILES
    done = CliRunner().invoke(main, ["checkpoints", "collect", bucket])
    assert "0 checkpoints and 0 chunks removed" in done.output


def test_a_store_that_is_away_is_said(monkeypatch: pytest.MonkeyPatch, bucket: str) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2-hunter2")
    with pytest.raises(Unreachable, match=rf"{bucket} cannot be used") as raised:
        Store.at(bucket).names()
    assert "hunter2" not in str(raised.value)


def test_a_host_that_is_not_known_is_not_trusted(sftp: str, tmp_path: Path) -> None:
    (tmp_path / ".ssh" / "known_hosts").write_text("")
    with pytest.raises(Unreachable, match="not found in known_hosts") as raised:
        open_place(sftp)
    assert "secret" not in str(raised.value)


class _SshServer:
    """An SSH server in this process that serves a folder to whoever has the password."""

    def __init__(self, paramiko: Any, root: Path) -> None:
        self._paramiko, self._root = paramiko, root
        self.key = paramiko.ECDSAKey.generate()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._transports: list[Any] = []

    def __enter__(self) -> _SshServer:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for transport in self._transports:
            transport.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport = self._paramiko.Transport(connection)
            transport.add_server_key(self.key)
            handler = _folder_of(self._paramiko, self._root)
            transport.set_subsystem_handler("sftp", self._paramiko.SFTPServer, handler)
            transport.start_server(server=_any_password(self._paramiko))
            self._transports.append(transport)


def _any_password(paramiko: Any) -> Any:
    class Server(paramiko.ServerInterface):  # type: ignore[misc]
        def check_auth_password(self, username: str, password: str) -> int:
            return int(paramiko.AUTH_SUCCESSFUL if password == "secret" else paramiko.AUTH_FAILED)

        def check_channel_request(self, kind: str, chanid: int) -> int:
            return int(paramiko.OPEN_SUCCEEDED)

    return Server()


def _folder_of(paramiko: Any, root: Path) -> Any:
    """Return what serves the files of a folder."""
    attributes = paramiko.SFTPAttributes.from_stat

    def answered(call: Callable[[], Any]) -> Any:
        try:
            found = call()
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno)
        return paramiko.SFTP_OK if found is None or isinstance(found, Path) else found

    class Files(paramiko.SFTPServerInterface):  # type: ignore[misc]
        def _path(self, path: str) -> Path:
            return root / str(self.canonicalize(path)).lstrip("/")

        def list_folder(self, path: str) -> Any:
            entries = self._path(path)
            return answered(
                lambda: [attributes(each.stat(), each.name) for each in entries.iterdir()]
            )

        def stat(self, path: str) -> Any:
            return answered(lambda: attributes(self._path(path).stat()))

        lstat = stat

        def open(self, path: str, flags: int, attr: Any) -> Any:
            return answered(lambda: _opened(paramiko, self._path(path), flags))

        def remove(self, path: str) -> Any:
            return answered(lambda: self._path(path).unlink())

        def posix_rename(self, oldpath: str, newpath: str) -> Any:
            return answered(lambda: self._path(oldpath).replace(self._path(newpath)))

        def mkdir(self, path: str, attr: Any) -> Any:
            return answered(lambda: self._path(path).mkdir())

    return Files


def _opened(paramiko: Any, path: Path, flags: int) -> Any:
    handle = paramiko.SFTPHandle(flags)
    mode = "rb" if flags & os.O_ACCMODE == os.O_RDONLY else "wb"
    handle.readfile = handle.writefile = os.fdopen(os.open(path, flags, 0o600), mode)
    return handle
