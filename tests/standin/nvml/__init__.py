"""Build the stand-in NVML library and write its control file. See README.md beside this file."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from functools import cache
from pathlib import Path

__all__ = ["NoCompilerError", "StandIn", "build", "compiler", "load"]

_SOURCE = Path(__file__).with_name("nvml.c")
_NAME = "libnvidia-ml.so.1"
_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
          "-fvisibility=hidden", f"-Wl,-soname,{_NAME}")  # fmt: skip
#: The layout of ``struct gpu_state`` in nvml.c, and how far into the file the first one is.
_GPU_STATE = struct.Struct("@IIIxxxxddd")
_FIRST_GPU = 8


class NoCompilerError(RuntimeError):
    """There is no C compiler: install your system's gcc (Debian: apt-get install gcc libc6-dev)."""

    def __init__(self) -> None:
        super().__init__(self.__doc__)


@cache
def build() -> Path:
    """Compile the library, once for each state of its source, and return its folder."""
    source = _SOURCE.read_bytes()
    key = hashlib.sha256(source + " ".join(_FLAGS).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"headroom-standin-{os.getuid()}-{key}"
    if not (folder / _NAME).exists():
        folder.mkdir(mode=0o755, exist_ok=True)
        # Two test runs may build at once: whole files only.
        made = folder / f"{_NAME}.{os.getpid()}"
        subprocess.run([compiler(), *_FLAGS, "-o", made, _SOURCE, "-lpthread"], check=True)
        made.rename(folder / _NAME)
    return folder


def compiler() -> str:
    """Return the C compiler of this machine. Raises :class:`NoCompilerError`."""
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and (found := shutil.which(name)):
            return found
    raise NoCompilerError


@cache
def load() -> None:
    """Let ``pynvml`` in this very process find the stand-in.

    A library that is loaded already is found by its soname, before any search path.
    """
    ctypes.CDLL(str(build() / _NAME))


class StandIn:
    """A machine whose GPUs are a control file in ``folder``. Each change takes effect at once."""

    def __init__(self, folder: Path, *, gpus: int = 1) -> None:
        self.control = folder / "nvml.ini"
        self.log = folder / "nvml.log"
        self._driver: dict[str, object] = {"gpus": gpus}
        self._gpus: dict[int | None, dict[str, object]] = {}
        self._xids: list[tuple[int, int]] = []
        self._write()

    @property
    def environment(self) -> dict[str, str]:
        """What a process has to be given so that this is its machine."""
        return {"LD_LIBRARY_PATH": str(build()), "NVML_STANDIN_CONTROL": str(self.control)}

    def driver(self, **keys: object) -> None:
        """Set keys of the driver."""
        self._driver |= keys
        self._write()

    def reload_driver(self) -> None:
        """Let every process lose its hold of the driver, and every limit its effect."""
        generation = self._driver.get("generation", 1)
        assert isinstance(generation, int)
        self.driver(generation=generation + 1)

    def gpu(self, index: int | None = None, **keys: object) -> None:
        """Set keys of one GPU, or of all. None: NVML says that it is not supported."""
        self._gpus.setdefault(index, {}).update(keys)
        self._write()

    def xid(self, gpu: int, code: int) -> None:
        """Raise an Xid event."""
        self._xids.append((gpu, code))
        self._write()

    def record_calls(self) -> None:
        """Have all calls from now on written down for :meth:`calls`."""
        self.log.unlink(missing_ok=True)
        self.driver(log=self.log)

    def calls(self, name: str) -> list[str]:
        """Return what was written down of calls ``name``: the GPU, and what was set."""
        if not self.log.exists():
            return []
        lines = (line.partition(" ") for line in self.log.read_text().splitlines())
        return [rest for first, _, rest in lines if first == name]

    def limit_w(self, gpu: int = 0) -> float | None:
        """Return the power limit that somebody set, W; None where none was set."""
        limit_mw: int = self._state(gpu)[0]
        return limit_mw / 1e3 if limit_mw else None

    def locked_mhz(self, gpu: int = 0) -> tuple[int, int] | None:
        """Return the range that clocks are locked to, or None."""
        least, most = self._state(gpu)[1:3]
        return (least, most) if most else None

    def _state(self, gpu: int) -> tuple[int, int, int, float, float, float]:
        path = self.control.with_name(self.control.name + ".state")
        offset = _FIRST_GPU + gpu * _GPU_STATE.size
        data = path.read_bytes() if path.exists() else b""
        # Nobody has loaded the library yet, or is just about to: nothing was set.
        data = data or bytes(offset + _GPU_STATE.size)
        found: tuple[int, int, int, float, float, float] = _GPU_STATE.unpack_from(data, offset)
        return found

    def _write(self) -> None:
        sections = [("driver", self._driver)]
        ordered = sorted(self._gpus.items(), key=lambda item: -1 if item[0] is None else item[0])
        sections += [("gpu" if index is None else f"gpu {index}", keys) for index, keys in ordered]
        xids = {str(i): f"{gpu} {code}" for i, (gpu, code) in enumerate(self._xids, 1)}
        sections.append(("xids", dict(xids)))
        lines = []
        for title, keys in sections:
            lines.append(f"[{title}]")
            lines += [f"{key} = {'-' if value is None else value}" for key, value in keys.items()]
        # By rename: a reader sees the old file or the new one, and never half of either.
        made = self.control.with_suffix(".new")
        made.write_text("\n".join(lines) + "\n")
        made.rename(self.control)
