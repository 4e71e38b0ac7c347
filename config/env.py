"""Typed reading of settings from the environment. A value that cannot be used stops the start."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

TRUE = frozenset({"1", "true", "yes", "on"})
FALSE = frozenset({"0", "false", "no", "off"})


class SettingError(Exception):
    """A setting is missing or cannot be read."""


def state_dir(base: Path) -> Path:
    """Return the folder that holds what one installation keeps: data, secrets, logs."""
    return Path(os.environ.get("HEADROOM_STATE_DIR") or base / ".headroom").resolve()


def storage_folders(state: Path, cold_url: str) -> dict[str, Path]:
    """Return the folders of this machine that are written to, by name.

    The embedded Postgres notes in the state folder where its data lies.
    """
    found = {"state": state}
    with suppress(OSError, ValueError, KeyError):
        record = json.loads((state / "postgres.json").read_text(encoding="utf-8"))
        found["postgres"] = state / str(record["data_dir"])
    parts = urlsplit(cold_url)
    if parts.scheme in ("", "file"):
        found["cold"] = Path(unquote(parts.path)) if cold_url else state / "cold"
    return found


def load_env_file(path: Path) -> None:
    """Set what ``path`` says (lines of ``NAME=value``) and the environment does not.

    The supervisor writes the file, so that ``manage.py`` finds the running servers from any shell.
    """
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        name, separator, value = line.partition("=")
        if separator and not name.startswith("#"):
            os.environ.setdefault(name.strip(), value.strip())


def required(name: str, hint: str) -> str:
    """Return the setting, or stop with the way out."""
    value = os.environ.get(name, "")
    if not value:
        raise SettingError(f"{name} is not set: {hint}")
    return value


def string(name: str, default: str) -> str:
    return os.environ.get(name, default)


def boolean(name: str, default: bool) -> bool:
    value = os.environ.get(name, "").strip().lower()
    if not value:
        return default
    if value in TRUE:
        return True
    if value in FALSE:
        return False
    raise SettingError(f"{name}={value!r} is neither true nor false: write 1 or 0")


def integer(name: str, default: int, *, at_least: int) -> int:
    return int(_number(name, default, at_least, int))


def decimal(name: str, default: float, *, at_least: float) -> float:
    return _number(name, default, at_least, float)


def _number(name: str, default: float, at_least: float, kind: type[int] | type[float]) -> float:
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    try:
        value = kind(text)
    except ValueError:
        raise SettingError(f"{name}={text!r} is not a number") from None
    if not value >= at_least:
        raise SettingError(f"{name}={text} is too small: at least {at_least}")
    return value


def choice(name: str, default: str, allowed: Sequence[str]) -> str:
    """Return one of ``allowed``, whatever the case in which it is written."""
    text = os.environ.get(name, "").strip() or default
    for value in allowed:
        if value.lower() == text.lower():
            return value
    raise SettingError(f"{name}={text!r} is unknown: one of {', '.join(allowed)}")


def strings(name: str, default: list[str]) -> list[str]:
    """Return a comma-separated list."""
    text = os.environ.get(name)
    return default if text is None else [part.strip() for part in text.split(",") if part.strip()]


def database(url: str) -> dict[str, object]:
    """Return Django's description of the database at ``postgresql://user:password@host:port/name``."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgres", "postgresql"):
        raise SettingError(
            f"DATABASE_URL starts with {parts.scheme!r}: only postgresql:// is known"
        )
    name = parts.path.lstrip("/")
    if not name:
        raise SettingError("DATABASE_URL names no database: postgresql://user@host:5432/headroom")
    try:
        port = parts.port
    except ValueError as exc:
        raise SettingError(f"DATABASE_URL: {exc}") from None
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(name),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(port or ""),
    }
