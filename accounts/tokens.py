"""Bearer tokens: made of 256 random bits, shown once, kept as a SHA-256 digest.

A slow password hash would add nothing: a token cannot be guessed from a dictionary, and the ingest
path checks one on every batch.
"""

from __future__ import annotations

import hashlib
import secrets

USER_PREFIX = "hru_"
AGENT_PREFIX = "hra_"


def generate(prefix: str) -> str:
    """Return a new token. It is not stored anywhere: show it once, keep :func:`digest` of it."""
    return prefix + secrets.token_urlsafe(32)


def digest(token: str) -> bytes:
    """Return the 32 bytes that are stored in the token's place."""
    return hashlib.sha256(token.encode()).digest()


def hint(token: str) -> str:
    """Return the first few characters, by which a person can tell tokens apart."""
    return token[:8]


def from_header(header: str) -> str:
    """Return the token of an ``Authorization: Bearer …`` header, or an empty string."""
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
