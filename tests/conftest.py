"""What all tests share. Servers and environment come before this, from ``tests.services``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module

import hypothesis
import pytest
from django.conf import settings
from django.db import connection, transaction
from pytest_django import DjangoDbBlocker
from xdist import is_xdist_worker  # type: ignore[import-untyped]
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from tests import data_sets, owner

# No example fails for being slow: on a busy machine any of them may be.
hypothesis.settings.register_profile("headroom", deadline=None)
hypothesis.settings.load_profile("headroom")
# What `make test` asks for: half as many examples where a test says no number of its own.
hypothesis.settings.register_profile("quick", deadline=None, max_examples=50)


#: Folders whose files share a server that takes half a minute to start: one process has them all.
_TOGETHER = ("tests/integration/door/",)


class _Scheduling(LoadFileScheduling):  # type: ignore[misc] # xdist has no types
    """Hands out tests file by file, and files that share a server together."""

    def _split_scope(self, nodeid: str) -> str:
        shared = (folder for folder in _TOGETHER if nodeid.startswith(folder))
        return next(shared, super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    return _Scheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Have each process import the tests from elsewhere on, before all collect them in one order.

    In a new checkout none is compiled yet, which takes longer than all else of collecting: what
    one process has compiled by then the others read. An import that fails does so again where
    pytest collects it, and is told there.
    """
    config = session.config
    if not is_xdist_worker(session) or config.args_source != config.ArgsSource.TESTPATHS:
        return
    files = sorted((config.rootpath / "tests").rglob("test_*.py"))
    process = int(config.workerinput["workerid"].removeprefix("gw"))  # type: ignore[attr-defined]
    start = len(files) * process // config.workerinput["workercount"]  # type: ignore[attr-defined]
    for file in files[start:] + files[:start]:
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(file.relative_to(config.rootpath).with_suffix("").parts))


def pytest_configure() -> None:
    # Assets as they lie in the source: nothing has to be collected before a test.
    settings.STORAGES = {
        **settings.STORAGES,
        "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
    }
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    # A hash that is slow on purpose is slow in every test.
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say aloud which tests were left out for want of published data."""
    skipped = terminalreporter.getreports("skipped")
    lines = data_sets.missing_lines(str(report.longrepr) for report in skipped)
    if lines:
        terminalreporter.section("published data", yellow=True)
        for line in lines:
            terminalreporter.line(line)


_END_OTHERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings: None) -> None:
    """The tests' database is made by the role that owns the schema, as any other is."""
    owner.speak_as_owner()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Run what is tested under the application's role, and let tests that commit be emptied.

    The audit log's triggers would refuse that TRUNCATE, as they should anywhere else. Here alone
    they are off; UPDATE and DELETE stay refused. At the end sessions may be left of processes that
    a test has just killed: Postgres takes a moment to notice.
    """
    with django_db_blocker.unblock():
        owner.hand_over()
    yield
    with django_db_blocker.unblock():
        owner.speak_as_owner()
        with connection.cursor() as cursor:
            cursor.execute(_END_OTHERS)


@pytest.fixture(scope="module")
def module_db(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """A database for what all tests of a module look at: it is undone at the module's end.

    Each test has its own transaction in that one, and undoes what it did itself.
    """
    with django_db_blocker.unblock(), transaction.atomic():
        yield
        transaction.set_rollback(True)


_PARTITIONS = """
SELECT format('%I', child.relname)
FROM pg_inherits
JOIN pg_class AS parent ON parent.oid = inhparent AND parent.relkind = 'p'
JOIN pg_class AS child ON child.oid = inhrelid
"""


@pytest.fixture(autouse=True)
def no_samples_left_behind(
    request: pytest.FixtureRequest,
) -> Iterator[None]:
    """Drop the partitions of a test that commits: Django does not know them, and leaves them."""
    yield
    marker = request.node.get_closest_marker("django_db")
    commits = "transactional_db" in request.fixturenames or "live_server" in request.fixturenames
    if not commits and not (marker and marker.kwargs.get("transaction")):
        return
    with owner.session() as session:
        if found := [name for (name,) in session.execute(_PARTITIONS).fetchall()]:
            session.execute(f"DROP TABLE {', '.join(found)}".encode())
