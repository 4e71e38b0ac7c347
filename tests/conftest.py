"""What all tests share. Servers and environment come before this, from ``tests.services``."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest
from django.conf import settings
from pytest_django import DjangoDbBlocker

# No example fails for being slow: on a busy machine any of them may be.
hypothesis.settings.register_profile("headroom", deadline=None)
hypothesis.settings.load_profile("headroom")


def pytest_configure() -> None:
    # Assets as they lie in the source: nothing has to be collected before a test.
    settings.STORAGES = {
        **settings.STORAGES,
        "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
    }
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    # A hash that is slow on purpose is slow in every test.
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


_END_OTHERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Let the tests' database be emptied after tests that commit, and dropped after all.

    The audit log's trigger would refuse that TRUNCATE, as it should anywhere else. Here alone it is
    off; UPDATE and DELETE stay refused. At the end sessions may be left of processes that a test
    has just killed: Postgres takes a moment to notice.
    """
    from django.db import connection

    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE accounts_auditentry DISABLE TRIGGER audit_is_not_truncated")
    yield
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(_END_OTHERS)


_PARTITIONS = """
SELECT format('%I', child.relname)
FROM pg_inherits
JOIN pg_class AS parent ON parent.oid = inhparent AND parent.relkind = 'p'
JOIN pg_class AS child ON child.oid = inhrelid
"""


@pytest.fixture(autouse=True)
def no_samples_left_behind(
    request: pytest.FixtureRequest, django_db_blocker: DjangoDbBlocker
) -> Iterator[None]:
    """Drop the partitions of a test that commits: Django does not know them, and leaves them."""
    yield
    marker = request.node.get_closest_marker("django_db")
    commits = "transactional_db" in request.fixturenames or "live_server" in request.fixturenames
    if not commits and not (marker and marker.kwargs.get("transaction")):
        return
    from django.db import connection

    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(_PARTITIONS)
        if found := [name for (name,) in cursor.fetchall()]:
            cursor.execute(f"DROP TABLE {', '.join(found)}")
