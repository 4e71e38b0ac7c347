"""Ranks of one machine that start again in place when one of them dies.

They are forks of a process that has imported PyTorch already, so that a start costs a fork, a
rendezvous and what the loop itself loads: docs/how-to/connect-pytorch.md.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import FrameType

from headroom.work import cage

__all__ = ["LEFT", "run"]

logger = logging.getLogger(__name__)

#: How ranks end that were told to leave, and have saved: see ``session.Leave``.
LEFT = 128 + signal.SIGTERM
_PASSED_ON = (signal.SIGTERM, signal.SIGINT)
_FAILED = 1
_HERE = "127.0.0.1"


def run(main: Callable[[], object], ranks: int, *, max_restarts: int = 3) -> int:
    """Call ``main`` in ``ranks`` processes; where one fails, end all, and start all again.

    They find in their environment what ``torchrun`` would put there. Nothing is started again after
    SIGTERM or SIGINT, which are passed on, when ranks end with :data:`LEFT`, or more often than
    ``max_restarts``. Returns 0 or the exit status of the first that failed, as shells have it. For
    the main thread of a process without others.
    """
    asked: list[int] = []
    life: _Life | None = None

    def pass_on(number: int, _frame: FrameType | None) -> None:
        asked.append(number)
        if life is not None:
            life.tell(number)

    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    try:
        for restart in range(max_restarts + 1):
            # Whoever is to be told while it is forked, or was before, is told afterwards.
            signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
            try:
                life = _Life(main, ranks, restart, max_restarts)
                for number in asked:
                    life.tell(number)
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
            try:
                code = life.wait()
            finally:
                life.end()
            if code in (0, LEFT) or asked:
                break
            is_last = restart == max_restarts
            logger.warning(
                "a rank has failed: %s",
                "for good" if is_last else "all start again",
                extra={"rank": life.failed, "exit_code": code, "restarts": restart},
            )
        return code
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Life:
    """All ranks from one start to their end, and the store at which they meet."""

    def __init__(
        self, main: Callable[[], object], world: int, restart: int, max_restarts: int
    ) -> None:
        #: the rank that failed first; None: none, or it was the store
        self.failed: int | None = None
        #: ranks by pid; -1 is the store
        self._ranks: dict[int, int] = {}
        told, theirs = os.pipe()
        self._fork(-1, partial(_keep_store, theirs))
        os.close(theirs)
        with os.fdopen(told) as answer:
            port = answer.read()
        for rank in range(world):
            found = _environment(rank, world, port, restart, max_restarts)
            self._fork(rank, partial(_be_rank, main, found))

    def _fork(self, rank: int, main: Callable[[], int]) -> None:
        ours = os.getpid()
        # What is buffered would be written by each of them.
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            _become(main, ours)
        # Both do: whoever comes first, the group is there to be told.
        with suppress(OSError):
            os.setpgid(pid, pid)
        self._ranks[pid] = rank

    def tell(self, number: int) -> None:
        """Pass a signal on to all ranks."""
        for pid, rank in self._ranks.items():
            if rank >= 0:
                os.kill(pid, number)

    def wait(self) -> int:
        """Wait until all ranks have ended well, or one has not; return 0 or its exit status."""
        result = 0
        while any(rank >= 0 for rank in self._ranks.values()):
            rank, code = self._next()
            if rank < 0 or code not in (0, LEFT):
                self.failed = rank if rank >= 0 else None
                return code or _FAILED
            result = result or code
        return result

    def _next(self) -> tuple[int, int]:
        """Wait for the next to end, and end what it has left behind; return who, and how."""
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        assert found is not None  # noqa: S101 - for the type checker: WNOHANG is not given
        # As long as it is not reaped, its group is nobody else's.
        with suppress(ProcessLookupError):
            os.killpg(found.si_pid, signal.SIGKILL)
        # Before it is reaped: nobody is told something who has its number next.
        rank = self._ranks.pop(found.si_pid, -1)
        _, status = os.waitpid(found.si_pid, 0)
        code = os.waitstatus_to_exitcode(status)
        return rank, code if code >= 0 else 128 - code

    def end(self) -> None:
        """End all that still runs, at once: what they know is in the loop's checkpoints."""
        for pid in self._ranks:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        while self._ranks:
            self._next()


def _environment(
    rank: int, world: int, port: str, restart: int, max_restarts: int
) -> Mapping[str, str]:
    """Return what ``torchrun`` tells a rank of one machine, whose store is the launcher's."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": _HERE,
        "MASTER_PORT": port,
        "TORCHELASTIC_RUN_ID": "headroom",
        "TORCHELASTIC_RESTART_COUNT": str(restart),
        "TORCHELASTIC_MAX_RESTARTS": str(max_restarts),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


# --- In a process of its own ----------------------------------------------------------------------


def _become(main: Callable[[], int], parent: int) -> None:
    """Be a process of the launcher's, which ends with it. Returns never."""
    code = _FAILED
    try:
        os.setpgid(0, 0)
        cage.prctl(cage.PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in _PASSED_ON:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
        if os.getppid() == parent:
            code = main()
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        # Not by the interpreter's end, which threads of process groups sometimes abort.
        os._exit(code)


def _be_rank(main: Callable[[], object], environment: Mapping[str, str]) -> int:
    """Be a rank, and return its exit status."""
    os.environ.update(environment)
    # Others reseed themselves after a fork; all ranks would draw the same.
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    try:
        main()
    except SystemExit as exc:
        if exc.code is None or isinstance(exc.code, int):
            return int(exc.code or 0)
        print(exc.code, file=sys.stderr)  # noqa: T201 - as the interpreter does
        return _FAILED
    return 0


def _keep_store(told: int) -> int:
    """Keep the store at which ranks meet, at a port that nobody else has. Returns never."""
    from torch.distributed import TCPStore

    store = TCPStore(_HERE, 0, is_master=True, wait_for_workers=False)
    os.write(told, str(store.port).encode())
    os.close(told)
    while True:
        signal.pause()
