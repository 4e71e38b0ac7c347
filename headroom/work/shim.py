"""Starts one command, waits for it, and writes down how it ended. Outlives whoever started it.

It is run as a file, by ``python -I -S``, and imports nothing but the standard library: there is one
for each attempt, so it has to be small and quick to start. Its folder is out of the command's reach
where the command has a user of its own, and holds:

- ``task.json``: what to run, as whom, within which limits;
- ``lock``: locked for as long as it lives, so that others can tell, whatever the pid is by now;
- ``started``: made by whichever shim may start the command, before it does so. It cannot be
  made twice, and is never removed, so the command is started at most once;
- ``control``: a FIFO that it takes orders from, a line each: stop, pause, resume, notify, and
  ``until T``: the server was heard, so the command may run until T, by CLOCK_BOOTTIME in s;
- ``shell-ID.json``: a terminal that it was told to open (``shell ID``), on a device that its maker
  holds the other end of, and ``shell-ID.exit``, the exit code of what ran there;
- ``paused``, ``fenced``: there while the command stands still, since it was told to, or since
  nothing was heard of the server for too long;
- ``log`` and ``log.1``: what the command says, the newest, of bounded size, and ``log.start``: the
  inode of one of them, and how much was said before it, bytes. While it is not there, that is 0;
- ``exit.json``: how it ended, on disk before the lock is free.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import socket
import sys
import termios
import time
from pathlib import Path
from typing import Any

if not __package__:  # run as a file, without any path of its own
    sys.path.append(str(Path(__file__).resolve().parents[2]))

from headroom.work import cage
from headroom.work.holding import Holding
from headroom.work.usage import Usage

#: What a pipe holds by default.
_READ_BYTES = 65536
#: As much of what the command says is read before orders and the clock are looked at again.
_MOST_READS = 16
#: What the shim does not hear, and the command does.
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: What could not be started, as shells say it; and what was killed.
_NOT_FOUND = 127
_NOT_RUNNABLE = 126
_KILLED = 128 + signal.SIGKILL
#: How often to try again to write down how it ended, where the disk does not take it, s.
_RETRY_S = 2.0
#: How often to look at CLOCK_BOOTTIME at least, s: what waits does not wait on while the machine is
#: suspended, and would wait for the rest when it wakes up.
_LOOK_S = 1.0
#: How long a process has that was forked to run a program of its own, s; see _is_copy.
_FORKED_S = 0.5
#: How often to measure the command's folder, and how long at a time, s.
_MEASURE_EVERY_S, _MEASURE_S = 5.0, 0.02
#: Its own odds against being killed for want of memory. As an ordinary user it may not choose.
_SPARED = "-900"


def boottime() -> float:
    """Return the time since the machine was started, with that in which it was suspended, s."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Command:
    """The command, its log, and the orders to it."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._grace_s = float(task["grace_s"])
        self._left_s = task["walltime_s"]
        self._log_bytes = int(task["log_bytes"])
        self._until: float | None = task.get("until")
        self._frozen_s = float(task.get("frozen_s", 0.0))
        self._log = _append("log")
        self._written = os.fstat(self._log).st_size
        #: said before what is in ``log``, bytes
        self._before = 0
        self._was_stopped = False
        self._timed_out = False
        self._is_lost = False
        self._is_killed = False
        self._why = ""
        #: why it stands still
        self._held: set[str] = set()
        self._fenced_at = 0.0
        self._kill_at: float | None = None
        self._looked_at = time.monotonic()
        self._usage = Usage(task["disk"]) if task.get("disk") else None
        self._measure_at = 0.0
        user = task.get("user")
        own_uid = user["uid"] if user and user["is_own"] and not user["is_private"] else None
        self._holding = Holding(task["cgroups"], keeper=os.getpid(), uid=own_uid)
        self._task = task
        #: artifacts that it makes, not measured yet
        self._outputs = task.get("outputs") or []
        self._code = 0
        #: copies of processes that wait for a signal, and when each is looked at again
        self._copies: dict[int, float] = {}
        #: terminals, by the pid of what runs there
        self._shells: dict[int, str] = {}
        # Both ends stay open: what measures the artifacts says what it has to say there, too.
        self.output, self._theirs = os.pipe()
        os.set_blocking(self.output, False)
        self.pid, self._group, self._status = _start(task, self._theirs)

    def obey(self, order: str) -> None:
        """Carry out a line of the FIFO."""
        word, _, rest = order.partition(" ")
        if word == "stop":
            self._was_stopped = True
            self._end()
        elif word == "pause" and self._kill_at is None:
            self._hold("paused")
        elif word == "resume":
            self._let_go("paused")
        elif word == "notify":
            self._notify()
        elif word == "until":
            self._confirm(rest)
        elif word == "shell":
            self._open_shell(rest)
        elif word == "hangup":
            self._hang_up(rest)

    def wait_s(self) -> float | None:
        """Return how long nothing is due, s; None: for good."""
        self._count()
        due = [] if self._kill_at is None else [self._kill_at - time.monotonic()]
        if self._left_s is not None and not self._held and self._kill_at is None:
            due.append(self._left_s)
        if self._until is not None:
            due.append(min(_LOOK_S, max(0.0, self._until - boottime())) or _LOOK_S)
        if self._usage is not None:
            due.append(_LOOK_S)
        due += [at - time.monotonic() for at in self._copies.values()]
        return max(0.0, min(due)) if due else None

    def follow(self) -> None:
        """Do all that is due by the clock."""
        self._count()
        self._keep_fence()
        self._measure()
        self._notify_copies()
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._holding.kill()
            self._kill_at = time.monotonic() + 1.0
        elif self._left_s is not None and self._left_s <= 0 and self._kill_at is None:
            self._timed_out = True
            self._end()

    def pump(self) -> None:
        """Move output of the command into the log; not all at once, it may never be silent."""
        for _ in range(_MOST_READS):
            try:
                said = os.read(self.output, _READ_BYTES)
            except BlockingIOError:
                return
            if not said:
                return
            self._keep(said)

    def is_over(self, status: int) -> bool:
        """Take that the command has ended, and end all that is left of it.

        Where it has succeeded and makes artifacts, these are measured first, in its place: as its
        user, in its view, within its limits and its walltime. Then it is over the next time.
        """
        self._holding.kill()
        _reap_all()
        self.pump()
        code = os.waitstatus_to_exitcode(self._status_of(status))
        self._code = code if code >= 0 else 128 - code
        is_to_end = self._kill_at is not None or self._is_killed
        if self._code or is_to_end or not self._outputs:
            return True
        return not self._measure_outputs()

    def _measure_outputs(self) -> bool:
        """Have the artifacts measured; return whether that has begun."""
        task = {**self._task, "measures": self._outputs}
        self._outputs = []
        try:
            if _is_apart(task):
                cage.leave_space()
            self.pid, self._group, self._status = _start(task, self._theirs)
        except OSError as exc:
            self._why = f"its artifacts cannot be measured: {exc}"
            return False
        if self._held:
            self._holding.freeze()
        return True

    def finish(self) -> dict[str, Any]:
        """Return how it ended."""
        code = self._code
        return {
            "exit_code": _KILLED if self._why and code == 0 else code,
            "stopped": self._was_stopped,
            "timed_out": self._timed_out,
            "lost": self._is_lost,
            "why": self._why,
            "ended_at": time.time(),
        }

    def _status_of(self, status: int) -> int:
        """Return the command's own status, which the first process of its space passes on."""
        if self._status < 0:
            return status
        said = _read(self._status)
        os.close(self._status)
        return int(said) if said else int(signal.SIGKILL)

    # --- Terminals --------------------------------------------------------------------------------

    def _open_shell(self, name: str) -> None:
        """Start a command on a terminal, as the command's own: it ends with that."""
        if not name.replace("-", "").isalnum() or self._held or self._kill_at is not None:
            _write_code(name, _NOT_RUNNABLE)
            return
        try:
            request = json.loads(Path(f"shell-{name}.json").read_bytes())
            self._shells[_start_shell(self._task, request, self.pid)] = name
        except (OSError, ValueError, KeyError):
            _write_code(name, _NOT_RUNNABLE)

    def _hang_up(self, name: str) -> None:
        """End what runs on a terminal, with all that is of its process group."""
        for pid in [pid for pid, each in self._shells.items() if each == name]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGHUP)
                os.killpg(pid, signal.SIGKILL)

    def ended(self, pid: int, status: int) -> None:
        """Take note of a child that has ended and is not the command."""
        name = self._shells.pop(pid, None)
        if name is not None:
            code = os.waitstatus_to_exitcode(status)
            _write_code(name, code if code >= 0 else 128 - code)

    # --- The fence --------------------------------------------------------------------------------

    def _confirm(self, until: str) -> None:
        """Extend the time that the command may run to ``until``: the server was heard."""
        with contextlib.suppress(ValueError):
            self._until = max(float(until), self._until or 0.0)
            if boottime() < self._until:
                self._let_go("fenced")

    def _keep_fence(self) -> None:
        """Have the command stand still before the server may have it run elsewhere."""
        if self._until is None or self._is_killed:
            return
        now = boottime()
        if "fenced" not in self._held:
            if now < self._until:
                return
            self._fenced_at = now
            self._hold("fenced")
        if self._kill_at is not None:
            # It was told to end, and may not go on computing to do so.
            self._kill_now()
        elif now >= self._fenced_at + self._frozen_s:
            self._is_lost = True
            self._why = f"the server was not heard, and it stood still for {self._frozen_s:g} s"
            self._kill_now()

    # --- Stopping and going on --------------------------------------------------------------------

    def _hold(self, why: str) -> None:
        if not self._held:
            self._count()
        self._held.add(why)
        _note(why)
        self._holding.freeze()

    def _let_go(self, why: str) -> None:
        self._count()
        self._held.discard(why)
        _remove(why)
        if not self._held:
            self._holding.thaw()

    def _end(self) -> None:
        if "fenced" in self._held:
            # It may run elsewhere by now: not a line more.
            self._kill_now()
        elif self._kill_at is None:
            self._kill_at = time.monotonic() + self._grace_s
            self._signal(signal.SIGTERM)
            # What stands still does not hear of its end.
            self._let_go("paused")

    def _kill_now(self) -> None:
        self._is_killed = True
        self._holding.kill()
        self._kill_at = time.monotonic() + 1.0

    def _notify(self) -> None:
        """Send SIGUSR1 to those that wait for it: it would end the others."""
        for pid in _members(self._group):
            if not _catches(pid, signal.SIGUSR1):
                continue
            if _is_copy(pid):
                self._copies.setdefault(pid, time.monotonic() + _FORKED_S)
            else:
                _kill(pid, signal.SIGUSR1)

    def _notify_copies(self) -> None:
        """Send SIGUSR1 to copies that have stayed what they were, and wait for it still."""
        due = {pid for pid, at in self._copies.items() if at <= time.monotonic()}
        for pid in due:
            del self._copies[pid]
        for pid in due.intersection(_members(self._group)) if due else ():
            if _catches(pid, signal.SIGUSR1):
                _kill(pid, signal.SIGUSR1)

    def _signal(self, number: int) -> None:
        # It may be over, or have become somebody else: then it cannot be told.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._group, number)

    # --- What is counted --------------------------------------------------------------------------

    def _count(self) -> None:
        """Subtract the time since the last look from the time left, unless it stood still."""
        now = time.monotonic()
        if self._left_s is not None and not self._held:
            self._left_s -= now - self._looked_at
        self._looked_at = now

    def _measure(self) -> None:
        """End the command once its folder has grown too large. A look goes on where it was left."""
        now = time.monotonic()
        if self._usage is None or now < self._measure_at or self._why:
            return
        too_much = self._usage.look(_MEASURE_S)
        if self._usage.is_done:
            self._measure_at = now + _MEASURE_EVERY_S
        if too_much:
            self._why = too_much
            self._kill_now()

    def _keep(self, said: bytes) -> None:
        if self._written + len(said) > self._log_bytes // 2:
            os.close(self._log)
            Path("log").replace("log.1")
            self._log = _append("log")
            self._before += self._written
            self._written = 0
            _write_start(self._log, self._before)
        self._written += _write_what_fits(self._log, said)


