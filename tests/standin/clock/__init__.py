"""A clock on the wall that tests set while real processes run; clock.c says how.

libfaketime of Debian 12 would do, but makes the absolute sleeps of Python fail (EINVAL).
"""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

from tests.standin.nvml import compiler

__all__ = ["StandInClock"]

_SOURCE = Path(__file__).with_name("clock.c")
_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
#: The layout of ``struct setting`` in clock.c.
_SETTING = struct.Struct("@qqd")
_NS = 1_000_000_000


@cache
def _build() -> Path:
    key = hashlib.sha256(_SOURCE.read_bytes() + " ".join(_FLAGS).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"headroom-clock-{os.getuid()}-{key}"
    library = folder / "clock.so"
    if not library.exists():
        folder.mkdir(mode=0o755, exist_ok=True)
        made = folder / f"clock.so.{os.getpid()}"
        subprocess.run([compiler(), *_FLAGS, "-o", made, _SOURCE, "-ldl"], check=True)
        made.rename(library)
    return library


class StandInClock:
    """The clock of the processes that are started with ``environment``."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self.set()

    @property
    def environment(self) -> dict[str, str]:
        """What a process has to be given so that this is its clock."""
        return {"LD_PRELOAD": str(_build()), "CLOCK_STANDIN_FILE": str(self._file)}

    def set(self, step_s: float = 0.0, drift: float = 0.0) -> None:
        """Have the clock be ``step_s`` off from now on, and go wrong by ``drift`` s each second."""
        made = _SETTING.pack(int(step_s * _NS), time.time_ns(), drift)
        if not self._file.exists():
            self._file.write_bytes(made)
            self._file.chmod(0o644)
        # Into the very file: processes have it in their memory.
        with self._file.open("r+b") as file:
            file.write(made)
