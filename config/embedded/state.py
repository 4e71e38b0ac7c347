"""The state directory: the files that one local installation keeps between runs.

Secrets are files of mode 0600. Run as root, the directory itself is 0711 rather than 0700,
since Postgres runs as another user and must reach its data inside.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from config.embedded.exceptions import AlreadyRunningError, DamagedFileError

__all__ = ["StateLock", "make_state_dir", "read_env", "trim_log", "write_env", "write_private"]


def make_state_dir(path: Path) -> Path:
    """Make `path` (with private logs inside) unless it is there, and return it absolute.

    The mode of a directory that exists is its owner's business and stays.
    """
    path = path.absolute()
    if not path.is_dir():
        path.mkdir(parents=True)
        path.chmod(0o711 if os.geteuid() == 0 else 0o700)
    (path / "logs").mkdir(mode=0o700, exist_ok=True)
    return path


def write_private(path: Path, text: str) -> None:
    """Replace `path` by `text` with mode 0600, wholly or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_env(path: Path) -> dict[str, str]:
    """Return the KEY=VALUE lines of `path`; none when it does not exist.

    Blank lines and lines that start with # do not count. Values are taken as they stand.
    """
    if not path.exists():
        return {}
    way_out = "Mend the line, or move the file away: with a new SECRET_KEY everybody logs in again."
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise DamagedFileError(path, "it is not text", way_out) from None
    pairs = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        key, equals, value = line.partition("=")
        if not equals or not key.isidentifier():
            raise DamagedFileError(path, f"line {number} is not KEY=VALUE", way_out)
        pairs[key] = value
    return pairs


def write_env(path: Path, values: dict[str, str]) -> None:
    """Set `values` in the file that `read_env` reads; other keys in it stay."""
    for key, value in values.items():
        if "\n" in value or not key.isidentifier():
            raise ValueError(f"{key}: not a value for an environment file")
    merged = read_env(path) | values
    lines = [f"{key}={value}\n" for key, value in sorted(merged.items())]
    write_private(path, "# Written at each start. Keep it private.\n" + "".join(lines))


def trim_log(path: Path, limit_bytes: int = 5_000_000) -> None:
    """Move the content of `path` to `path`.1 once it is over the limit.

    The server goes on writing to the same file, which it opened for appending. A line
    written between copy and truncation is lost: acceptable for a log, not for data.
    """
    if path.exists() and path.stat().st_size > limit_bytes:
        shutil.copyfile(path, path.with_name(path.name + ".1"))
        os.truncate(path, 0)


class StateLock:
    """Holds a state directory for one launcher at a time; the kernel drops it with us."""

    def __init__(self, path: Path, what: str) -> None:
        self._path = path
        self._what = what
        self._handle: int | None = None

    def acquire(self) -> None:
        """Take the lock, once, or raise AlreadyRunningError at once."""
        if self._handle is not None:
            return
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(handle, 20).decode("ascii", "replace").strip()
            # Whatever is in the file: the lock on it counts.
            holder = holder if holder.isdigit() else ""
            os.close(handle)
            raise AlreadyRunningError(self._path.parent, self._what, holder) from None
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
        self._handle = handle

    def release(self) -> None:
        """Give the lock back; the file stays, since removing it would race a new holder."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
