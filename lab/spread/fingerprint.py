"""What results depend on beside their arguments: the code, its libraries, and how a host computes.

NumPy takes other instructions on other processors, and sums or powers may differ in their last bit.
A twin that goes on from such a bit ends elsewhere. So hosts compute a few values and compare them:
what they agree on is run by either of them, with the same bytes as its result.
"""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = ["Fingerprint", "fingerprint"]

_ROOT = Path(__file__).resolve().parents[2]
_ROOMS = ("physics", "headroom", "fleet", "telemetry", "policies", "admission", "lab")
_KINDS = {".py", ".yaml", ".yml", ".toml", ".json", ".csv", ".gz"}
_LIBRARIES = ("numpy", "scipy", "polars", "msgspec", "cel-expr-python")
#: Beside the code: what calibration reads out of the repository.
_RECORDINGS = _ROOT / "tests" / "data" / "h200"


class Fingerprint(msgspec.Struct, frozen=True):
    """The digests of the code and of some arithmetic, and the versions of libraries."""

    code: str
    arithmetic: str
    versions: tuple[tuple[str, str], ...]

    def sha256(self) -> str:
        """Return the digest of it all."""
        return hashlib.sha256(msgspec.msgpack.encode(self)).hexdigest()


@cache
def fingerprint() -> Fingerprint:
    """Return the fingerprint of this process, as it was when it was first asked for."""
    return Fingerprint(_code(), _arithmetic(), _versions())


def _code() -> str:
    found = hashlib.sha256()
    folders = [_ROOT / room for room in _ROOMS] + [_RECORDINGS]
    for path in sorted(path for folder in folders for path in folder.rglob("*")):
        if path.suffix in _KINDS and "migrations" not in path.parts:
            found.update(path.relative_to(_ROOT).as_posix().encode() + b"\0")
            found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def _versions() -> tuple[tuple[str, str], ...]:
    minor = ".".join(platform.python_version_tuple()[:2])
    return (("python", minor), *((name, _version(name)) for name in _LIBRARIES))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def _arithmetic() -> str:
    """Return a digest of values whose last bits depend on the processor's instructions."""
    found = hashlib.sha256()
    whole = np.linspace(0.01, 30.0, 4099)
    for values in (whole, whole.astype(np.float32)):
        table: NDArray[Any] = values[:4096].reshape(64, 64)
        drawn = np.random.default_rng(1).standard_normal(len(values))
        for result in (
            np.exp(-values),
            np.log(values),
            np.sin(values),
            np.cos(values),
            np.tanh(values),
            np.power(values, 2.7),
            np.sqrt(values),
            np.cumsum(values),
            table @ table,
            values.sum(),
            values.std(),
            drawn,
        ):
            found.update(np.asarray(result).tobytes())
    return found.hexdigest()
