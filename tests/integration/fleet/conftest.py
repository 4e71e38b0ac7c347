from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.test import Client

from accounts.models import User
from accounts.roles import Role
from fleet import snapshot
from fleet.inventory import Plan, apply, parse, plan, read_state
from tests.builders.accounts import make_token

ClientOf = Callable[[Role], Client]


@pytest.fixture(autouse=True)
def fresh_snapshot() -> Iterator[None]:
    """A cache that does not remember the last test's database."""
    snapshot.invalidate()
    yield
    snapshot.invalidate()


@pytest.fixture
def client_of(db: None) -> ClientOf:
    """Clients of the REST API by role, with a token each."""

    def make(role: Role) -> Client:
        user = User.objects.create_user(f"a-{role}", role=role)
        secret = make_token(user)
        return Client(headers={"Authorization": f"Bearer {secret}"})

    return make


@pytest.fixture
def operator(client_of: ClientOf) -> Client:
    return client_of(Role.OPERATOR)


def import_fleet(text: str, *, prune_sites: bool = False) -> Plan:
    """Plan and apply an inventory, and return what was done."""
    todo = plan(parse(text), read_state(), prune_sites=prune_sites)
    apply(todo, "test")
    return todo
