"""Typed reading of settings from the environment. A value that cannot be used stops the start."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

TRUE = frozenset({"1", "true", "yes", "on"})
FALSE = frozenset({"0", "false", "no", "off"})


class SettingError(Exception):
    """A setting is missing or cannot be read."""


def state_dir(base: Path) -> Path:
    """Return the folder of one installation's state: data, secrets, logs."""
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


def cold_url() -> str:
    """Return where the cold tier lies: nothing, a folder, or ``s3://bucket/prefix``.

    A value that holds a secret is not repeated: it may have been meant to.
    """
    url = _text("TELEMETRY_COLD_URL")
    parts = urlsplit(url)
    if parts.scheme not in ("", "file", "s3"):
        raise SettingError(
            f"TELEMETRY_COLD_URL begins with {parts.scheme}://: write a folder, or s3://bucket/prefix"
        )
    if parts.scheme != "s3":
        return url
    if "@" in parts.netloc or parts.query:
        raise SettingError(
            "TELEMETRY_COLD_URL is s3://bucket/prefix and nothing else: credentials and endpoint go"
            " into AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL"
        )
    if not parts.netloc:
        raise SettingError("TELEMETRY_COLD_URL names no bucket: write s3://bucket/prefix")
    return url


def s3_endpoint_url() -> str:
    """Return the address of an S3-compatible store, empty for Amazon's."""
    url = _text("AWS_ENDPOINT_URL")
    parts = urlsplit(url)
    if url and (parts.scheme not in ("http", "https") or not parts.netloc):
        raise SettingError("AWS_ENDPOINT_URL is no address: write https://store.example.com:9000")
    if parts.scheme == "http" and not boolean("AWS_ALLOW_HTTP", False):
        raise SettingError(
            "AWS_ENDPOINT_URL is plain HTTP, by which anybody on the way reads along: write https://,"
            " or set AWS_ALLOW_HTTP=true"
        )
    return url


def load_env_file(path: Path) -> None:
    """Set variables from the lines ``NAME=value`` of ``path`` that the environment does not set.

    The supervisor writes the file, so that ``manage.py`` finds the running servers from any shell.
    """
    if not path.exists():
        return
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise SettingError(f"{path} is damaged: it is not text. Mend it or move it away") from None
    for line in text.splitlines():
        name, separator, value = line.partition("=")
        if separator and not name.startswith("#"):
            os.environ.setdefault(name.strip(), value.strip())


#: Every setting that was asked for, by whoever reads settings.
_asked: set[str] = set()
#: Where these begin a name, it is likely to be meant for us.
_OURS = (
    "ALLOWED_", "CSRF_", "DATABASE_", "DISK_", "EMAIL_", "HEADROOM_", "INCIDENT_", "JOB_",
    "LIMITS_", "LOGIN_", "LOG_", "METRICS_", "NOTIFY_", "POLICY_", "REDIS_", "SECRET_", "STALE_",
    "TELEMETRY_", "WATCHDOG_", "WORK_",
)  # fmt: skip


def misspelt(names: Iterable[str]) -> dict[str, str]:
    """Return the unknown ones of ``names``, each with the setting that was likely meant.

    What is not close to any setting is somebody else's.
    """
    found = {}
    for name in sorted(names):
        if name.startswith(_OURS) and name not in _asked:
            close = difflib.get_close_matches(name, _asked, n=1, cutoff=0.85)
            if close:
                found[name] = close[0]
    return found


def _text(name: str, default: str = "") -> str:
    """Return the value of a setting in the environment; its name is known from then on."""
    _asked.add(name)
    return os.environ.get(name, default)


def required(name: str, hint: str) -> str:
    """Return the setting, or stop with the way out."""
    value = _text(name)
    if not value:
        raise SettingError(f"{name} is not set: {hint}")
    return value


def string(name: str, default: str) -> str:
    return _text(name, default)


