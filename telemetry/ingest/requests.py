"""Steps common to all ingest endpoints: authentication, reading, and decompression."""

from __future__ import annotations

import threading
import zlib

import zstandard
from django.http import HttpRequest

from accounts import tokens
from headroom.contracts import MAX_BATCH_BYTES
from telemetry.directory import AgentScope, scope_of
from telemetry.ingest.errors import Unauthorized, UnsupportedType, malformed, too_large

__all__ = ["agent_of", "authenticate", "decompress", "read"]


def authenticate(request: HttpRequest) -> AgentScope:
    """Return the scope of the agent whose token the request has."""
    return agent_of(request.META.get("HTTP_AUTHORIZATION", ""))


def agent_of(authorization: str) -> AgentScope:
    """Return the scope of the agent whose token an Authorization header has."""
    scope = scope_of(tokens.from_header(authorization))
    if scope is None:
        raise Unauthorized(
            "unauthorized",
            "no agent has this token, or it was revoked",
            field="Authorization",
            hint="send 'Authorization: Bearer hra_…'; the Agents page gives out tokens",
        )
    return scope


def read(request: HttpRequest) -> bytes:
    """Return the body, which is not read at all where it is over the limit."""
    if _announced_bytes(request) > MAX_BATCH_BYTES:
        raise too_large()
    return request.read()


def _announced_bytes(request: HttpRequest) -> int:
    """Return Content-Length; 0, as Django takes it, where there is none or it is no number."""
    try:
        return int(request.META.get("CONTENT_LENGTH") or 0)
    except ValueError:
        return 0


def decompress(body: bytes, encoding: str) -> bytes:
    """Undo ``encoding``, never making more than the limit out of a small body."""
    try:
        match encoding.strip().lower():
            case "" | "identity":
                return body
            case "gzip":
                unpack = zlib.decompressobj(wbits=31)
                plain = unpack.decompress(body, MAX_BATCH_BYTES + 1)
                complete = unpack.eof
            case "zstd":
                plain, complete = _unpack_zstd(body), True
            case other:
                raise UnsupportedType(
                    "unsupported_content_encoding",
                    f"Content-Encoding {other!r} is not known",
                    field="Content-Encoding",
                    hint="send gzip, zstd, or no encoding",
                )
    except (zlib.error, zstandard.ZstdError) as exc:
        raise malformed(encoding, str(exc)) from exc
    if len(plain) > MAX_BATCH_BYTES:
        raise too_large()
    if not complete:
        raise malformed(encoding, "it ends too early")
    return plain


def _unpack_zstd(body: bytes) -> bytes:
    """Return the content of a zstd frame, or a little more than the limit of one that has more."""
    size = zstandard.frame_content_size(body)
    if size > MAX_BATCH_BYTES:
        raise too_large()
    if size >= 0:
        return _own_decompressor().decompress(body)
    # The frame does not tell its size. Room for the largest batch is dear, so only here.
    with zstandard.ZstdDecompressor().stream_reader(body) as reader:
        return reader.read(MAX_BATCH_BYTES + 1)


_own = threading.local()


def _own_decompressor() -> zstandard.ZstdDecompressor:
    """Return this thread's decompressor: to make one takes as long as to use it."""
    made: zstandard.ZstdDecompressor | None = getattr(_own, "decompressor", None)
    if made is None:
        made = _own.decompressor = zstandard.ZstdDecompressor()
    return made
