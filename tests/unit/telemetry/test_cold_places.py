"""Where files of the cold tier lie; buckets: tests/integration/telemetry/test_object_store.py."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from pytest_django import Settings

from telemetry.cold.places import Directory, place, reason


def test_a_file_that_was_not_finished_is_none_to_a_reader_but_can_be_found(tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    directory.put("t/a.parquet", b"one")
    (tmp_path / "t" / ".unfinished-b.parquet").write_bytes(b"tw")
    with pytest.raises(FileNotFoundError):
        directory.get("t/b.parquet")
    assert "t/.unfinished-b.parquet" in {path for path, *_ in directory.listed()}


def test_others_cannot_read_the_directory(tmp_path: Path) -> None:
    Directory(tmp_path / "cold").put("t/a.parquet", b"one")
    assert stat.S_IMODE((tmp_path / "cold").stat().st_mode) == 0o700


def test_the_setting_says_where(settings: Settings, tmp_path: Path) -> None:
    settings.TELEMETRY_COLD_URL = ""
    assert place().uri("x") == str(settings.STATE_DIR / "cold" / "x")
    settings.TELEMETRY_COLD_URL = f"file://{tmp_path}/with%20space"
    assert place().uri("x") == f"{tmp_path}/with space/x"
    settings.TELEMETRY_COLD_URL = "s3://bucket/prefix/"
    assert place().uri("t/x") == "s3://bucket/prefix/t/x"


def test_of_what_a_store_answers_nothing_is_told_that_was_signed(settings: Settings) -> None:
    settings.TELEMETRY_COLD_URL = "s3://bucket/prefix"
    answer = (
        "object-store error: 403 Forbidden:\n"
        '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>SignatureDoesNotMatch</Code>'
        "<Message>Check your key.</Message><AWSAccessKeyId>AKIA1</AWSAccessKeyId>"
        "<StringToSign>AWS4-HMAC-SHA256 20261123</StringToSign></Error> (path: s3://bucket/x)"
    )
    assert reason(OSError(answer)) == (
        "the cold tier, s3://bucket/prefix, cannot be used: object-store error: 403 Forbidden: "
        "SignatureDoesNotMatch: Check your key."
    )
