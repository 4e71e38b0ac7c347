"""Keep services running, end those that hang, show their output, and stop them in order.

One loop in one thread: the kernel ties children to the thread that started them. Each service
is a process group of its own, so Ctrl-C reaches only us, and what a service leaves behind when
it dies can be found.
"""

from __future__ import annotations

import io
import json
import logging
import math
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO, TextIO, cast

from config import vitals
from config.backoff import Backoff
from config.clock import Moment
from config.embedded.spawn import spawn
from config.embedded.state import write_private
from headroom import heartbeat

__all__ = ["Output", "Service", "Supervisor"]

_TICK_S = 0.1
_READ_BYTES = 64 * 1024
_LOG_BYTES = 5_000_000
_COLORS = (36, 32, 35, 34, 33, 96, 92, 95)
#: How often to look for processes that hang, and to say that we are there, s.
_LOOK_EVERY_S = 1.0
_REPORT_EVERY_S = 5.0
#: A service that beats is to begin to within this time, s.
_FIRST_BEAT_S = 90.0
#: From the request to say where it hangs to its end by force, s.
_LAST_WORDS_S = 1.0
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Service:
    """A command to keep running."""

    name: str
    argv: tuple[str, ...]
    stop_rank: int = 0
    """Services stop rank by rank, lowest first."""
    needs_ready: bool = False
    """Start only once `Supervisor.is_ready` says so."""
    niceness: int = 0
    """From 0 to 19: others' work goes before that of a service with more."""
    silent_s: float = 0.0
    """A process of it that beat and shows no sign of life for so long hangs. 0: none beats."""

    @property
    def command(self) -> tuple[str, ...]:
        """The command line, at its priority."""
        return ("nice", "-n", str(self.niceness), *self.argv) if self.niceness else self.argv


class Output:
    """Shows lines on the terminal under their service's name, and keeps them in bounded files."""

    def __init__(
        self, logs_dir: Path, terminal: TextIO | None = None, *, color: bool | None = None
    ) -> None:
        self._logs_dir = logs_dir
        terminal = terminal or sys.stdout
        if isinstance(terminal, io.TextIOWrapper):
            terminal.reconfigure(errors="replace")
        if color is None:
            color = terminal.isatty() and "NO_COLOR" not in os.environ
        self._terminal: TextIO | None = terminal
        self._color = color
        self._files: dict[str, RotatingFileHandler] = {}

    def line(self, name: str, text: str) -> None:
        """Show one line of service `name` and append it to its file."""
        self._file(name).emit(logging.LogRecord(name, logging.INFO, "", 0, text, None, None))
        label = f"{time.strftime('%H:%M:%S')} {name:<8}|"
        if self._color:
            label = f"\x1b[{self._color_of(name)}m{label}\x1b[0m"
        self.show(f"{label} {text}\n")

    def show(self, text: str) -> None:
        """Write `text` to the terminal only. A terminal that went away is no reason to stop."""
        if self._terminal is None:
            return
        try:
            self._terminal.write(text)
            self._terminal.flush()
        except (OSError, ValueError):
            self._terminal = None

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()

    def _file(self, name: str) -> RotatingFileHandler:
        if name not in self._files:
            path = self._logs_dir / f"{name}.log"
            self._files[name] = RotatingFileHandler(
                path, maxBytes=_LOG_BYTES, backupCount=1, encoding="utf-8", errors="replace"
            )
        return self._files[name]

    def _color_of(self, name: str) -> int:
        return _COLORS[list(self._files).index(name) % len(_COLORS)]