def main(folder: str) -> int:
    """Start the command of ``folder`` and wait for it, unless that was done before."""
    os.chdir(folder)
    lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_SPARED)
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
    cage.prctl(cage.PR_SET_CHILD_SUBREAPER, 1)
    if not _claim_start(task.get("until")):
        return 0
    _write_exit(_watch(Command(task), control, woken))
    return 0


def sweep(folder: str) -> int:
    """Kill the processes of ``folder`` that run on though its shim is gone."""
    task = json.loads(Path(folder, "task.json").read_bytes())
    user = task.get("user")
    uid = user["uid"] if user and user["is_own"] else None
    Holding(task["cgroups"], keeper=os.getpid(), uid=uid).kill()
    return 0


def probe() -> int:
    """Try whether this machine lets a command have a view of its own. Changes nothing."""
    cage.open_space()
    pid = os.fork()
    if pid == 0:
        try:
            cage.private_view(binds={}, shm_bytes=1 << 20, hidden=(), nothing=os.devnull)
        except OSError as exc:
            sys.stdout.write(f"{exc.strerror} ({exc.filename})")
            sys.stdout.flush()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _watch(command: Command, control: int, woken: int) -> dict[str, Any]:
    poll = select.poll()
    for fd in (control, woken, command.output):
        poll.register(fd, select.POLLIN)
    rest = b""
    while True:
        wait_s = command.wait_s()
        for fd, _ in poll.poll(None if wait_s is None else int(wait_s * 1000) + 1):
            if fd == control:
                *orders, rest = (rest + _read(control)).split(b"\n")
                for order in orders:
                    command.obey(order.decode("ascii", "replace"))
            elif fd == woken:
                _read(woken)
            else:
                command.pump()
        command.follow()
        status = _reap(command)
        if status is not None and command.is_over(status):
            return command.finish()