def boolean(name: str, default: bool) -> bool:
    value = _text(name).strip().lower()
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
    text = _text(name).strip()
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
    text = _text(name).strip() or default
    for value in allowed:
        if value.lower() == text.lower():
            return value
    raise SettingError(f"{name}={text!r} is unknown: one of {', '.join(allowed)}")


def strings(name: str, default: list[str]) -> list[str]:
    """Return a comma-separated list."""
    _asked.add(name)
    text = os.environ.get(name)
    return default if text is None else [part.strip() for part in text.split(",") if part.strip()]


def pairs(name: str) -> dict[str, str]:
    """Return ``name=value,…`` with values percent-encoded, as OpenTelemetry has headers.

    What is wrong is told without the values, which may be secret.
    """
    found = {}
    for place, part in enumerate(strings(name, []), 1):
        key, is_pair, value = part.partition("=")
        if not is_pair or not key.strip():
            raise SettingError(f"{name}: part {place} is not name=value")
        found[key.strip()] = unquote(value.strip())
    return found


#: What libpq takes in a URL and an installation may want; what else Django sets itself.
_DATABASE_PARAMETERS = frozenset(
    {
        "application_name", "channel_binding", "connect_timeout", "gssencmode", "keepalives",
        "keepalives_count", "keepalives_idle", "keepalives_interval", "load_balance_hosts",
        "require_auth", "sslcert", "sslcrl", "sslkey", "sslmode", "sslnegotiation", "sslrootcert",
        "target_session_attrs", "tcp_user_timeout",
    }
)  # fmt: skip
#: A server that went away without a word is given up by then: s, s, s and ms.
_GIVE_UP = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "2",
    "tcp_user_timeout": "15000",
}


def database(url: str) -> dict[str, object]:
    """Return Django's description of ``postgresql://user:password@host:port/name?parameters``.

    Of several hosts (``h1:5432,h2:5433``) the first is taken that takes writes.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("postgres", "postgresql"):
        raise SettingError(
            f"DATABASE_URL starts with {parts.scheme!r}: only postgresql:// is known"
        )
    name = parts.path.lstrip("/")
    if not name:
        raise SettingError("DATABASE_URL names no database: postgresql://user@host:5432/headroom")
    login, _, places = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    hosts, ports = _hosts(places)
    parameters = _parameters(parts.query)
    several = {"target_session_attrs": "read-write"} if len(hosts) > 1 else {}
    return {
        "ENGINE": "config.postgres",
        "NAME": unquote(name),
        "USER": unquote(user),
        "PASSWORD": unquote(password),
        "HOST": ",".join(hosts),
        "PORT": ",".join(ports) if any(ports) else "",
        "OPTIONS": {**_GIVE_UP, **several, **parameters},
    }


def _hosts(places: str) -> tuple[list[str], list[str]]:
    """Return the hosts and ports of ``h1:5432,[::1]:5433``; a port that is left out is empty."""
    hosts, ports = [], []
    for place in places.split(","):
        try:
            found = urlsplit(f"//{place}")
            port = found.port
        except ValueError as exc:
            raise SettingError(f"DATABASE_URL: {exc}: {place!r} is not host:port") from None
        if len(places) > len(place) and not found.hostname:
            raise SettingError("DATABASE_URL: a host between the commas is empty")
        hosts.append(unquote(found.hostname or ""))
        ports.append(str(port or ""))
    if len(hosts) > 1 and any(ports):
        ports = [port or "5432" for port in ports]
    return hosts, ports


def _parameters(query: str) -> dict[str, str]:
    try:
        found = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
    except ValueError:
        raise SettingError(f"DATABASE_URL: {query!r} is not name=value&name=value") from None
    if unknown := sorted(found.keys() - _DATABASE_PARAMETERS):
        raise SettingError(
            f"DATABASE_URL: the parameter {unknown[0]} is not known: one of"
            f" {', '.join(sorted(_DATABASE_PARAMETERS))}"
        )
    return found