class _Child:
    """A process of a service, and the pipe of its output."""

    def __init__(self, service: Service, env: Mapping[str, str], cwd: Path, output: Output) -> None:
        self._name = service.name
        self._output = output
        self._unfinished = b""
        self.started_at = time.monotonic()
        self.process = spawn(
            service.command,
            death_signal=signal.SIGTERM,
            env=env,
            cwd=cwd,
            output=subprocess.PIPE,
        )
        self.pipe = cast(IO[bytes], self.process.stdout)
        os.set_blocking(self.pipe.fileno(), False)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def read(self) -> bool:
        """Pass its output on; False when there is no more to come."""
        while True:
            try:
                data = os.read(self.pipe.fileno(), _READ_BYTES)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._pass_on(data)

    def kill(self) -> None:
        """End the process and those that it started, as far as they are there."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        """Pass on the last words of a process that ended."""
        self.read()
        self._say(self._unfinished)
        self.pipe.close()

    def _pass_on(self, data: bytes) -> None:
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        for line in lines:
            self._say(line)
        if len(self._unfinished) > _READ_BYTES:
            self._say(self._unfinished)
            self._unfinished = b""

    def _say(self, line: bytes) -> None:
        if text := line.decode("utf-8", "replace").rstrip("\r"):
            self._output.line(self._name, text)


@dataclass
class _Run:
    """A service, and its process if one runs now."""

    service: Service
    backoff: Backoff
    child: _Child | None = None
    start_at: float = 0.0
    restarts: int = 0
    hung: int = 0
    """How many of its processes hung, all told."""
    hung_at: str = ""
    """When the last one was found; a Moment."""
    last: str = ""
    """Why it, or one of its processes, was ended last."""


@dataclass(frozen=True)
class _Hung:
    """A process that hangs, and the main process of its service."""

    pid: int
    of: int
    why: str
    last_words_s: float = _LAST_WORDS_S
    """How long it has to say where it hangs. One that is stopped can say nothing."""


class _Vigil:
    """Finds processes of services that hang, and ends them."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._beats: vitals.Silence[int] = vitals.Silence()
        self._stops: vitals.Silence[int] = vitals.Silence()
        #: when to end, by force, whom we have asked to say where it hangs
        self._condemned: dict[int, float] = {}

    def look(
        self, ages: Mapping[int, float], allowed: Mapping[int, float], now: float
    ) -> list[_Hung]:
        """Abort processes that newly hang, and return them.

        `ages` and `allowed` are by the main process of a service: since when it runs, and for how
        long its processes may be silent, s.
        """
        found = [
            each
            for each in (*self._silent(ages, allowed, now), *self._stopped(ages, now))
            if each.pid not in self._condemned
        ]
        for each in {hung.pid: hung for hung in found}.values():
            # Python says then what each of its threads was at.
            _send(each.pid, signal.SIGABRT)
            self._condemned[each.pid] = now + each.last_words_s
        self._condemned = {pid: at for pid, at in self._condemned.items() if vitals.is_alive(pid)}
        for pid, at in self._condemned.items():
            if now >= at:
                _send(pid, signal.SIGKILL)
                self._condemned[pid] = math.inf
        return found

    def _silent(
        self, ages: Mapping[int, float], allowed: Mapping[int, float], now: float
    ) -> Iterator[_Hung]:
        if self._folder is None:
            return
        beating = set()
        for pid, silent_s in self._beats.look(vitals.heartbeats(self._folder), now).items():
            of = vitals.group_of(pid)
            if of is None or not allowed.get(of):
                continue
            beating.add(of)
            if silent_s > allowed[of]:
                yield _Hung(pid, of, f"has shown no sign of life for {silent_s:.0f} s")
        for of, age_s in ages.items():
            if allowed[of] and of not in beating and age_s > _FIRST_BEAT_S:
                yield _Hung(of, of, f"has shown no sign of life since its start {age_s:.0f} s ago")

    def _stopped(self, ages: Mapping[int, float], now: float) -> Iterator[_Hung]:
        families = vitals.with_descendants(ages)
        of = {pid: main for main, family in families.items() for pid in family}
        marks = dict.fromkeys(vitals.stopped(of), True)
        for pid, silent_s in self._stops.look(marks, now).items():
            if silent_s > vitals.STOPPED_S:
                yield _Hung(pid, of[pid], f"has been stopped for {silent_s:.0f} s", 0.0)


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


