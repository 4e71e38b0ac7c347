"""Password hashing that takes nothing from requests: on one thread, after all else."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from django.contrib.auth.hashers import PBKDF2PasswordHasher

__all__ = ["PatientPBKDF2PasswordHasher"]

#: How much less of a core the thread gets than others that want it.
_NICENESS = 10


class PatientPBKDF2PasswordHasher(PBKDF2PasswordHasher):
    """Django's own hash, on a thread of a low priority that this process has once.

    A hash takes a core for a third of a second, on purpose. Sixteen at once took both cores of a
    small machine for some seconds, and requests waited. The lock of the interpreter is not held
    meanwhile, so a low priority keeps nobody waiting who needs it.
    """

    def encode(self, password: str, salt: str, iterations: int | None = None) -> str:
        """Return the hash, computed in turn."""
        turn = _thread(os.getpid()).submit(super().encode, password, salt, iterations)
        return turn.result()


@cache
def _thread(_pid: int) -> ThreadPoolExecutor:
    """Return the hashing thread of this process: a forked child has none of its parent's."""
    return ThreadPoolExecutor(1, thread_name_prefix="passwords", initializer=_step_back)


def _step_back() -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
