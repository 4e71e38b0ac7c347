"""``manage.py reference``: what the documents say of the API is what the code does."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import msgspec
import pytest
import yaml
from django.core.management import CommandError, call_command
from drf_spectacular.drainage import GENERATOR_STATS

from config.management.commands import reference
from headroom.contracts import TelemetryAck
from tests.builders.batches import make_batch
from tests.json_schema import validator


@pytest.fixture(scope="module")
def openapi() -> str:
    """The description of the API, made once: it takes seconds."""
    GENERATOR_STATS.reset()
    return reference.openapi()


@pytest.fixture(autouse=True)
def pages(openapi: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All pages are made as ever, but for that description."""
    monkeypatch.setitem(reference.PAGES, "openapi.yaml", lambda: openapi)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(reference, "FOLDER", tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_page_is_current(name: str) -> None:
    made, kept = reference.PAGES[name](), (reference.FOLDER / name).read_text()
    assert made == kept, "run manage.py reference"


def test_the_api_is_described_without_a_warning(openapi: str) -> None:
    described = yaml.safe_load(openapi)
    assert not GENERATOR_STATS._warn_cache
    assert not GENERATOR_STATS._error_cache
    assert "/api/v1/racks" in described["paths"]


def test_it_writes_what_is_missing_and_then_nothing(folder: Path) -> None:
    first, second = StringIO(), StringIO()
    call_command("reference", stdout=first)
    call_command("reference", stdout=second)
    assert {path.name for path in folder.iterdir()} == reference.PAGES.keys()
    assert first.getvalue().count("wrote") == len(reference.PAGES)
    assert not second.getvalue()


def test_check_shows_the_difference_and_writes_nothing(folder: Path) -> None:
    call_command("reference", stdout=StringIO())
    page = folder / "openapi.yaml"
    page.write_text(page.read_text().replace("title: Headroom", "title: Legroom"))
    said = StringIO()
    with pytest.raises(CommandError, match=r"openapi\.yaml"):
        call_command("reference", check=True, stdout=said)
    assert "-  title: Legroom" in said.getvalue()
    assert "title: Legroom" in page.read_text()


def test_the_schema_takes_a_batch_and_refuses_a_wrong_one() -> None:
    schema = json.loads(reference.telemetry_schema())
    batch = json.loads(msgspec.json.encode(make_batch("oslo-a01-n1", "oslo-a01-n1")))
    held_to = validator(schema)
    held_to.validate(batch)
    assert not held_to.is_valid({**batch, "seq": 0})
    assert not held_to.is_valid({**batch, "extra": 1})


def test_the_schema_knows_the_answers() -> None:
    schema = json.loads(reference.telemetry_schema())
    answer = json.loads(msgspec.json.encode(TelemetryAck(durable_seq=1, received_at=2.0)))
    of_answer = {**schema, "$ref": "#/$defs/TelemetryAck"}
    validator(of_answer).validate(answer)
    assert "ErrorBody" in schema["$defs"]