class Supervisor:
    """Runs services until SIGINT, SIGTERM or SIGHUP; a second one hurries.

    `is_ready` releases the services that need it, and `on_ready` is called once then. `watch` is
    called some ten times a second, and at once when a child of ours dies. In the folder
    `heartbeats` services show signs of life; how they are is kept in the file `report`.
    """

    def __init__(
        self,
        services: Sequence[Service],
        output: Output,
        *,
        env: Mapping[str, str],
        cwd: Path,
        is_ready: Callable[[], bool] = lambda: True,
        on_ready: Callable[[], None] = lambda: None,
        watch: Callable[[], None] = lambda: None,
        heartbeats: Path | None = None,
        report: Path | None = None,
        backoff: Callable[[], Backoff] = Backoff,
        grace_s: float = 10.0,
    ) -> None:
        self._runs = [_Run(service, backoff()) for service in services]
        self._output = output
        self._env = dict(env)
        self._cwd = cwd
        self._is_ready = is_ready
        self._on_ready = on_ready
        self._watch = watch
        self._vigil = _Vigil(heartbeats)
        self._report = report
        self._look_at = self._report_at = 0.0
        self._grace_s = grace_s
        self._ready = False
        self._stops = 0
        self._selector = selectors.DefaultSelector()

    def run_once(self, service: Service) -> int | None:
        """Run a command to its end and return its status, negative for a signal.

        None when we were asked to stop meanwhile; the command is stopped then.
        """
        with self._woken_by_signals():
            child = self._start(service)
            while child.alive and not self._stops:
                self._pump(_TICK_S)
            self._stop([child])
        return None if self._stops else child.process.returncode

    def run(self) -> None:
        """Keep the services running until asked to stop, then stop them in order."""
        with self._woken_by_signals():
            try:
                while not self._stops:
                    self._look_for_readiness()
                    self._start_due()
                    self._pump(_TICK_S)
                    self._reap()
                    self._look_for_hung()
                    self._watch()
                    self._keep_report()
            finally:
                self._stop_in_order()

    @contextmanager
    def _woken_by_signals(self) -> Iterator[None]:
        """Count requests to stop; wake the loop for them and for children that die."""
        ours, wakeup = socket.socketpair()
        for end in (ours, wakeup):
            end.setblocking(False)
        handlers = {number: signal.signal(number, self._on_stop) for number in _STOP_SIGNALS}
        handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        previous = signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
        self._selector.register(ours, selectors.EVENT_READ)
        try:
            yield
        finally:
            self._selector.unregister(ours)
            signal.set_wakeup_fd(previous)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            ours.close()
            wakeup.close()

    def _on_stop(self, _number: int, _frame: object) -> None:
        self._stops += 1

    def _look_for_readiness(self) -> None:
        if not self._ready and self._is_ready():
            self._ready = True
            self._on_ready()

    def _start_due(self) -> None:
        now = time.monotonic()
        for run in self._runs:
            allowed = self._ready or not run.service.needs_ready
            if run.child is None and allowed and now >= run.start_at:
                run.child = self._start(run.service)

    def _start(self, service: Service) -> _Child:
        child = _Child(service, self._env, self._cwd, self._output)
        self._selector.register(child.pipe, selectors.EVENT_READ, child)
        return child

    def _pump(self, timeout_s: float) -> None:
        """Pass the output of services on; return after `timeout_s` or once something happened."""
        heartbeat.beat()
        for key, _ in self._selector.select(timeout_s):
            if isinstance(key.data, _Child):
                if not key.data.read():
                    # It closed its end, alive or not: the loop must not spin on that.
                    self._selector.unregister(key.fileobj)
            elif isinstance(key.fileobj, socket.socket):
                key.fileobj.recv(4096)

    def _reap(self) -> None:
        for run in self._runs:
            if run.child is None or run.child.alive:
                continue
            now = time.monotonic()
            delay = run.backoff.delay_s(now - run.child.started_at)
            status = _described(run.child.process.returncode)
            self._bury(run.child)
            self._output.line(run.service.name, f"ended ({status}); again in {delay:.1f} s")
            run.child, run.start_at = None, now + delay
            run.restarts += 1
            run.last = status
            self._report_at = 0.0

    def _look_for_hung(self) -> None:
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_EVERY_S
        alive = [(run, run.child) for run in self._runs if run.child and run.child.alive]
        running = {child.process.pid: run for run, child in alive}
        ages = {child.process.pid: now - child.started_at for _, child in alive}
        allowed = {pid: run.service.silent_s for pid, run in running.items()}
        for hung in self._vigil.look(ages, allowed, now):
            run = running[hung.of]
            run.hung += 1
            run.last, run.hung_at = hung.why, str(Moment.now())
            self._report_at = 0.0
            self._output.line(run.service.name, f"process {hung.pid} {hung.why}: ended by force")

    def _keep_report(self) -> None:
        """Write the state of the services for /readyz; its age shows whether we live."""
        now = time.monotonic()
        if self._report is None or now < self._report_at:
            return
        self._report_at = now + _REPORT_EVERY_S
        services = {
            run.service.name: {
                "running": run.child is not None,
                "restarts": run.restarts,
                "hung": run.hung,
                "last": run.last,
                "hung_at": run.hung_at,
            }
            for run in self._runs
        }
        with suppress(OSError):  # a disk that is full is told elsewhere
            write_private(
                self._report, json.dumps({"moment": str(Moment.now()), "services": services})
            )

    def _bury(self, child: _Child) -> None:
        """End the leftovers of a process, which may hold a port or a lock, and forget it."""
        child.kill()
        with suppress(KeyError):
            self._selector.unregister(child.pipe)
        child.close()

    def _stop_in_order(self) -> None:
        for rank in sorted({run.service.stop_rank for run in self._runs}):
            ranked = [run for run in self._runs if run.service.stop_rank == rank]
            self._stop([run.child for run in ranked if run.child])
            for run in ranked:
                run.child = None

    def _stop(self, children: Sequence[_Child]) -> None:
        """Ask these to end, wait, and kill those that did not by then."""
        for child in children:
            # The main process alone: it knows how to end its own workers.
            if child.alive:
                child.process.terminate()
        deadline = time.monotonic() + self._grace_s
        while any(child.alive for child in children):
            if self._stops > 1 or time.monotonic() > deadline:
                break
            self._pump(_TICK_S)
            self._watch()
        for child in children:
            self._bury(child)


def _described(status: int) -> str:
    return f"status {status}" if status >= 0 else signal.Signals(-status).name
