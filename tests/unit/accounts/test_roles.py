from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.apps import apps
from django.conf import settings

from accounts.models import User
from accounts.roles import CAPABILITIES, MODEL_CAPABILITIES, Capability, Role

REFERENCE = Path(settings.BASE_DIR) / "docs" / "reference" / "roles.md"


def test_every_role_has_its_capabilities() -> None:
    assert set(CAPABILITIES) == set(Role)


@pytest.mark.parametrize("role", Role)
def test_everybody_may_view_and_only_admins_manage_users(role: Role) -> None:
    user = User(role=role)
    assert user.can(Capability.VIEW_FLEET)
    assert user.can(Capability.MANAGE_USERS) is (role == Role.ADMIN)


@pytest.mark.parametrize("role", [Role.VIEWER, Role.ML_USER, Role.RESPONDER])
def test_only_operators_and_admins_change_the_fleet(role: Role) -> None:
    assert not User(role=role).can(Capability.EDIT_FLEET)
    assert not User(role=role).can(Capability.MANAGE_AGENTS)
    assert User(role=Role.OPERATOR).can(Capability.EDIT_FLEET)


def test_an_inactive_admin_may_nothing() -> None:
    assert User(role=Role.ADMIN, is_active=False).capabilities == frozenset()


def test_the_admin_site_knows_a_capability_for_each_of_our_apps() -> None:
    ours = {"accounts", "fleet", "telemetry"}
    parts = {
        app.label
        for app in apps.get_app_configs()
        if app.name.startswith(("policies.", "admission."))
    }
    assert set(MODEL_CAPABILITIES) == ours | parts


def test_the_reference_shows_the_same_table() -> None:
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", REFERENCE.read_text(), re.M)
    documented = {
        capability: [cell.strip() == "yes" for cell in cells.split("|")]
        for capability, cells in rows
    }
    assert documented == {
        capability.value: [capability in CAPABILITIES[role] for role in Role]
        for capability in Capability
    }
