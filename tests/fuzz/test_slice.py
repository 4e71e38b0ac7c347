"""A slice of the fuzzer's requests against a real web process, and pages while a store is away."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import connection

from bench.stack import REPOSITORY, free_port
from config.up import parse, services
from tests.builders.lively import make_lively
from tests.fuzz import UNBOUNDED, corpus, running, world
from tests.fuzz.making import Identity, Maker
from tests.fuzz.schemas import Described
from tests.fuzz.sending import Sender, Sent

REQUESTS = 1_000
SEED = 2


@pytest.fixture(scope="module", autouse=True)
def collected() -> None:
    """The assets as the web service wants them, which else finds no page fit to be shown."""
    code = "import django; django.setup(); from config import preparation as p; p.collect_static()"
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True)


@contextmanager
def web(folder: Path, **environment: str) -> Iterator[str]:
    """Run the web service as ``config.up`` builds it, one process, and yield its URL."""
    port = free_port()
    options = parse(["--port", str(port), "--web-workers", "1", "--no-demo"])
    url = f"http://127.0.0.1:{port}"
    service = next(each for each in services(options, folder, url) if each.name == "web")
    log = (folder / "web.log").open("wb")
    process = subprocess.Popen(
        service.command,
        cwd=REPOSITORY,
        env=os.environ | {"LOG_LEVEL": "WARNING"} | UNBOUNDED | environment,
        stdout=log,
        stderr=log,
    )
    try:
        _wait(url)
        yield url
    finally:
        log.close()
        process.terminate()
        process.wait(30)


def _wait(url: str) -> None:
    sender, end = Sender(url), time.monotonic() + 120
    while sender.send(Sent("GET", "/healthz")).status != 200:
        assert time.monotonic() < end, "the web process does not start"
        time.sleep(0.1)
    sender.close()


@pytest.fixture
def database_url(transactional_db: None) -> str:
    """The URL of the tests' own database, for another process."""
    given = connection.settings_dict
    place = f"{given['HOST']}:{given['PORT']}"
    return f"postgresql://{given['USER']}:{given['PASSWORD']}@{place}/{given['NAME']}"


def test_no_request_brings_about_a_500_a_traceback_or_a_wait(
    database_url: str, tmp_path: Path
) -> None:
    agent = Identity(make_lively().token)
    people = world.people()
    with web(tmp_path, DATABASE_URL=database_url) as url:
        known = corpus.gather(url, people["admin"].cookie, corpus.openapi(), most_pages=60)
        assert len(known.forms) > 10
        maker = Maker(known, {**people, "agent": agent}, SEED, REQUESTS)
        report = running.run(url, maker, range(REQUESTS), threads=4)
        running.send_slow_again(url, report)
    assert report.faults == []
    assert _tracebacks(tmp_path) == []
    # They get somewhere, and not to the login page alone.
    assert report.by_status[200] > REQUESTS / 10
    assert report.by_status[400] > REQUESTS / 20


def _tracebacks(folder: Path) -> list[str]:
    text = (folder / "web.log").read_text(errors="replace")
    return [part[:3000] for part in text.split("Traceback (most recent call last)")[1:]]


def test_requests_of_a_seed_are_the_same_each_time() -> None:
    known = corpus.Corpus(
        Described(corpus.openapi(), corpus.WORDS), ["", "racks/<int:rack_id>/"], ["/"],
        [corpus.Form("/x", "post", (("a", "1"),))], [(("/api/v1/rules",), "a: 1")], ["q"],
    )  # fmt: skip
    maker = Maker(known, {"admin": Identity("t", "sessionid=s")}, 7, 200)
    # The moment of a batch is now, and a packed one has the time in it.
    made = [maker.make(n) for n in range(200)]
    again = [maker.make(n) for n in range(200)]
    alike = [(a, b) for a, b in zip(made, again, strict=True) if a.kind != "way in"]
    assert [a for a, _ in alike] == [b for _, b in alike]
    assert len({each.kind for each in made}) == 9


@pytest.mark.parametrize("away", ["DATABASE_URL", "REDIS_URL"])
def test_every_page_says_so_while_a_store_is_away(
    away: str, database_url: str, tmp_path: Path
) -> None:
    """Not a 500, and not a wait."""
    token = world.people()["admin"].token
    nobody = f"127.0.0.1:{free_port()}"
    urls = {
        "DATABASE_URL": f"postgresql://nobody:x@{nobody}/nothing",
        "REDIS_URL": f"redis://{nobody}/0",
    }
    given = {"DATABASE_URL": database_url, away: urls[away]}
    with web(tmp_path, **given) as url:
        sender = Sender(url)
        for target in ("/api/v1/projects", "/api/v1/queue", "/queue/", "/", "/jobs/x/"):
            headers = (
                (("Authorization", f"Bearer {token}"),)
                if target.startswith("/api/")
                else (("Cookie", world.people()["admin"].cookie),)
            )
            got = sender.send(Sent("GET", target, headers))
            if away == "DATABASE_URL":
                assert got.status == 503, target
                assert got.headers["retry-after"] == "5"
                assert b'"unavailable"' in got.body or b"<h1>Not available" in got.body, target
            assert got.status < 500 or got.status == 503, target
            assert got.seconds < running.MOST_SECONDS, target
        sender.close()
    assert _tracebacks(tmp_path) == []


def test_memory_that_grows_is_told() -> None:
    flat = running.Report(memory_mib=[400.0, 410.0, 415.0, 420.0, 430.0])
    grown = running.Report(memory_mib=[400.0, 410.0, 415.0, 420.0, 480.0])
    assert not flat.grew_too_much
    assert grown.grew_too_much
