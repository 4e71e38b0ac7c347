"""``manage.py import_grid SITE FILE``: carbon and price of a site's grid by the hour."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from admission.energy import grid_file
from admission.energy.actions import take_grid
from admission.energy.models import GridHour
from fleet.models import Site


class Command(BaseCommand):
    help = "Take carbon and price of a site's grid by the hour from a CSV file."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("site", help="name of the site")
        parser.add_argument("file", help="CSV with hour, carbon_g_per_kwh, price_per_kwh")

    def handle(self, *args: Any, site: str, file: str, **options: Any) -> None:
        place = Site.objects.filter(name=site).first()
        if place is None:
            raise CommandError(f"there is no site {site!r}")
        try:
            told = grid_file.parse(Path(file).read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{file}: {error}") from error
        except grid_file.BadGridFile as error:
            raise CommandError(f"{file}: {error}") from error
        count = take_grid(place, told, GridHour.Source.FILE, now=timezone.now())
        self.stdout.write(f"{count} hours of {site}")
