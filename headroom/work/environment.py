"""The environment that a job finds."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

from headroom.training.reports import SOCKET
from headroom.work.contract import Slice, Task
from headroom.work.folder import SHIPPING, Folder
from headroom.work.inputs import VARIABLE
from headroom.work.slices import Slices, devices_of
from headroom.work.users import JobUser

__all__ = ["environment_of", "port_of"]

#: What a job gets of the agent's own environment. The agent's token is not for jobs.
_INHERITED = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_FIRST_PORT, _PORTS = 20_000, 10_000


def environment_of(
    attempt: str,
    task: Task,
    folder: Folder,
    own: Mapping[str, str],
    user: JobUser | None = None,
    slices: Slices = dict,
) -> dict[str, str]:
    """Return a task's environment: the agent's (``own``), then ``task.env``, then ours, which win.

    ``user`` is as whom it runs, where that is not the agent's own; ``slices`` tells those of this
    machine. Raises :class:`SliceError` where one that it was given is not there.
    """
    inherited = {name: own[name] for name in _INHERITED if name in own}
    if user is not None:
        inherited |= {
            "HOME": user.home or str(folder.work),
            "USER": user.name,
            # Who has no account is not found otherwise.
            "LOGNAME": user.name,
            "TMPDIR": str(folder.temporary),
        }
    gpus = ",".join(str(gpu) for gpu in sorted(task.gpus))
    return {
        "PATH": _DEFAULT_PATH,
        **inherited,
        **task.env,
        "HEADROOM_JOB": task.job,
        "HEADROOM_PHASE": task.phase,
        "HEADROOM_ATTEMPT": str(task.number),
        "HEADROOM_ATTEMPT_KEY": attempt,
        "HEADROOM_NODES": ",".join(task.nodes),
        "HEADROOM_RANK": str(task.rank),
        "HEADROOM_GPUS": gpus,
        "HEADROOM_DIRECTIVES": str(folder.directives),
        "HEADROOM_STATUS": str(folder.status),
        SHIPPING: str(folder.shipping),
        SOCKET: str(folder.reports),
        "MASTER_ADDR": task.nodes[0],
        "MASTER_PORT": str(port_of(attempt)),
        # The order in which the inventory counts them.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": devices_of(task, slices),
        **({"HEADROOM_SLICES": _told(task.slices)} if task.slices else {}),
        **({"HEADROOM_CORES": ",".join(map(str, sorted(task.cores)))} if task.cores else {}),
        **({VARIABLE: str(folder.inputs)} if task.inputs else {}),
        **({} if task.power_cap_w is None else {"HEADROOM_POWER_CAP_W": f"{task.power_cap_w:g}"}),
    }


def _told(slices: Sequence[Slice]) -> str:
    """Return slices as "GPU:PROFILE", with commas between."""
    return ",".join(f"{each.gpu}:{each.profile}" for each in slices)


def port_of(attempt: str) -> int:
    """Return a port for the gang to meet at: the same on all of its nodes."""
    return _FIRST_PORT + zlib.crc32(attempt.encode()) % _PORTS
