"""The user's end of a shell: this terminal, passed on to one in what a job holds."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from headroom.jobs.asking import Jobs
from headroom.work.contract import MAX_FRAME_BYTES, ShellKind, ShellSide
from headroom.work.shell_end import ShellEnd

__all__ = ["BROKEN", "run"]

#: Exit status where the session ended, and not by its command: as ssh has it.
BROKEN = 255


def run(jobs: Jobs, job: str, command: Sequence[str], chosen: Mapping[str, Any]) -> int:
    """Open a terminal in ``job`` and pass this one on until its end; return the exit status."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    size = shutil.get_terminal_size()
    opened = jobs.open_shell(
        job,
        {
            **chosen, "command": [*command], "is_terminal": is_terminal, "rows": size.lines,
            "columns": size.columns, "term": os.environ.get("TERM") or "xterm",
        },
    )  # fmt: skip
    end = ShellEnd(jobs.server_url, opened["session"], ShellSide.USER, opened["secret"])
    if is_terminal:
        click.echo(f"{job} on {opened['node']}: the machine is asked for a terminal", err=True)
    with _raw(is_terminal), _sizes(end, is_terminal):
        threading.Thread(target=_send, args=(end,), daemon=True).start()
        try:
            for frame in end.listen():
                if frame.kind == ShellKind.DATA:
                    sys.stdout.buffer.write(frame.data)
                    sys.stdout.buffer.flush()
        except (KeyboardInterrupt, BrokenPipeError):
            end.say(ShellKind.OVER, b"whoever had opened it has left")
    if end.over:
        click.echo(f"headroom: {end.over}", err=True)
    code = end.exit_code
    return BROKEN if code is None or (end.over and code == 0) else code


def _send(end: ShellEnd) -> None:
    """Pass on what is typed. The end of the input is not: the command may go on without."""
    with contextlib.suppress(OSError, ValueError):
        while data := os.read(sys.stdin.fileno(), MAX_FRAME_BYTES):
            if not end.say(ShellKind.DATA, data):
                return


@contextlib.contextmanager
def _raw(is_terminal: bool) -> Iterator[None]:
    """Have keys pass as they are pressed, Ctrl-C too."""
    if not is_terminal:
        yield
        return
    before = termios.tcgetattr(sys.stdin.fileno())
    try:
        tty.setraw(sys.stdin.fileno())
        yield
    finally:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)


@contextlib.contextmanager
def _sizes(end: ShellEnd, is_terminal: bool) -> Iterator[None]:
    """Pass on each change of the window."""
    if not is_terminal:
        yield
        return

    changed = threading.Event()
    is_over = threading.Event()

    def tell() -> None:
        while changed.wait() and not is_over.is_set():
            changed.clear()
            size = shutil.get_terminal_size()
            end.say(ShellKind.RESIZE, f"{size.lines} {size.columns}".encode())

    threading.Thread(target=tell, daemon=True).start()
    before = signal.signal(signal.SIGWINCH, lambda _number, _frame: changed.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
        is_over.set()
        changed.set()