# --- The start ------------------------------------------------------------------------------------


def _start(task: dict[str, Any], output: int) -> tuple[int, int, int]:
    """Start the command; return whom to wait for, its process group, and where its status comes.

    The last is -1 where it is that of whom to wait for.
    """
    # Now: the command's user, and its view of the machine, may not reach the files of these.
    if task.get("inputs"):
        from headroom.work import inputs  # noqa: F401
    if task.get("measures"):
        from headroom.work import outputs  # noqa: F401
    if _is_apart(task):
        return _start_apart(task, output)
    ours = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become_command(task, output, ours)
    # Both do, as shells have it: whoever comes first, the group is there to be told.
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)
    return pid, pid, -1


def _is_apart(task: dict[str, Any]) -> bool:
    """Say whether the command has a space of pids and a view of the machine of its own."""
    user = task.get("user")
    return bool(user and user["is_private"])


def _start_apart(task: dict[str, Any], output: int) -> tuple[int, int, int]:
    """Start the command in a space of pids of its own, below a first process that is ours.

    With that one the kernel ends all that is in the space: nothing survives a shim that is
    killed, whatever it forked and wherever it hides.
    """
    status, theirs = os.pipe()
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    here.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    cage.open_space()
    pid = os.fork()
    if pid == 0:
        here.close()
        _be_first(task, output, theirs, there)
    os.close(theirs)
    there.close()
    with here:
        here.sendall(b"go")
        return pid, _pid_of_peer(here) or pid, status


