"""Terminals in what runs here, for those who may: this side of them.

The machine opens a terminal when the server asks for one with its orders, and comes to the server
with what is said there: nobody connects to it. What is started is the shim's, which has the rights
for it; it is within the job's limits and ends with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import termios
import threading
import time
import tty
from collections.abc import Callable
from pathlib import Path

import msgspec

from headroom.work.contract import MAX_FRAME_BYTES, ShellAsk, ShellKind, ShellSide
from headroom.work.folder import Folder
from headroom.work.reading import read_plain, write_plain
from headroom.work.shell_end import ShellEnd

__all__ = ["Terminals"]

#: Terminals on one machine at once.
_MOST = 16
#: How often to look whether the command, or the job, has ended, s.
_LOOK_S = 0.1
#: How long to wait for more of what is being said, s.
_LINGER_S = 0.005
#: Exit code of what could not be started.
_NOT_RUNNABLE = 126
_SHELLS = ("/bin/bash", "/bin/sh")


class Terminals:
    """The terminals of one machine, each with threads of its own."""

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        self._open: set[str] = set()
        self._lock = threading.Lock()

    def open(self, ask: ShellAsk, folder: Folder) -> None:
        """Open a terminal in the job of ``folder``. Asked again, it does nothing."""
        if self._is_new(ask):
            self._start(Terminal(self._end_of(ask), ask, folder).run, ask)

    def refuse(self, ask: ShellAsk, why: str) -> None:
        """Say that a terminal is not opened. Asked again, it does nothing."""
        if self._is_new(ask):
            self._start(lambda: _end(self._end_of(ask), _NOT_RUNNABLE, why), ask)

    def _is_new(self, ask: ShellAsk) -> bool:
        with self._lock:
            if ask.session in self._open or len(self._open) >= _MOST:
                return False
            self._open.add(ask.session)
            return True

    def _end_of(self, ask: ShellAsk) -> ShellEnd:
        return ShellEnd(self._server_url, ask.session, ShellSide.NODE, ask.secret)

    def _start(self, work: Callable[[], None], ask: ShellAsk) -> None:
        def run() -> None:
            try:
                work()
            finally:
                # It may be asked for until the server has heard of it.
                time.sleep(1.0)
                with self._lock:
                    self._open.discard(ask.session)

        threading.Thread(target=run, name=f"shell-{ask.session[:8]}", daemon=True).start()


class Terminal:
    """One terminal: a device whose other end the shim gives to a command."""

    def __init__(self, end: ShellEnd, ask: ShellAsk, folder: Folder) -> None:
        self._end = end
        self._ask = ask
        self._folder = folder
        self._exit = folder.path / f"shell-{ask.session}.exit"
        self._request = folder.path / f"shell-{ask.session}.json"

    def run(self) -> None:
        """Pass on what is said until the command, the job or the session has ended."""
        ours, theirs = os.openpty()
        try:
            os.set_blocking(ours, False)
            _resize(ours, self._ask.rows, self._ask.columns)
            if not self._ask.is_terminal:
                tty.setraw(theirs)
            if self._asked(os.ttyname(theirs)):
                self._pass_on(ours)
            else:
                _end(self._end, _NOT_RUNNABLE, "the job does not run any more")
        finally:
            self._folder.tell(f"hangup {self._ask.session}")
            os.close(ours)
            os.close(theirs)
            self._end.close()
            for path in (self._exit, self._request):
                path.unlink(missing_ok=True)

    def _asked(self, device: str) -> bool:
        shell = next((each for each in _SHELLS if Path(each).exists()), _SHELLS[-1])
        request = {
            "device": device,
            "command": self._ask.command or [shell, "-l"],
            "term": self._ask.term,
        }
        write_plain(self._request, msgspec.json.encode(request), 0o600)
        return self._folder.tell(f"shell {self._ask.session}")

    def _pass_on(self, ours: int) -> None:
        listener = threading.Thread(target=self._listen, args=(ours,), daemon=True)
        listener.start()
        code, why = self._speak(ours)
        if self._end.over is None:
            _say_end(self._end, code, why)
        listener.join(1.0)

    def _speak(self, ours: int) -> tuple[int, str]:
        """Say what the terminal shows until its end; return the exit code, and why it ended."""
        while self._end.over is None:
            is_over = self._exit.exists()
            if self._say_what_is_there(ours):
                continue
            if is_over:
                return self._code(), ""
            if not self._folder.marks().is_watched:
                return 128 + 9, "the job has ended"
        return 0, ""

    def _say_what_is_there(self, ours: int) -> bool:
        if not select.select([ours], [], [], _LOOK_S)[0]:
            return False
        said = b""
        # The kernel gives some KiB at a time; what follows at once goes with it.
        while len(said) < MAX_FRAME_BYTES and select.select([ours], [], [], _LINGER_S)[0]:
            try:
                said += os.read(ours, MAX_FRAME_BYTES - len(said))
            except OSError:
                break
        return bool(said) and self._end.say(ShellKind.DATA, said)

    def _code(self) -> int:
        try:
            return int(read_plain(self._exit, 16)) & 0xFF
        except (OSError, ValueError):
            return _NOT_RUNNABLE

    def _listen(self, ours: int) -> None:
        with contextlib.suppress(OSError):
            for frame in self._end.listen():
                if frame.kind == ShellKind.DATA:
                    _write(ours, frame.data)
                elif frame.kind == ShellKind.RESIZE:
                    with contextlib.suppress(ValueError):
                        rows, columns = (int(word) for word in frame.data.split())
                        _resize(ours, rows, columns)


def _end(end: ShellEnd, code: int, why: str) -> None:
    _say_end(end, code, why)
    end.close()


def _say_end(end: ShellEnd, code: int, why: str) -> None:
    if end.say(ShellKind.EXIT, str(code).encode()):
        end.say(ShellKind.OVER, why.encode())


def _write(device: int, data: bytes) -> None:
    """Write all of ``data``; what the command is slow to read is waited for."""
    while data:
        select.select([], [device], [], 1.0)
        with contextlib.suppress(BlockingIOError):
            data = data[os.write(device, data) :]


def _resize(device: int, rows: int, columns: int) -> None:
    size = struct.pack("HHHH", min(rows, 1000), min(columns, 1000), 0, 0)
    fcntl.ioctl(device, termios.TIOCSWINSZ, size)
