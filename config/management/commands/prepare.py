"""``manage.py prepare``: everything that has to be there before the services start, once."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from config import checks, ownership, preparation, settings_audit


class Command(BaseCommand):
    help = "Migrate, collect assets, create the first admin. Run it as often as you like."
    # The settings alone: checks of models and URLs import everything, and `make lint` runs them.
    requires_system_checks = [checks.TAG]

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--demo", action="store_true", help="a user and token for the demo")
        parser.add_argument("--replay", action="store_true", help="a token for headroom replay")
        parser.add_argument(
            "--machine-agent", metavar="NAME", help="this machine as a node, and its agent's token"
        )
        parser.add_argument("--no-static", action="store_true", help="leave the assets alone")

    def handle(self, *args: Any, **options: Any) -> None:
        with ownership.as_owner(), preparation.one_at_a_time():
            if preparation.migrate():
                self.stdout.write("The tables are up to date now.")
            ownership.grant()
        self._warn()
        with preparation.one_at_a_time():
            if not options["no_static"] and preparation.collect_static():
                self.stdout.write("The assets are collected.")
            self._admin()
            settings_audit.note()
            if brought := preparation.ensure_policies():
                self.stdout.write(f"{len(brought)} built-in rules and playbooks are new.")
            if options["demo"]:
                is_new = preparation.ensure_demo()
                preparation.ensure_demo_grants(is_new=is_new)
            if options["replay"]:
                preparation.ensure_replay()
            if options["machine_agent"]:
                preparation.ensure_machine(options["machine_agent"])

    def _warn(self) -> None:
        for weakness in checks.database_role():
            self.stderr.write(f"{weakness.msg} {weakness.hint}")

    def _admin(self) -> None:
        new = preparation.ensure_admin()
        if new is None:
            return
        name, path = new
        # Shown to a person, never to a log: our output may be kept.
        shown = f": {path.read_text().strip()}" if self.stdout.isatty() else ""
        self.stdout.write(f"There is a user {name} now. Its password is in {path}{shown}")
