from __future__ import annotations

from pathlib import Path

import pytest
from pytest_django import Settings

from config import checks

GOOD_KEY = "Zx8fJ2kQ-v0LrT5yWm3NcB7dHs9GpAe1Uo4iKq6XtYbRnDlSwF"


@pytest.fixture
def good(settings: Settings, tmp_path: Path) -> Settings:
    settings.DEBUG = False
    settings.ALLOWED_HOSTS = ["localhost"]
    settings.SECRET_KEY = GOOD_KEY
    settings.METRICS_TOKEN = "x"
    settings.BEHIND_TLS = False
    tmp_path.chmod(0o700)
    settings.STATE_DIR = tmp_path
    return settings


def _ids() -> list[str | None]:
    found = [
        checks.debug(),
        checks.secret_key(),
        checks.metrics_token(),
        checks.state_dir(),
        checks.tls(),
        checks.sign_on(),
        checks.local_login(),
        checks.roles(),
    ]
    assert all(message.hint for messages in found for message in messages)
    return [message.id for messages in found for message in messages]


def test_a_good_installation_has_nothing_to_say(good: Settings) -> None:
    assert _ids() == []


def test_debug_with_other_machines_let_in_is_an_error(good: Settings) -> None:
    good.DEBUG = True
    assert _ids() == []
    good.ALLOWED_HOSTS = ["headroom.example"]
    good.BEHIND_TLS = True
    assert _ids() == ["headroom.E001"]


@pytest.mark.parametrize("key", ["short", "a" * 60, "django-insecure-" + GOOD_KEY])
def test_a_weak_secret_key_is_an_error(good: Settings, key: str) -> None:
    good.SECRET_KEY = key
    assert _ids() == ["headroom.E002"]


def test_no_metrics_token_is_a_warning(good: Settings) -> None:
    good.METRICS_TOKEN = ""
    assert _ids() == ["headroom.W001"]


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o770, 0o702])
def test_a_state_dir_that_others_can_list_is_a_warning(
    good: Settings, tmp_path: Path, mode: int
) -> None:
    tmp_path.chmod(mode)
    assert _ids() == ["headroom.W002"]


def test_a_secret_that_others_can_read_is_a_warning(good: Settings, tmp_path: Path) -> None:
    (tmp_path / "demo-token").write_text("x")
    (tmp_path / "demo-token").chmod(0o644)
    # As root the state dir lets others pass through, since Postgres runs as somebody else.
    tmp_path.chmod(0o711)
    (message,) = checks.state_dir()
    assert "demo-token" in message.msg


def test_other_machines_without_tls_is_a_warning(good: Settings) -> None:
    good.ALLOWED_HOSTS = ["headroom.example"]
    assert _ids() == ["headroom.W003"]


@pytest.mark.parametrize(
    ("issuer", "found"),
    [
        ("https://id.example", []),
        ("http://127.0.0.1:8080/realms/x", []),
        ("http://id.example", ["headroom.E020"]),
        ("id.example", ["headroom.E020"]),
    ],
)
def test_an_issuer_has_to_be_out_of_reach_of_who_listens(
    good: Settings, issuer: str, found: list[str]
) -> None:
    good.OIDC_ISSUER = issuer
    assert _ids() == found


def test_passwords_for_emergencies_alone_want_another_way_in(good: Settings) -> None:
    good.LOCAL_LOGIN = "emergency"
    assert _ids() == ["headroom.E021"]
    good.OIDC_ISSUER, good.OIDC_CLIENT_ID = "https://id.example", "headroom"
    assert _ids() == []


def test_roles_that_need_a_second_factor_have_to_be_roles(good: Settings) -> None:
    good.SECOND_FACTOR_ROLES = ["admin", "ml-user"]
    assert _ids() == ["headroom.E022"]
