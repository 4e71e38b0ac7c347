"""The cold tier in a bucket of a real store, beside the same in a folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from pytest_django import Settings
from structlog.testing import capture_logs

from config import env
from telemetry import housekeeping, samples, tasks
from telemetry.cold import keep, move, places
from telemetry.cold.models import ColdFile
from telemetry.cold.places import Bucket, Directory, Place, Unreachable, place
from telemetry.store.columns import Window
from telemetry.store.reading import read
from tests.integration.telemetry.cold import (
    HOUR,
    NOW,
    PER_HOUR,
    T0,
    in_postgres,
    move_all,
    stored,
    write_meter,
    write_some,
)
from tests.object_store.store import BUCKET, SECRET_KEY, ObjectStore

pytestmark = pytest.mark.django_db

WRONG_KEY = "hunter2-hunter2"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with ObjectStore(tmp_path_factory.mktemp("store")) as store:
        yield store


@pytest.fixture
def bucket(
    server: ObjectStore, settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Bucket]:
    """The cold tier is a prefix of its own in the server's bucket, set up as an installation is."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TELEMETRY_COLD_URL", f"s3://{BUCKET}/{tmp_path.name}/")
    settings.TELEMETRY_COLD_URL = env.cold_url()
    settings.COLD_ENDPOINT_URL = env.s3_endpoint_url()
    settings.TELEMETRY_HOT_H = settings.TELEMETRY_MINUTE_HOT_H = 6
    places._place.cache_clear()
    found = place()
    assert isinstance(found, Bucket)
    yield found
    places._place.cache_clear()


@pytest.fixture(params=["directory", "bucket"])
def somewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "directory":
        return Directory(tmp_path / "cold")
    found: Place = request.getfixturevalue("bucket")
    return found


def test_a_file_is_given_back_listed_and_removed(somewhere: Place) -> None:
    assert list(somewhere.listed()) == []
    somewhere.put("t/a.parquet", b"one")
    somewhere.put("t/b.parquet", b"two" * 3_000_000)
    assert somewhere.get("t/a.parquet") == b"one"
    assert somewhere.get("t/b.parquet") == b"two" * 3_000_000
    listed = {found.path: found.at for found in somewhere.listed()}
    assert listed.keys() == {"t/a.parquet", "t/b.parquet"}
    assert all(abs(datetime.now(UTC) - at) < timedelta(minutes=1) for at in listed.values())
    somewhere.delete("t/a.parquet")
    somewhere.delete("t/a.parquet")
    assert [path for path, *_ in somewhere.listed()] == ["t/b.parquet"]
    with pytest.raises(FileNotFoundError):
        somewhere.get("t/a.parquet")


WRITER = """
import os, sys
os.environ.update(DJANGO_SETTINGS_MODULE="config.settings")
import django
django.setup()
from telemetry.cold.places import place
for number in range(1000):
    place().put(f"t/{number}.parquet", bytes([number % 251]) * 12_000_000)
    print(number, flush=True)
"""


def test_a_writer_that_is_killed_leaves_whole_files_and_no_other(bucket: Bucket) -> None:
    url = bucket.uri("").rstrip("/")
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER],
        env=os.environ | {"TELEMETRY_COLD_URL": url},
        stdout=subprocess.PIPE,
    )
    assert writer.stdout is not None
    assert writer.stdout.readline()
    time.sleep(0.07)  # amid one of the next
    writer.send_signal(signal.SIGKILL)
    done = 1 + writer.stdout.read().count(b"\n")
    writer.wait()
    writer.stdout.close()
    found = [path for path, *_ in bucket.listed()]
    assert done <= len(found) <= done + 1
    for path in found:
        data = bucket.get(path)
        assert data == data[:1] * 12_000_000


def test_readings_move_and_are_read_merged_verified_and_retired(bucket: Bucket) -> None:
    before = write_some()
    assert move_all()
    assert stored(samples.METER) == before
    assert in_postgres("meter_sample") == 0
    for late in range(9):
        write_meter(1, [400 + late], [float(late)])
        housekeeping.roll_up(NOW.timestamp())
        before = sorted([*before, (1, 400.0 + late, float(late))])
        move_all()
    housekeeping.keep_cold_files(NOW)
    assert ColdFile.objects.filter(table="meter_sample", start__hour=0).count() == 1
    assert stored(samples.METER) == before
    assert list(keep.damaged()) == []
    assert {path for path, *_ in bucket.listed()} == set(
        ColdFile.objects.values_list("path", flat=True)
    )
    much_later = NOW + timedelta(days=14)
    while keep.retire(much_later):
        pass
    assert not [path for path, *_ in bucket.listed() if path.startswith("meter_sample/")]


