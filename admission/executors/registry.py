"""The executors that there are, by name."""

from __future__ import annotations

from admission.executors.node_queue import NodeQueue
from admission.executors.protocol import Executor
from admission.executors.schedulers import registered
from admission.executors.schedulers.queue import SchedulerQueue

__all__ = ["LOCAL", "TWIN", "UnknownExecutor", "all_executors", "executor_of"]

#: Machines with an agent that may run jobs.
LOCAL = "local"
#: The simulated machines of the twin.
TWIN = "twin"

_EXECUTORS: dict[str, Executor] = {name: NodeQueue(name) for name in (LOCAL, TWIN)}


class UnknownExecutor(Exception):
    """An attempt names an executor that this server does not have."""


def executor_of(name: str) -> Executor:
    """Return the executor called ``name``. Raises :class:`UnknownExecutor`."""
    if name in _EXECUTORS:
        return _EXECUTORS[name]
    # One that this process does not know may have been heard for the first time a moment ago.
    if name in registered.names() or name in registered.names(fresh=True):
        return SchedulerQueue(name)
    known = ", ".join(all_executors())
    raise UnknownExecutor(f"there is no executor {name!r}; there are {known}")


def all_executors() -> dict[str, Executor]:
    """Return all executors by their names: those of ours, and each scheduler's."""
    return {**_EXECUTORS, **{name: SchedulerQueue(name) for name in sorted(registered.names())}}
