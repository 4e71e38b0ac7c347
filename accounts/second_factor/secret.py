"""Secrets of authenticators: made, and encrypted for the database under a key of SECRET_KEY.

So a copy of the database alone shows no codes. Who has SECRET_KEY too can make them.
"""

from __future__ import annotations

import base64

import pyotp
from cryptography.fernet import Fernet, InvalidToken
from django.utils.crypto import salted_hmac

__all__ = ["InvalidToken", "make", "opened", "sealed"]


def make() -> str:
    """Return a new secret, 160 bits in base32."""
    return pyotp.random_base32()


def sealed(secret: str) -> bytes:
    """Return ``secret`` encrypted, as it is kept."""
    return _cipher().encrypt(secret.encode())


def opened(kept: bytes | memoryview) -> str:
    """Return the secret that :func:`sealed` encrypted. InvalidToken under another SECRET_KEY."""
    return _cipher().decrypt(bytes(kept)).decode()


def _cipher() -> Fernet:
    key = salted_hmac("accounts.second_factor.secret", "key", algorithm="sha256").digest()
    return Fernet(base64.urlsafe_b64encode(key))
