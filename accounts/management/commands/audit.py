"""``manage.py audit``: check the audit log, export it, and keep an anchor of it elsewhere."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain as joined
from pathlib import Path
from typing import IO, Any

import msgspec
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from accounts import audit_chain, shipping
from accounts.chain import START, Broken, Head

_ANCHOR = "a file that `audit anchor` wrote, or POSITION:HASH"


class Command(BaseCommand):
    help = "Verify the audit log's chain of hashes, export it, or print an anchor of its end."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        verify = actions.add_parser("verify", help="find the first entry that was tampered with")
        verify.add_argument("--anchor", help=f"what is known of its end: {_ANCHOR}")
        verify.add_argument("--file", help="an export instead of the database; - for stdin")
        export = actions.add_parser("export", help="entries as lines of JSON, an anchor at the end")
        export.add_argument("--after", type=int, default=0, help="position of the last one known")
        export.add_argument("--out", help="a file instead of stdout; must not exist")
        actions.add_parser("ship", help="bring what is new to AUDIT_SYSLOG_URL, until all is there")
        keep = actions.add_parser("anchor", help="the end of the log, signed")
        keep.add_argument("--out", help="a file instead of stdout; must not exist")

    def handle(self, *args: Any, **options: Any) -> None:
        action = {
            "verify": self._verify,
            "export": self._export,
            "anchor": self._anchor,
            "ship": self._ship,
        }
        action[options["action"]](options)

    def _verify(self, options: dict[str, Any]) -> None:
        try:
            known = _known(options["anchor"])
            end = _file(options["file"], known) if options["file"] else audit_chain.verify(known)
        except Broken as broken:
            raise CommandError(f"The audit log does not hold at {broken}.") from broken
        except audit_chain.NotOurs as error:
            raise CommandError(str(error)) from error
        beside = " It agrees with the anchor." if known else ""
        self.stdout.write(f"The audit log holds: {end.position} entries, {end.hash.hex()}.{beside}")

    def _export(self, options: dict[str, Any]) -> None:
        end = audit_chain.head()
        with self._output(options["out"]) as out:
            limit = max(0, end.position - options["after"])
            for link in audit_chain.links(options["after"], limit):
                out.write(_line(audit_chain.Exported.of(link)))
            out.write(_line(audit_chain.anchor(end)))

    def _anchor(self, options: dict[str, Any]) -> None:
        with self._output(options["out"]) as out:
            out.write(_line(audit_chain.anchor(audit_chain.head())))

    def _ship(self, _options: dict[str, Any]) -> None:
        if not settings.AUDIT_SYSLOG_URL:
            raise CommandError("AUDIT_SYSLOG_URL is not set: docs/how-to/keep-the-audit-log.md")
        total = 0
        while (shipped := shipping.step()).count:
            total += shipped.count
        if shipped.error:
            raise CommandError(f"Stopped at position {shipped.position}: {shipped.error}")
        self.stdout.write(f"{total} entries were sent; all up to {shipped.position} are there.")

    @contextmanager
    def _output(self, path: str | None) -> Iterator[Any]:
        if path is None:
            # Without the ending that each write() of the command would add.
            self.stdout.ending = ""
            yield self.stdout
            return
        try:
            with Path(path).open("x", encoding="utf-8") as file:
                yield file
        except FileExistsError as error:
            raise CommandError(f"{path} exists already: give another name") from error


def _known(anchor: str | None) -> Head | None:
    """Return the head that --anchor names: in a file, or in the text itself."""
    if anchor is None:
        return None
    path = Path(anchor)
    return audit_chain.read_anchor(path.read_text(encoding="utf-8") if path.is_file() else anchor)


def _file(path: str, known: Head | None) -> Head:
    with _input(path) as lines:
        found = audit_chain.read_export(lines)
        first = next(found, None)
        if first is None:
            return START
        # What an export leaves out at its start is not to be checked.
        after = Head(first.position - 1, first.previous)
        after = START if first.position == 1 else after
        return audit_chain.check_links(joined([first], found), known, after=after)


@contextmanager
def _input(path: str) -> Iterator[IO[str]]:
    if path == "-":
        yield sys.stdin
        return
    try:
        with Path(path).open(encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error


def _line(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value).decode() + "\n"