def _pid_of_peer(connection: socket.socket) -> int | None:
    """Return who has written to ``connection``, by the pid that it has for us."""
    size = 3 * 4
    said, about, _, _ = connection.recvmsg(16, socket.CMSG_SPACE(size))
    for level, kind, data in about:
        if said and (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            return int.from_bytes(data[:4], sys.byteorder)
    return None


def _be_first(task: dict[str, Any], output: int, status: int, shim: socket.socket) -> None:
    """Start the command and wait for it, as the first process of its space. Returns never."""
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        _close_all_but(output, status, shim.fileno())
        # Should the shim be killed, nothing may go on that nobody sees.
        cage.prctl(cage.PR_SET_PDEATHSIG, signal.SIGKILL)
        if shim.recv(2) != b"go":
            os._exit(_NOT_RUNNABLE)
        cage.private_view(**task["user"]["view"])
        pid = os.fork()
        if pid == 0:
            _become_command(task, output, 1, shim)
        shim.close()
        os.close(output)
        ended, code = 0, 0
        while ended != pid:
            ended, code = os.waitpid(-1, 0)
        os.write(status, str(code).encode())
    except OSError as exc:
        os.write(output, f"headroom: the command cannot be kept apart: {exc}\n".encode())
        os.write(status, str(_NOT_RUNNABLE << 8).encode())
    finally:
        os._exit(0)


def _close_all_but(*kept: int) -> None:
    """Close the file descriptors of the shim: its lock above all."""
    for fd in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if fd > 2 and fd not in kept:
            with contextlib.suppress(OSError):
                os.close(fd)


def _become_command(
    task: dict[str, Any], output: int, parent: int, told: socket.socket | None = None
) -> None:
    """Become the command, in this process. Returns never."""
    try:
        os.setpgid(0, 0)
        _join(task["cgroups"])
        os.dup2(output, 1)
        os.dup2(output, 2)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        for number in (*_ENDING, signal.SIGPIPE, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        if told is not None:
            told.sendall(b"up")
        if task.get("user"):
            cage.become(task["user"])
        else:
            cage.no_new_privileges()
        # After the user has changed, which would take it back.
        cage.prctl(cage.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(_NOT_RUNNABLE)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        os.chdir(task["cwd"])
        if task.get("measures"):
            _measure(task["measures"], task["outputs_file"])
        if task.get("inputs"):
            _verify_inputs(task["inputs"], task["env"])
        _execute(task["command"], task["env"])
    except Exception as exc:
        os.write(2, f"headroom: the command cannot be started: {exc}\n".encode())
    finally:
        os._exit(_NOT_RUNNABLE)


def _verify_inputs(declared: list[dict[str, str]], env: dict[str, str]) -> None:
    """Verify the inputs, as the command's user and in its view. Raises where one is another."""
    from headroom.work import inputs  # few declare any, and it is slow to load

    inputs.check(declared, Path(env[inputs.VARIABLE]), env["PATH"])


def _measure(declared: list[dict[str, Any]], file: str) -> None:
    """Measure artifacts, as the command's user and in its view, and end with 0."""
    from headroom.work import outputs

    outputs.measure(declared, Path(file))
    os._exit(0)


def _start_shell(task: dict[str, Any], request: dict[str, Any], first: int) -> int:
    """Start the command of a terminal beside that of the task; return its pid.

    It has the task's user, limits, environment and folder, and where that has a view of its own,
    the view of ``first``, the process that stands at its beginning.
    """
    user = task.get("user")
    device = os.open(request["device"], os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    ours = os.getpid()
    try:
        if user:
            os.fchown(device, int(user["uid"]), int(user["gid"]))
        # Its PID namespace is that of the command: this process has opened it for all its children.
        pid = os.fork()
        if pid == 0:
            _become_shell(task, request, device, first, ours)
        return pid
    finally:
        os.close(device)


def _become_shell(
    task: dict[str, Any], request: dict[str, Any], device: int, first: int, parent: int
) -> None:
    """Become the command of a terminal, in this process. Returns never."""
    try:
        os.setsid()
        fcntl.ioctl(device, termios.TIOCSCTTY, 0)
        _join(task["cgroups"])
        for fd in (0, 1, 2):
            os.dup2(device, fd)
        for number in (*_ENDING, signal.SIGPIPE, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        user = task.get("user")
        if user and user["is_private"]:
            cage.join_view(first)
        if user:
            cage.become(user)
        else:
            cage.no_new_privileges()
        cage.prctl(cage.PR_SET_PDEATHSIG, signal.SIGKILL)
        if user is None and os.getppid() != parent:
            os._exit(_NOT_RUNNABLE)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        os.chdir(task["cwd"])
        _execute(request["command"], {**task["env"], "TERM": request["term"]})
    except Exception as exc:
        os.write(2, f"headroom: the terminal cannot be opened: {exc}\r\n".encode())
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


def _claim_start(until: float | None) -> bool:
    """Make the mark that lets the command start; return whether it was not there yet.

    A shim that comes up after its time leaves it to one that the server has confirmed.
    """
    if until is not None and boottime() >= until:
        return False
    try:
        mark = os.open("started", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    os.write(mark, f"{time.time():.6f}\n".encode())
    os.fsync(mark)
    os.close(mark)
    _sync_folder()
    return True


# --- Its folder -----------------------------------------------------------------------------------


def _control() -> int:
    """Open the FIFO, also for writing: so that it is never at its end."""
    with contextlib.suppress(FileExistsError):
        os.mkfifo("control", 0o600)
    return os.open("control", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 4096)
    except BlockingIOError:
        return b""


def _reap(command: Command) -> int | None:
    """Return the status of ``command`` once it has ended; reap other children that have."""
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if ended == command.pid:
            return status
        if ended == 0:
            return None
        command.ended(ended, status)


def _reap_all() -> None:
    """Wait for whatever the command has left behind: it is ours since its parents are gone."""
    while True:
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if ended == 0:
            # They were killed; who was born meanwhile was not.
            Holding([], keeper=os.getpid()).kill()
            time.sleep(0.002)


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


def _is_copy(pid: int) -> bool:
    """Say whether a process runs on as the copy of its parent that fork made.

    It has its parent's handlers until it runs a program of its own. A signal that is sent on the
    strength of them may come after that, and end the program. PF_FORKNOEXEC of proc_pid_stat(5).
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return False
    return bool(int(fields[6]) & 0x40)


def _kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _append(name: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        return os.open(name, flags, 0o600)
    except OSError:
        # Somebody who has our user has put something else there.
        _clear(name)
        return os.open(name, flags, 0o600)


def _write_what_fits(fd: int, said: bytes) -> int:
    """Write; bytes that a full disk refuses are lost, and the command goes on."""
    try:
        return os.write(fd, said)
    except OSError:
        return 0


def _write_start(log: int, before: int) -> None:
    """Write down how much was said before what is in ``log``; a full disk keeps the last note."""
    with contextlib.suppress(OSError):
        _clear("log.start.new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open("log.start.new", flags, 0o600), "w") as file:
            file.write(f"{os.fstat(log).st_ino} {before}")
        Path("log.start.new").replace("log.start")


def _note(name: str) -> None:
    with contextlib.suppress(OSError):
        Path(name).touch(0o600)


def _remove(name: str) -> None:
    with contextlib.suppress(OSError):
        Path(name).unlink(missing_ok=True)


def _clear(name: str) -> None:
    """Remove whatever stands at a path, of any kind."""
    path = Path(name)
    if path.is_dir() and not path.is_symlink():
        import shutil  # rarely needed, and slow to load

        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _write_code(name: str, code: int) -> None:
    """Write down how the command of a terminal ended; a full disk leaves that unknown."""
    with contextlib.suppress(OSError):
        _clear(f"shell-{name}.exit.new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(f"shell-{name}.exit.new", flags, 0o600), "w") as file:
            file.write(str(code))
        Path(f"shell-{name}.exit.new").replace(f"shell-{name}.exit")


def _write_exit(ended: dict[str, Any]) -> None:
    """Write down how it ended, however long the disk takes: nobody else knows it."""
    while True:
        try:
            _clear("exit.json.new")
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with os.fdopen(os.open("exit.json.new", flags, 0o600), "w") as file:
                json.dump(ended, file)
                file.flush()
                os.fsync(file.fileno())
            if not Path("exit.json").is_file() or Path("exit.json").is_symlink():
                _clear("exit.json")
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
    if sys.argv[1] == "--probe":
        sys.exit(probe())
    sys.exit(sweep(sys.argv[2]) if sys.argv[1] == "--sweep" else main(sys.argv[1]))
