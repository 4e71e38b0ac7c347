"""Parts that several commands share: the server's options, signals, and a progress bar."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click

from headroom.errors import HeadroomError
from headroom.settings import DEFAULT_SERVER, find_token
from headroom.signals import call_on_stop
from lab.enroll import Server

__all__ = ["Show", "in_one_line", "progress", "server_of", "server_options", "stop_on_signals"]

Command = TypeVar("Command", bound=Callable[..., Any])
#: Told how far something is, of its length, and what is to be seen beside it.
Show = Callable[[float, str], None]

#: How often a line is printed where there is no terminal, s.
_LINE_EVERY_S = 5.0
#: Parts of a bar: finer than any terminal shows.
_PARTS = 1000


def server_options(default: str | None = DEFAULT_SERVER) -> Callable[[Command], Command]:
    """Add the options that locate the server. None: without --server none is needed."""

    def added(command: Command) -> Command:
        command = click.option(
            "--token-file",
            type=click.Path(path_type=Path, dir_okay=False),
            help="File with an API token that may edit the fleet and enroll agents "
            "(else HEADROOM_TOKEN, else that of the demo on this machine).",
        )(command)
        envvar = "HEADROOM_URL" if default else None
        return click.option(
            "--server", metavar="URL", default=default, envvar=envvar, show_default=True
        )(command)

    return added


def server_of(url: str, token_file: Path | None, *, connections: int) -> Server:
    """Return the server at ``url`` with the token that was given or found."""
    return Server(url, find_token(token_file, local_server=url), connections=connections)


def stop_on_signals() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stop = threading.Event()
    call_on_stop(stop.set)
    return stop


@contextmanager
def in_one_line() -> Iterator[None]:
    """End the command with one line, not a traceback, for every error that is meant for people."""
    try:
        yield
    except (HeadroomError, OSError) as exc:
        raise click.ClickException(str(exc)) from exc


@contextmanager
def progress(length: float, out: TextIO) -> Iterator[Show]:
    """Yield a display of the progress up to ``length``: a bar, or lines without a terminal."""
    if not out.isatty():
        yield _lines(length, out)
        return
    with click.progressbar(
        length=_PARTS,
        file=out,
        width=24,
        show_eta=False,
        show_percent=True,
        item_show_func=lambda said: said or "",
    ) as bar:

        def show(at: float, said: str) -> None:
            part = round(_PARTS * min(at / length, 1.0)) if length > 0 else _PARTS
            bar.update(part - bar.pos, said)
            # What is to be seen changes also while the bar does not.
            bar.render_progress()

        yield show


def _lines(length: float, out: TextIO) -> Show:
    next_at = 0.0

    def show(at: float, said: str) -> None:
        nonlocal next_at
        is_last = at >= length
        if is_last or time.monotonic() >= next_at:
            next_at = time.monotonic() + _LINE_EVERY_S
            share = 100.0 * min(at / length, 1.0) if length > 0 else 100.0
            click.echo(f"{share:3.0f}%  {said}", file=out)

    return show
