"""The settings against their documentation, and against values that cannot be used."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

import pytest
from django.conf import settings

from config.env import SettingError

ROOT = Path(settings.BASE_DIR)
REFERENCE = ROOT / "docs" / "reference" / "settings.md"


def _names_read() -> set[str]:
    """Return every name that settings.py and env.py ask the environment for."""
    names = set()
    for module in ("settings.py", "env.py"):
        for node in ast.walk(ast.parse((ROOT / "config" / module).read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.args
                and isinstance(node.args[0], ast.Constant)
                and ast.unparse(node.func.value) in ("env", "os.environ")
            ):
                names.add(str(node.args[0].value))
    return names


def test_the_walk_finds_settings() -> None:
    assert {"DATABASE_URL", "DEBUG", "LOG_FORMAT", "HEADROOM_STATE_DIR"} <= _names_read()


def test_every_setting_is_documented() -> None:
    documented = set(re.findall(r"^\| `([A-Z_]+)` \|", REFERENCE.read_text(), re.M))
    assert _names_read() - documented == set()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("BEHIND_TLS", "perhaps"),
        ("DATABASE_URL", "sqlite:///db"),
        ("DATABASE_URL", ""),
        ("DEBUG", "2"),
        ("LOGIN_COOLOFF_HOURS", "-1"),
        ("LOGIN_ADDRESS_LIMIT", "0"),
        ("LOGIN_FAILURE_LIMIT", "0"),
        ("LOGIN_NAME_LIMIT", "few"),
        ("LOG_FORMAT", "xml"),
        ("LOG_LEVEL", "chatty"),
        ("PROXY_COUNT", "-1"),
        ("REDIS_URL", ""),
        ("SECRET_KEY", ""),
        ("SESSION_IDLE_H", "0"),
        ("SESSION_MAX_H", "forever"),
        ("STALE_AFTER_S", "soon"),
        ("TELEMETRY_SHARDS", "none"),
    ],
)
def test_a_bad_value_stops_the_start_and_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, text: str
) -> None:
    monkeypatch.setenv("HEADROOM_STATE_DIR", str(tmp_path))
    monkeypatch.setenv(name, text)
    with pytest.raises(SettingError, match=name):
        runpy.run_path(str(ROOT / "config" / "settings.py"))


def test_the_policy_lets_nothing_inline_run() -> None:
    directives = settings.CONTENT_SECURITY_POLICY["DIRECTIVES"]
    sources = {source for listed in directives.values() for source in listed}
    assert not sources & {"'unsafe-inline'", "'unsafe-eval'", "*", "http:", "https:"}


def test_cookies_are_guarded_behind_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEHIND_TLS", "1")
    found = runpy.run_path(str(ROOT / "config" / "settings.py"))
    assert found["SESSION_COOKIE_SECURE"] is True
    assert found["CSRF_COOKIE_SECURE"] is True
    assert found["SECURE_HSTS_SECONDS"] > 0
