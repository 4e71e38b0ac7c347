"""``manage.py fleet plan|apply|export|netbox``: the whole inventory as one file."""

from __future__ import annotations

import getpass
import os
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from django.core.management.base import BaseCommand, CommandError

from fleet import netbox
from fleet.inventory import (
    Inventory,
    InventoryError,
    Plan,
    StalePlanError,
    apply,
    describe,
    export,
    parse,
    plan,
    read_state,
)

#: So many rows of a kind are shown for each sign, unless with ``--all``.
_SHOWN = 20


class Command(BaseCommand):
    help = "Compare the fleet with an inventory file, change it, or write the file."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        planning = verbs.add_parser("plan", help="show what would change")
        applying = verbs.add_parser("apply", help="show what would change, ask, and do it")
        for verb in (planning, applying):
            verb.add_argument("file", help="YAML, or - for standard input")
            _add_plan_options(verb)
        exporting = verbs.add_parser("export", help="write the fleet as YAML")
        exporting.add_argument("file", nargs="?", default="-", help="- is standard output")
        importing = verbs.add_parser("netbox", help="take over what NetBox knows")
        importing.add_argument("source", help="URL of NetBox, or a folder of its JSON answers")
        importing.add_argument(
            "--token-env",
            default="NETBOX_TOKEN",
            metavar="NAME",
            help="environment variable that holds the API token (default: %(default)s)",
        )
        _add_plan_options(importing)
        for verb in (applying, importing):
            verb.add_argument("--yes", action="store_true", help="do not ask")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        if verb == "export":
            self._export(options["file"])
            return
        try:
            inventory = self._netbox(options) if verb == "netbox" else _read(options["file"])
            todo = plan(inventory, read_state(), prune_sites=options["prune_sites"])
        except (InventoryError, netbox.NetBoxError) as error:
            raise CommandError(str(error)) from error
        self._show(todo, None if options["all"] else _SHOWN)
        if verb != "plan" and todo:
            self._apply(todo, ask=not options["yes"])

    def _netbox(self, options: dict[str, Any]) -> Inventory:
        token = os.environ.get(options["token_env"], "")
        imported = netbox.load(options["source"], token, read_state())
        for note in imported.notes:
            self.stderr.write(self.style.WARNING(note))
        return imported.inventory

    def _show(self, todo: Plan, limit: int | None) -> None:
        styles = {"+": self.style.SUCCESS, "~": self.style.WARNING, "-": self.style.ERROR}
        for sign, text in describe.lines(todo, limit):
            self.stdout.write(styles[sign](f"{sign} {text}"))
        for warning in todo.warnings[:limit]:
            self.stderr.write(self.style.WARNING(f"! {warning}"))
        if limit is not None and len(todo.warnings) > limit:
            self.stderr.write(self.style.WARNING(f"! … and {len(todo.warnings) - limit:,} more"))
        if todo:
            self.stdout.write(describe.summary(todo))
        else:
            self.stdout.write("Nothing to change.")

    def _apply(self, todo: Plan, *, ask: bool) -> None:
        if ask and not _confirmed():
            raise CommandError("Nothing was changed.")
        try:
            with _bar(todo.rows) as told:
                apply(todo, f"{getpass.getuser()} (command line)", told=told)
        except StalePlanError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(self.style.SUCCESS("Applied."))

    def _export(self, file: str) -> None:
        text = export(read_state().rows)
        if file == "-":
            self.stdout.write(text, ending="")
        else:
            Path(file).write_text(text, encoding="utf-8")


def _add_plan_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--prune-sites",
        action="store_true",
        help="remove sites that the inventory does not name, and unused hardware models",
    )
    parser.add_argument(
        "--all", action="store_true", help=f"show all rows, not the first {_SHOWN} of each kind"
    )


def _read(file: str) -> Inventory:
    if file == "-":
        return parse(sys.stdin.buffer.read(), "standard input")
    try:
        return parse(Path(file).read_bytes(), file)
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from error


@contextmanager
def _bar(rows: int) -> Iterator[Callable[[int], object]]:
    """Yield what is told of rows that are written: a bar on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _rows: None
        return
    with click.progressbar(length=rows, file=sys.stderr, label="Rows written") as bar:
        yield bar.update


def _confirmed() -> bool:
    if not sys.stdin.isatty():
        raise CommandError("Nobody to ask: pass --yes to apply without asking.")
    return input("Apply? [y/N] ").strip().lower() in ("y", "yes")
