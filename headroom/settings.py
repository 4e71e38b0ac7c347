"""Defaults of the command line for the server and the token."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from urllib.parse import urlsplit

from headroom.errors import HeadroomError

__all__ = ["DEFAULT_SERVER", "NoTokenError", "find_token"]

DEFAULT_SERVER = "http://127.0.0.1:8000"


class NoTokenError(HeadroomError):
    """No token was given: use --token-file, or put the token into HEADROOM_TOKEN."""


def find_token(
    token_file: Path | None, *, local_server: str = "", local_file: str = "demo-token"
) -> str:
    """Return the token from the file, else from ``HEADROOM_TOKEN``.

    With ``local_server`` on this machine, the token that ``make run`` leaves in ``local_file`` of
    the state folder is the last resort. Raises :class:`NoTokenError`.
    """
    if token_file is not None:
        return _read(token_file)
    if token := os.environ.get("HEADROOM_TOKEN", "").strip():
        return token
    kept = Path(os.environ.get("HEADROOM_STATE_DIR", ".headroom")) / local_file
    if local_server and _is_local(local_server) and kept.is_file():
        return _read(kept)
    raise NoTokenError


def _read(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise NoTokenError(f"the token file {path} cannot be read: {exc}") from exc
    if not token:
        raise NoTokenError(f"the token file {path} is empty")
    return token


def _is_local(server_url: str) -> bool:
    host = urlsplit(server_url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
