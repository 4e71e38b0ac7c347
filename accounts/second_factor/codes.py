"""Codes of an authenticator app and for recovery. Pure, but for chance."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets

import pyotp
from pyotp.exceptions import OTPVerificationError

#: Codes of the 30 s before and after count too, for clocks that differ.
_WINDOW = 1
#: Of 80 random bits each: too many to be guessed, so a lock of the app does not cover them.
_RECOVERY_CODES = 10
_RECOVERY_BYTES = 10


def timecode_of(secret: str, code: str, now_s: float) -> int | None:
    """Return the number of the 30 s step of ``code``; None where it is wrong at ``now_s``."""
    try:
        return pyotp.TOTP(secret).verify_and_get_timecode(
            code, for_time=int(now_s), valid_window=_WINDOW
        )
    except OTPVerificationError:
        return None


def enrollment_uri(secret: str, username: str) -> str:
    """Return the URI in the QR code for the app."""
    return pyotp.TOTP(secret).provisioning_uri(name=username, issuer_name="Headroom")


def tidy(typed: str) -> str:
    """Return a code without the spaces and dashes that people put into it."""
    return re.sub(r"[\s-]", "", typed).lower()


def is_recovery_code(code: str) -> bool:
    """Say whether a tidy code has the form of a recovery code."""
    return len(code) == _RECOVERY_BYTES * 8 // 5


def make_recovery_codes() -> list[str]:
    """Return ten codes of 80 bits, in groups that a person can type."""
    return [_grouped(secrets.token_bytes(_RECOVERY_BYTES)) for _ in range(_RECOVERY_CODES)]


def digest(code: str) -> bytes:
    """Return the digest stored in place of a recovery code; 80 bits need no slow hash."""
    return hashlib.sha256(tidy(code).encode()).digest()


def _grouped(code: bytes) -> str:
    text = base64.b32encode(code).decode().lower()
    return "-".join(text[start : start + 4] for start in range(0, len(text), 4))
