"""``manage.py storage [show|verify]``: the size of readings, and whether files are whole."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from telemetry.cold import keep
from telemetry.cold.models import ColdFile
from telemetry.usage import Usage, usage


class Command(BaseCommand):
    help = "Show what each table takes in Postgres and in the cold tier, or verify its files."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("verb", nargs="?", choices=("show", "verify"), default="show")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        if verb == "verify":
            self._verify()
            return
        self.stdout.write(
            f"{'table':<16}{'where':<10}{'rows':>16}{'MiB':>12}{'B/row':>8}  from … until (UTC)"
        )
        for each in usage():
            self.stdout.write(_line(each))

    def _verify(self) -> None:
        damaged = list(keep.damaged())
        for path in damaged:
            self.stdout.write(path)
        if damaged:
            raise CommandError(
                f"{len(damaged)} of {ColdFile.objects.count()} files are missing or damaged. "
                "Put them back from a copy of the cold tier."
            )
        self.stdout.write(f"All {ColdFile.objects.count()} files are as they were written.")


def _line(each: Usage) -> str:
    where = "cold" if each.is_cold else "Postgres"
    per_row = f"{each.bytes / each.rows:.1f}" if each.rows else ""
    span = " … ".join(f"{at:%Y-%m-%d %H:%M}" for at in (each.oldest, each.newest) if at)
    mib = each.bytes / 2**20
    return f"{each.table:<16}{where:<10}{each.rows:>16,}{mib:>12.1f}{per_row:>8}  {span}"
