"""``manage.py set_aside [show|export|forget]``: batches that cannot be stored."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from accounts.edge.visible import visible
from telemetry import aside
from telemetry.models import Agent


class Command(BaseCommand):
    help = "Show batches that were set aside since they cannot be stored, export or forget them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("verb", nargs="?", choices=("show", "export", "forget"), default="show")
        parser.add_argument("--out", type=Path, help="folder for export; made if need be")

    def handle(self, *args: Any, verb: str, out: Path | None, **options: Any) -> None:
        found = aside.found()
        if verb == "forget":
            self.stdout.write(f"{aside.forget(found)} batches are forgotten.")
        elif verb == "show":
            self._show(found)
        elif out is None:
            raise CommandError("export needs --out FOLDER")
        else:
            self._export(found, out)

    def _show(self, found: list[aside.Kept]) -> None:
        names = dict(Agent.objects.values_list("pk", "name"))
        for kept in found:
            since = datetime.fromtimestamp(kept.at, UTC)
            agent = names.get(kept.agent_id, f"an agent that is gone ({kept.agent_id})")
            line = (
                f"{since:%Y-%m-%d %H:%M:%S} UTC  {agent}  boot_id {kept.boot_id}  seq {kept.seq}"
                f"  {len(kept.body):,} B  {kept.error}"
            )
            # Of the boot_id and of the error an agent decides.
            self.stdout.write(visible(line.encode()).decode())
        if not found:
            self.stdout.write("None is set aside.")

    def _export(self, found: list[aside.Kept], out: Path) -> None:
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number, kept in enumerate(found, start=1):
            # The name is of numbers alone: a boot_id is what an agent says.
            path = out / f"{number:03}-agent-{kept.agent_id}-seq-{kept.seq}.msgpack"
            path.touch(mode=0o600)
            path.write_bytes(kept.body)
            self.stdout.write(str(path))
