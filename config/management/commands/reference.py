"""``manage.py reference``: the reference pages that are made from code."""

from __future__ import annotations

import difflib
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiYamlRenderer

from dashboard import glossary
from headroom.contracts import ErrorBody, TelemetryAck, TelemetryBatch
from headroom.jobs.schema import job_spec_schema
from lab.matrix.schema import scenario_schema

FOLDER: Path = settings.BASE_DIR / "docs" / "reference"


def openapi() -> str:
    """Return the description of the REST API, as OpenAPI in YAML."""
    schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    text: bytes = OpenApiYamlRenderer().render(schema, renderer_context={})  # type: ignore[no-untyped-call]
    return text.decode()


def telemetry_schema() -> str:
    """Return the JSON schema of a telemetry batch; the answers to it are among its ``$defs``."""
    types = (TelemetryBatch, TelemetryAck, ErrorBody)
    _, parts = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$ref": "#/$defs/TelemetryBatch",
        "$defs": parts,
    }
    return _written(schema)


def job_schema() -> str:
    """Return the JSON schema of a job specification."""
    return _written(job_spec_schema())


def scenarios_schema() -> str:
    """Return the JSON schema of a scenario."""
    return _written(scenario_schema())


def _written(schema: dict[str, Any]) -> str:
    return (
        msgspec.json.format(msgspec.json.encode(schema, order="sorted"), indent=2).decode() + "\n"
    )


PAGES = {
    "openapi.yaml": openapi,
    "telemetry-batch.schema.json": telemetry_schema,
    "job-spec.schema.json": job_schema,
    "scenario.schema.json": scenarios_schema,
    "glossary.md": glossary.page,
}


class Command(BaseCommand):
    help = "Write the reference pages that are made from code."
    # Neither database nor settings matter here.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--check", action="store_true", help="write nothing; fail where a page is not current"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        made = {FOLDER / name: make() for name, make in PAGES.items()}
        stale = {path: text for path, text in made.items() if _kept(path) != text}
        if options["check"]:
            self._refuse(stale)
            return
        for path, text in stale.items():
            path.write_text(text, encoding="utf-8")
            self.stdout.write(f"wrote {path.name}")

    def _refuse(self, stale: dict[Path, str]) -> None:
        for path, text in stale.items():
            old, new = _kept(path).splitlines(), text.splitlines()
            difference = difflib.unified_diff(old, new, path.name, "made now", lineterm="")
            self.stdout.write("\n".join(difference))
        if stale:
            names = ", ".join(path.name for path in stale)
            raise CommandError(f"not current: {names}. Run manage.py reference.")


def _kept(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
