"""Checks of the settings at start: dangerous ones stop it, doubtful ones warn."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core import checks

from accounts.roles import Role
from accounts.syslog import Receiver
from config import env, ownership

TAG = "headroom"

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]", "::1", "testserver"})
SECRET_FILES = (
    "env",
    "owner-env",
    "admin-password",
    "demo-token",
    "replay-token",
    "agent-token",
)


def register() -> None:
    """Have Django run every check of this module."""
    for check in (
        debug,
        secret_key,
        metrics_token,
        state_dir,
        tls,
        audit_syslog,
        sign_on,
        local_login,
        roles,
        misspelt,
    ):
        checks.register(check, TAG)
    checks.register(database_role, checks.Tags.database)


def debug(**_: Any) -> list[checks.CheckMessage]:
    """DEBUG shows settings and source to whoever makes a page fail."""
    if not (settings.DEBUG and _reachable_from_elsewhere()):
        return []
    return [
        checks.Error(
            "DEBUG is on while ALLOWED_HOSTS lets other machines in.",
            hint="Unset DEBUG, or keep ALLOWED_HOSTS to localhost.",
            id="headroom.E001",
        )
    ]


def secret_key(**_: Any) -> list[checks.CheckMessage]:
    """A guessable key lets anybody forge sessions, which are signed with it."""
    key = settings.SECRET_KEY
    if len(key) >= 50 and len(set(key)) >= 10 and not key.startswith("django-insecure-"):
        return []
    return [
        checks.Error(
            "SECRET_KEY is too short or too simple.",
            hint="python -c 'import secrets; print(secrets.token_urlsafe(50))'",
            id="headroom.E002",
        )
    ]


def metrics_token(**_: Any) -> list[checks.CheckMessage]:
    """Without a metrics token, Prometheus cannot log in."""
    if settings.METRICS_TOKEN:
        return []
    return [
        checks.Warning(
            "METRICS_TOKEN is empty: only people who are logged in can read /metrics.",
            hint="Set it to a random word, and give it to Prometheus as bearer token.",
            id="headroom.W001",
        )
    ]


def state_dir(**_: Any) -> list[checks.CheckMessage]:
    """Passwords and tokens lie in the state directory."""
    folder: Path = settings.STATE_DIR
    open_ones = [path for path in (folder / name for name in SECRET_FILES) if _others_may(path)]
    # Others may pass through it (as root, Postgres runs as somebody else), but not list it.
    if _others_may(folder, stat.S_IRWXG & ~stat.S_IXGRP | stat.S_IRWXO & ~stat.S_IXOTH):
        open_ones.insert(0, folder)
    if not open_ones:
        return []
    return [
        checks.Warning(
            f"Other users of this machine can read {', '.join(map(str, open_ones))}.",
            hint=f"chmod go-rw {' '.join(map(str, open_ones))}",
            id="headroom.W002",
        )
    ]


def tls(**_: Any) -> list[checks.CheckMessage]:
    """Over plain HTTP, anybody on the way reads passwords and tokens."""
    if settings.BEHIND_TLS or not _reachable_from_elsewhere():
        return []
    return [
        checks.Warning(
            "ALLOWED_HOSTS lets other machines in, but BEHIND_TLS is off.",
            hint="Put a proxy that speaks TLS in front, and set BEHIND_TLS=1 and PROXY_COUNT.",
            id="headroom.W003",
        )
    ]


def audit_syslog(**_: Any) -> list[checks.CheckMessage]:
    """A receiver of the audit log that the setting cannot reach would miss everything, silently."""
    try:
        if settings.AUDIT_SYSLOG_URL:
            Receiver.parse(settings.AUDIT_SYSLOG_URL)
    except ValueError as error:
        return [
            checks.Error(
                f"AUDIT_SYSLOG_URL: {error}.",
                hint="docs/how-to/keep-the-audit-log.md",
                id="headroom.E010",
            )
        ]
    return []


def database_role(**_: Any) -> list[checks.CheckMessage]:
    """Whoever gets hold of the application's role must not be able to rewrite the audit log."""
    found = ownership.weaknesses()
    if not found:
        return []
    return [
        checks.Warning(
            f"The application's database role {', '.join(found)}.",
            hint="Give it and the owner of the tables a role each: docs/how-to/operate.md, Roles.",
            id="headroom.W010",
        )
    ]


def sign_on(**_: Any) -> list[checks.CheckMessage]:
    """An identity provider without TLS lets anybody on the way log in as anybody."""
    issuer = urlsplit(settings.OIDC_ISSUER)
    if not settings.OIDC_ISSUER or issuer.scheme == "https" or issuer.hostname in LOOPBACK:
        return []
    return [
        checks.Error(
            f"OIDC_ISSUER is {settings.OIDC_ISSUER!r}, which is no https:// address.",
            hint="Write the issuer as the provider's discovery document has it.",
            id="headroom.E020",
        )
    ]


def local_login(**_: Any) -> list[checks.CheckMessage]:
    """Passwords for emergencies alone need an identity provider for all other logins."""
    if settings.LOCAL_LOGIN == "all" or (settings.OIDC_ISSUER and settings.OIDC_CLIENT_ID):
        return []
    return [
        checks.Error(
            "LOCAL_LOGIN is 'emergency', but there is no identity provider.",
            hint="Set OIDC_ISSUER and OIDC_CLIENT_ID, or LOCAL_LOGIN=all.",
            id="headroom.E021",
        )
    ]


def roles(**_: Any) -> list[checks.CheckMessage]:
    """A misspelt role would not need its second factor."""
    unknown = sorted(set(settings.SECOND_FACTOR_ROLES) - set(Role.values))
    if not unknown:
        return []
    return [
        checks.Error(
            f"SECOND_FACTOR_ROLES names {', '.join(unknown)}, which are no roles.",
            hint=f"Roles are {', '.join(Role.values)}.",
            id="headroom.E022",
        )
    ]


def misspelt(**_: Any) -> list[checks.CheckMessage]:
    """A setting that nobody reads leaves the default in force, without a word."""
    return [
        checks.Warning(
            f"{name} is set, but there is no such setting.",
            hint=f"Did you mean {meant}? docs/reference/settings.md has all of them.",
            id="headroom.W004",
        )
        for name, meant in env.misspelt(os.environ).items()
    ]


def _reachable_from_elsewhere() -> bool:
    return not LOOPBACK.issuperset(settings.ALLOWED_HOSTS)


def _others_may(path: Path, bits: int = stat.S_IRWXG | stat.S_IRWXO) -> bool:
    return path.exists() and bool(path.stat().st_mode & bits)
