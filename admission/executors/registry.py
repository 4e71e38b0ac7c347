"""The executors that there are, by name."""

from __future__ import annotations

from admission.executors.node_queue import NodeQueue
from admission.executors.protocol import Executor

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
    try:
        return _EXECUTORS[name]
    except KeyError:
        known = ", ".join(_EXECUTORS)
        raise UnknownExecutor(f"there is no executor {name!r}; there are {known}") from None


def all_executors() -> dict[str, Executor]:
    """Return all executors by their names."""
    return dict(_EXECUTORS)