def test_what_is_lost_or_changed_in_the_store_is_found(bucket: Bucket) -> None:
    write_some()
    move_all()
    first, second = ColdFile.objects.order_by("pk")[:2]
    bucket.delete(first.path)
    bucket.put(second.path, b"PAR1")
    assert list(keep.damaged()) == [first.path, second.path]


@pytest.mark.parametrize("killed", [(Bucket, "put"), (move, "_check"), (move, "_count_as_moved")])
def test_a_mover_may_be_killed_anywhere(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, killed: tuple[object, str]
) -> None:
    before = write_some()
    call = getattr(*killed)

    def fails(*args: object, **named: object) -> None:
        call(*args, **named)
        raise RuntimeError("killed here")

    with monkeypatch.context() as patch:
        patch.setattr(*killed, fails)
        with pytest.raises(RuntimeError, match="killed here"):
            move_all()
    assert stored(samples.METER) == before
    move_all()
    assert stored(samples.METER) == before
    # What was written for nothing goes, later.
    keep.clean(datetime.now(UTC) + timedelta(days=2))
    known = set(ColdFile.objects.values_list("path", flat=True))
    assert {path for path, *_ in bucket.listed()} == known


def test_of_a_large_file_only_what_is_asked_for_is_sent(
    bucket: Bucket, server: ObjectStore
) -> None:
    rng = np.random.default_rng(1)
    for meter in range(1, 81):
        write_meter(meter, [float(s) for s in range(3600)], rng.normal(1000, 100, 3600).tolist())
    housekeeping.roll_up(NOW.timestamp())
    move_all()
    size = max(ColdFile.objects.filter(table="meter_sample").values_list("bytes", flat=True))
    before = server.sent_bytes()
    found = read(samples.METER, ("power_w",), Window(T0, T0 + HOUR), [40])
    assert len(found["ts"]) == 3600
    sent = server.sent_bytes() - before
    assert 0 < sent < size / 2, (sent, size)


class TestAway:
    """A store that refuses or is not there: it is said, nothing is lost, and nobody waits long."""

    def test_wrong_credentials_are_told_and_not_repeated(
        self, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = write_some()
        with monkeypatch.context() as patch:
            patch.setenv("AWS_SECRET_ACCESS_KEY", WRONG_KEY)
            places._place.cache_clear()
            with capture_logs() as logs:
                assert not tasks.with_cold_tier(lambda _: move_all())
        (told,) = [each for each in logs if each["event"] == "cold_tier_unreachable"]
        assert f"s3://{BUCKET}/" in told["error"]
        assert "signature" in told["error"].lower()
        assert WRONG_KEY not in str(logs)
        assert SECRET_KEY not in str(logs)
        assert stored(samples.METER) == before
        assert not ColdFile.objects.exists()
        places._place.cache_clear()
        assert move_all()
        assert stored(samples.METER) == before

    @pytest.mark.slow(
        beside="tests/integration/telemetry/test_object_store.py::"
        "TestAway::test_a_bucket_that_does_not_exist_is_told_of"
    )
    def test_a_store_that_is_killed_is_told_of_and_goes_on_when_it_is_back(
        self, bucket: Bucket, server: ObjectStore
    ) -> None:
        before = write_some()
        while not ColdFile.objects.exists():
            assert move.step(NOW)
        server.stop()
        began = time.monotonic()
        try:
            with pytest.raises(Unreachable, match=r"the cold tier, s3://.* cannot be used"):
                move_all()
            with pytest.raises(Unreachable):
                stored(samples.METER)
            with capture_logs() as logs:
                assert tasks.keep_cold_files() is False
            assert [each["event"] for each in logs] == ["cold_tier_unreachable"]
            assert time.monotonic() - began < 30
        finally:
            server.start()
        assert stored(samples.METER) == before
        assert move_all()
        assert stored(samples.METER) == before
        assert len(stored(samples.METER)) == 4 * PER_HOUR + 3

    def test_a_bucket_that_does_not_exist_is_told_of(
        self, bucket: Bucket, settings: Settings
    ) -> None:
        before = write_some()
        settings.TELEMETRY_COLD_URL = "s3://nobodys-bucket/prefix"
        places._place.cache_clear()
        with pytest.raises(Unreachable, match="nobodys-bucket"):
            move_all()
        assert stored(samples.METER) == before
