"""Starts one command, waits for it, and writes down how it ended. Outlives whoever started it.

It is run as a file, by ``python -I -S``, and imports nothing but the standard library: there is one
for each attempt, so it has to be small and quick to start. Its folder holds, beside ``task.json``:

- ``lock``: locked for as long as it lives, so that others can tell, whatever the pid is by now;
- ``started``: made by whichever shepherd may start the command, before it does so. It cannot be
  made twice, and is never removed, so the command is started at most once;
- ``control``: a FIFO that it takes orders from, a line each: stop, pause, resume, notify;
- ``paused``: there while the command is paused;
- ``log`` and ``log.1``: what the command says, the newest, of bounded size;
- ``exit.json``: how it ended, on disk before the lock is free.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

#: Of prctl(2).
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_READ_BYTES = 65536
#: What the shepherd does not hear, and the command does.
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: What could not be started, as shells say it.
_NOT_FOUND = 127
_NOT_RUNNABLE = 126
#: How often to try again to write down how it ended, where the disk does not take it, s.
_RETRY_S = 2.0


class Command:
    """The command, its log, and what it was told."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._grace_s = float(task["grace_s"])
        self._left_s = task["walltime_s"]
        self._log_bytes = int(task["log_bytes"])
        self._log = _append("log")
        self._written = os.fstat(self._log).st_size
        self._was_stopped = False
        self._timed_out = False
        self._is_paused = False
        self._kill_at: float | None = None
        self._looked_at = time.monotonic()
        self.output, theirs = os.pipe()
        os.set_blocking(self.output, False)
        self.pid = _fork(task, theirs)
        os.close(theirs)

    def obey(self, order: str) -> None:
        """Do what a line of the FIFO says."""
        if order == "stop":
            self._was_stopped = True
            self._end()
        elif order == "pause" and self._kill_at is None:
            _note("paused")
            self._is_paused = True
            self._signal(signal.SIGSTOP)
        elif order == "resume":
            self._resume()
        elif order == "notify":
            self._notify()

    def wait_s(self) -> float | None:
        """Return how long nothing is due, s; None: for good."""
        self._count()
        due = [] if self._kill_at is None else [self._kill_at - time.monotonic()]
        if self._left_s is not None and not self._is_paused and self._kill_at is None:
            due.append(self._left_s)
        return max(0.0, min(due)) if due else None

    def follow(self) -> None:
        """Do what is due by the clock."""
        self._count()
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._signal(signal.SIGKILL)
            self._kill_at = time.monotonic() + 1.0
        elif self._left_s is not None and self._left_s <= 0 and self._kill_at is None:
            self._timed_out = True
            self._end()

    def pump(self) -> None:
        """Move what the command has said into the log."""
        while True:
            try:
                said = os.read(self.output, _READ_BYTES)
            except BlockingIOError:
                return
            if not said:
                return
            self._keep(said)

    def finish(self, status: int) -> dict[str, Any]:
        """Leave nothing of it running, and return how it ended."""
        self._signal(signal.SIGKILL)
        _kill_children()
        self.pump()
        code = os.waitstatus_to_exitcode(status)
        return {
            "exit_code": code if code >= 0 else 128 - code,
            "stopped": self._was_stopped,
            "timed_out": self._timed_out,
            "ended_at": time.time(),
        }

    def _count(self) -> None:
        """Take the time since the last look off what it may run, unless it was paused."""
        now = time.monotonic()
        if self._left_s is not None and not self._is_paused:
            self._left_s -= now - self._looked_at
        self._looked_at = now

    def _end(self) -> None:
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._grace_s
            self._signal(signal.SIGTERM)
            # What is stopped does not hear of its end.
            self._resume()

    def _resume(self) -> None:
        self._count()
        self._is_paused = False
        _remove("paused")
        self._signal(signal.SIGCONT)

    def _notify(self) -> None:
        """Send SIGUSR1 to those that wait for it: it would end the others."""
        for pid in _members(self.pid):
            if _catches(pid, signal.SIGUSR1):
                _kill(pid, signal.SIGUSR1)

    def _signal(self, number: int) -> None:
        # It may be over, or have become somebody else: then it cannot be told.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _keep(self, said: bytes) -> None:
        if self._written + len(said) > self._log_bytes // 2:
            os.close(self._log)
            Path("log").replace("log.1")
            self._log = _append("log")
            self._written = 0
        self._written += _write_what_fits(self._log, said)


def main(folder: str) -> int:
    """Start the command of ``folder`` and wait for it, unless that was done before."""
    os.chdir(folder)
    lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    task = json.loads(Path("task.json").read_bytes())
    control = _control()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    # Blocked for as long as the command is not itself: a stop that comes early waits for it.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    if not _claim_start():
        return 0
    _write_exit(_watch(Command(task), control, woken))
    return 0


