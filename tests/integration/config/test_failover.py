"""Another server takes the place of the one that Django is connected to."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections
from django.db.utils import ConnectionHandler

from config import env
from tests.integration.faults.replicated import replicated


def handler(url: str) -> ConnectionHandler:
    return ConnectionHandler(
        {"default": {**env.database(url), "CONN_HEALTH_CHECKS": True, "CONN_MAX_AGE": 600}}
    )


@pytest.mark.django_db
def test_a_connection_to_a_server_that_only_reads_is_given_up() -> None:
    connection = connections["default"]
    connection.ensure_connection()
    assert connection.is_usable()


@pytest.mark.django_db
def test_django_finds_the_server_that_takes_writes_and_loses_no_commit() -> None:
    with replicated() as pair:
        connection: Any = handler(pair.url)["default"]
        try:
            with connection.cursor() as cursor:
                cursor.execute("CREATE TABLE kept (id int)")
                cursor.execute("INSERT INTO kept VALUES (1)")
            pair.fail_over()
            # As between two requests, or two tasks.
            connection.close_if_unusable_or_obsolete()
            connection.health_check_done = False
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO kept VALUES (2)")
                cursor.execute("SELECT id FROM kept ORDER BY id")
                assert cursor.fetchall() == [(1,), (2,)]
        finally:
            connection.close()


@pytest.mark.django_db
def test_a_standby_alone_is_no_server() -> None:
    with replicated() as pair:
        connection = handler(pair._one(1))["default"]
        try:
            connection.ensure_connection()
            assert not connection.is_usable()
        finally:
            connection.close()
