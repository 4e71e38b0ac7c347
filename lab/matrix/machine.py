"""The faults that this machine allows on a command. Nothing is assumed: each way is tried."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from lab.matrix.faults.acts import device_of
from lab.matrix.faults.gpu import GpuError, Gpus
from lab.matrix.leases import Journal
from lab.matrix.scenario import FaultKind
from lab.matrix.surroundings import RoomError, Surroundings

__all__ = ["Machine"]

#: How long the leases of a trial last: it takes a moment, and its own end undoes them before.
_TRY_S = 60.0


class Machine:
    """Reasons why something cannot be done here; "" where it can. Each is found when asked for."""

    def __init__(self, journal: Journal, folder: Path) -> None:
        """``folder`` is where runs keep their files."""
        self._journal = journal
        self._folder = folder

    @cached_property
    def why_no_room(self) -> str:
        """Why the command's processes cannot be given a network of their own."""
        return self._tried(_run_nothing, has_room=True)

    @cached_property
    def why_no_group(self) -> str:
        """Why CPU time cannot be limited by a control group."""
        return self._tried(lambda around: around.why_no_group, has_room=False)

    @cached_property
    def why_no_disk(self) -> str:
        """Why the disk under the runs cannot be slowed down."""
        if device_of(self._folder) is None:
            return f"{self._folder} is on no disk that a control group can slow down"
        return self._tried(_disk_of, has_room=False)

    @cached_property
    def why_no_power(self) -> str:
        """Why the power of GPUs cannot be limited."""
        return _why_no_gpus(FaultKind.POWER_LIMIT)

    @cached_property
    def why_no_clocks(self) -> str:
        """Why the clocks of GPUs cannot be limited."""
        return _why_no_gpus(FaultKind.CLOCK_LIMIT)

    def _tried(self, way: Callable[[Surroundings], str], *, has_room: bool) -> str:
        with tempfile.TemporaryDirectory(prefix="headroom-matrix-") as folder:
            around = Surroundings(
                Path(folder),
                self._journal,
                mark=f"{self._journal.name}-try-{secrets.token_hex(2)}",
                has_room=has_room,
                lasts_s=_TRY_S,
            )
            try:
                return way(around)
            except RoomError as error:
                return f"no network for the command alone: {error}"
            finally:
                around.close()


def _run_nothing(around: Surroundings) -> str:
    started = around.start(("true",))
    started.process.wait()
    started.close()
    return ""


def _disk_of(around: Surroundings) -> str:
    if around.group is None:
        return around.why_no_group
    return "" if around.group.disk else "this user may not slow the disk down by a control group"


def _why_no_gpus(kind: FaultKind) -> str:
    try:
        gpus = Gpus()
    except GpuError as error:
        return str(error)
    try:
        return "" if gpus.of_kind(kind) else "this machine has no GPU"
    except GpuError as error:
        return str(error)
    finally:
        gpus.close()
