"""The inputs that a phase declares, verified before its command starts, by the command's own user.

Imports nothing but the standard library: the shim uses it. docs/reference/inputs.md says what a
digest is of, so that it can be made without this.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headroom.work.reading import write_plain

__all__ = ["SAMPLED", "VARIABLE", "WHOLE", "Refused", "check", "digest_of", "size_of"]

#: The variable that names the file with what was verified.
VARIABLE = "HEADROOM_INPUTS"
#: What a digest begins with.
WHOLE, SAMPLED = "sha256:", "sampled-sha256:"

#: Of a file that is sampled: so many blocks of so many bytes, and of a folder so many files.
_BLOCKS, _BLOCK_BYTES = 16, 64 * 1024
_FILES = 1000
_READ_BYTES = 1024 * 1024
#: A pipe is not waited for, and no terminal becomes ours.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Refused(Exception):
    """An input is not what was declared, or cannot be read."""


class _NotVerified(Exception):
    """There is nothing to hold the input against."""


def check(declared: Sequence[Mapping[str, str]], file: Path, path: str) -> None:
    """Verify inputs (``name``, ``digest``, ``path``) in turn, and tell in ``file`` what was found.

    ``path`` is where programs are looked for. Raises :class:`Refused` for the first one that is not
    what was declared; the file then says so, too.
    """
    found: list[dict[str, Any]] = []
    refused = ""
    for each in declared:
        fact = {"name": each["name"], "digest": each["digest"], "is_verified": True, "why": ""}
        try:
            _verify(each, path)
        except _NotVerified as exc:
            fact |= {"is_verified": False, "why": str(exc)}
        except Refused as exc:
            refused = str(exc)
            break
        found.append(fact)
    write_plain(file, json.dumps({"inputs": found, "refused": refused}).encode(), 0o644)
    if refused:
        raise Refused(refused)


def digest_of(path: Path, *, sampled: bool = False) -> str:
    """Return the digest of a file or folder, whole or sampled. Raises :class:`Refused`."""
    try:
        if not path.is_dir():
            return f"{SAMPLED}{_sample(path)}" if sampled else f"{WHOLE}{_whole(path)}"
        return f"{SAMPLED}{_sampled_folder(path)}" if sampled else f"{WHOLE}{_whole_folder(path)}"
    except OSError as exc:
        raise Refused(f"{exc.filename or path} cannot be read: {exc.strerror or exc}") from exc


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files of a folder. Raises :class:`Refused`."""
    try:
        files = [path / name for name in _names(path)] if path.is_dir() else [path]
        return sum(each.stat().st_size for each in files)
    except OSError as exc:
        raise Refused(f"{exc.filename or path} cannot be read: {exc.strerror or exc}") from exc


# --- One input ------------------------------------------------------------------------------------


def _verify(declared: Mapping[str, str], path: str) -> None:
    name, digest, place = declared["name"], declared["digest"], declared.get("path", "")
    if name == "image":
        raise _NotVerified("the machine does not know in which image the command runs")
    if not digest:
        # An artifact that nobody has measured: it is not for want of a path that it is let through.
        raise Refused(f"input {name}: nothing is recorded of it")
    if not place:
        raise _NotVerified("where it lies is not stated")
    try:
        if name == "code":
            found = _revision(Path(place), path)
        else:
            found = digest_of(Path(place), sampled=digest.startswith(SAMPLED))
    except Refused as exc:
        raise Refused(f"input {name}: {exc}") from exc
    if found != digest:
        raise Refused(f"input {name} differs: declared {digest}, found {found} at {place}")


def _revision(folder: Path, path: str) -> str:
    """Return the commit that is checked out in a folder, where all of its files are as there."""
    if not folder.is_dir():
        raise Refused(f"{folder} is no folder")
    try:
        revision = _git(folder, path, "rev-parse", "--verify", "HEAD")
        changed = _git(folder, path, "status", "--porcelain", "--untracked-files=no", "--", ".")
    except FileNotFoundError:
        raise _NotVerified("git is not installed") from None
    except subprocess.CalledProcessError as exc:
        said = exc.stderr.strip().splitlines() or [f"git ended with {exc.returncode}"]
        raise _NotVerified(said[-1]) from exc
    if changed:
        first, *more = changed.splitlines()
        others = f" and {len(more)} others" if more else ""
        raise Refused(f"{folder} is not as committed in {revision}: {first[3:]}{others}")
    return revision


def _git(folder: Path, path: str, *words: str) -> str:
    """Return what git says of a folder. It may be somebody else's, and nothing is written to it."""
    command = ["git", "-c", "safe.directory=*", "-c", "core.fsmonitor=false", *words]
    env = {"PATH": path, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    done = subprocess.run(  # noqa: S603 - as the command's own user
        command, cwd=folder, env=env, check=True, capture_output=True, text=True, errors="replace"
    )
    return done.stdout.rstrip("\n")


# --- Digests --------------------------------------------------------------------------------------


def _whole_folder(folder: Path) -> str:
    """Return the digest of what ``sha256sum -z`` prints of all files, by path."""
    listing = hashlib.sha256()
    for name in _names(folder):
        listing.update(_whole(folder / name).encode() + b"  " + os.fsencode(name) + b"\0")
    return listing.hexdigest()


def _sampled_folder(folder: Path) -> str:
    """Return the digest of all sizes and paths, and of samples of so many files, spread evenly."""
    names = _names(folder)
    chosen = set(_spread(len(names), _FILES))
    listing = hashlib.sha256()
    for number, name in enumerate(names):
        # All sizes are looked at: a sample has its file's.
        said = _sample(folder / name) if number in chosen else str((folder / name).stat().st_size)
        listing.update(said.encode() + b"  " + os.fsencode(name) + b"\0")
    return listing.hexdigest()


def _names(folder: Path) -> list[str]:
    """Return the paths of all files of a folder, in the order of their bytes."""
    found: list[str] = []
    for root, folders, files in os.walk(folder, onerror=_raise):
        here = Path(root)
        # What is behind one is not walked through: it may lead around in a circle.
        if links := [each for each in folders if (here / each).is_symlink()]:
            raise Refused(f"{here / links[0]} is a link to a folder")
        found += [str((here / each).relative_to(folder)) for each in files]
    return sorted(found, key=os.fsencode)


def _raise(error: OSError) -> None:
    raise error


def _whole(path: Path) -> str:
    hashed = hashlib.sha256()
    with _opened(path) as fd:
        while data := os.read(fd, _READ_BYTES):
            hashed.update(data)
    return hashed.hexdigest()


def _sample(path: Path) -> str:
    """Return the digest of a file's size and of blocks that are spread evenly over it."""
    with _opened(path) as fd:
        size = os.fstat(fd).st_size
        hashed = hashlib.sha256(f"{size}\0".encode())
        for number in _spread(max(1, -(-size // _BLOCK_BYTES)), _BLOCKS):
            hashed.update(os.pread(fd, _BLOCK_BYTES, number * _BLOCK_BYTES))
    return hashed.hexdigest()


def _spread(count: int, most: int) -> Sequence[int]:
    """Return at most ``most`` of the first ``count`` numbers, the first and the last among them."""
    if count <= most:
        return range(count)
    return [each * (count - 1) // (most - 1) for each in range(most)]


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = os.open(path, _FLAGS)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Refused(f"{path} is no regular file")
        yield fd
    finally:
        os.close(fd)
