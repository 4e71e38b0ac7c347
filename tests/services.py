"""Pytest plugin: gives the run a Postgres and a Valkey of its own, unless URLs are given.

Loaded with `-p tests.services`, so that settings find everything in the environment. Where several
processes share the tests (`-n 2`), each has servers of its own: tests empty them.
"""

from __future__ import annotations

import gc
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import psycopg
import pytest

from config.embedded import EmbeddedError, EmbeddedServers

#: The URL of whoever owns the schema. What is tested speaks as the application's role.
OWNER_URL = "HEADROOM_TEST_OWNER_URL"
#: Names the URLs that the process that hands out the tests has set, and nobody else.
_OURS = "HEADROOM_TEST_SERVERS"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, object, object]:
    """Prepare the environment. A wrapper, since pytest-django reads settings in this hook."""
    _keep_bytecode()
    # What is made while tests are collected stays: to look through it takes a third of the time.
    gc.disable()
    for name in os.environ.pop(_OURS, "").split():
        del os.environ[name]
    folder = Path(tempfile.mkdtemp(prefix="headroom-tests-"))
    early_config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    if os.geteuid() == 0:
        # Postgres runs as another user and must reach its data inside.
        folder.chmod(0o711)
    os.environ["HEADROOM_STATE_DIR"] = str(folder / "state")
    os.environ.setdefault("SECRET_KEY", secrets.token_urlsafe(50))
    try:
        servers = EmbeddedServers(
            folder / "state",
            postgres="DATABASE_URL" not in os.environ,
            valkey="REDIS_URL" not in os.environ,
            durable=False,
        )
        servers.start()
    except EmbeddedError as error:
        raise pytest.UsageError(str(error)) from error
    early_config.add_cleanup(servers.stop)
    ours = servers.environment
    if servers.superuser_url and servers.owner_url:
        _let_make_databases(servers.superuser_url)
        ours[OWNER_URL] = servers.owner_url
    os.environ.update(ours)
    os.environ[_OURS] = " ".join(ours)
    return (yield)


def pytest_collection_finish() -> None:
    """Look for garbage from here on, and leave alone the tests, which are there to the end.

    As seldom as a worker does: it takes a tenth of what unit tests take else.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    gc.enable()


def _keep_bytecode() -> None:
    """Let this process and all that tests start write bytecode, also where the environment says no.

    Without it each process compiles all of Headroom anew, and each worker all tests.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def _let_make_databases(superuser_url: str) -> None:
    """Let the owner make the tests' database, and end the sessions that are left in it."""
    with psycopg.connect(superuser_url) as connection:
        connection.execute("ALTER ROLE headroom_owner CREATEDB")
        connection.execute("GRANT pg_signal_backend TO headroom_owner")