def _watch(command: Command, control: int, woken: int) -> dict[str, Any]:
    poll = select.poll()
    for fd in (control, woken, command.output):
        poll.register(fd, select.POLLIN)
    rest = b""
    while True:
        wait_s = command.wait_s()
        for fd, event in poll.poll(None if wait_s is None else int(wait_s * 1000) + 1):
            if fd == control:
                *orders, rest = (rest + _read(control)).split(b"\n")
                for order in orders:
                    command.obey(order.decode("ascii", "replace"))
            elif fd == woken:
                _read(woken)
            else:
                command.pump()
                if event & select.POLLHUP:
                    poll.unregister(fd)
        command.follow()
        status = _reap(command.pid)
        if status is not None:
            return command.finish(status)


def _fork(task: dict[str, Any], output: int) -> int:
    ours = os.getpid()
    pid = os.fork()
    if pid:
        # Both do, as shells have it: whoever comes first, the group is there to be told.
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        return pid
    try:
        os.setpgid(0, 0)
        # Should the shepherd be killed, nothing may go on that nobody sees.
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != ours:
            os._exit(_NOT_RUNNABLE)
        _join(task["cgroups"])
        os.dup2(output, 1)
        os.dup2(output, 2)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        for number in (*_ENDING, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        os.chdir(task["cwd"])
        _execute(task["command"], task["env"])
    finally:
        os._exit(_NOT_RUNNABLE)


def _execute(command: list[str], env: dict[str, str]) -> None:
    """Become the command; return never."""
    code = _NOT_RUNNABLE
    try:
        if not command:
            raise FileNotFoundError(errno.ENOENT, "the phase names no command")
        os.execvpe(command[0], command, env)  # noqa: S606 - to run commands is what it is for
    except OSError as exc:
        code = _NOT_FOUND if exc.errno == errno.ENOENT else _NOT_RUNNABLE
        os.write(2, f"headroom: {command[:1]}: {exc.strerror}\n".encode())
    except Exception as exc:
        os.write(2, f"headroom: {command[:1]}: {exc}\n".encode())
    os._exit(code)


def _join(cgroups: list[str]) -> None:
    """Have the limits hold for all that the command starts. They are a help, not a condition."""
    for path in cgroups:
        try:
            Path(path, "cgroup.procs").write_text("0")
        except OSError as exc:
            os.write(2, f"headroom: no limits of {path}: {exc.strerror}\n".encode())


def _claim_start() -> bool:
    """Make the mark that lets the command start; return whether it was not there yet."""
    try:
        mark = os.open("started", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    os.write(mark, f"{time.time():.6f}\n".encode())
    os.fsync(mark)
    os.close(mark)
    _sync_folder()
    return True


def _control() -> int:
    """Open the FIFO, also for writing: so that it is never at its end."""
    with contextlib.suppress(FileExistsError):
        os.mkfifo("control", 0o600)
    return os.open("control", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 4096)
    except BlockingIOError:
        return b""


def _reap(pid: int) -> int | None:
    """Return the status of ``pid`` once it has ended; reap what else has."""
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if ended == pid:
            return status
        if ended == 0:
            return None


def _kill_children() -> None:
    """Kill whatever the command has left behind: it is ours since its parents are gone."""
    ours = os.getpid()
    while True:
        for pid in _children(ours):
            _kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children(pid: int) -> list[int]:
    try:
        return [int(w) for w in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _members(group: int) -> list[int]:
    """Return the processes of a process group."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with contextlib.suppress(OSError):
                if os.getpgid(int(process.name)) == group:
                    found.append(int(process.name))
    return found


def _catches(pid: int, number: int) -> bool:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return False
    masks = [int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:")]
    return any(mask >> (number - 1) & 1 for mask in masks)


def _kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _append(name: str) -> int:
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _write_what_fits(fd: int, said: bytes) -> int:
    """Write; what a full disk does not take is lost, and the command goes on."""
    try:
        return os.write(fd, said)
    except OSError:
        return 0


def _note(name: str) -> None:
    with contextlib.suppress(OSError):
        Path(name).touch(0o600)


def _remove(name: str) -> None:
    Path(name).unlink(missing_ok=True)


def _write_exit(ended: dict[str, Any]) -> None:
    """Write down how it ended, however long the disk takes: nobody else knows it."""
    while True:
        try:
            with Path("exit.json.new").open("w") as file:
                json.dump(ended, file)
                file.flush()
                os.fsync(file.fileno())
            Path("exit.json.new").replace("exit.json")
            _sync_folder()
            return
        except OSError:
            time.sleep(_RETRY_S)


def _sync_folder() -> None:
    fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
