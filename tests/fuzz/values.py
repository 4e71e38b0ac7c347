# ruff: noqa: E501, RUF001 - lists of odd characters
"""Values that have broken servers before: texts, numbers, moments, and documents that are deep."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

TEXTS: Sequence[str] = (
    "", " ", "\0", "a\0b", "%00", "..", "../../etc/passwd", "a/b", "a//b", "-", "_", ".", "*", "~",
    "\n", "a\nb", "a\r\nX-Injected: 1", "\t", "\x07", "\x1b[31mred", "\x7f", "\x85", "\u2028",
    "\u202e", "abc\u202edcba", "\u2066x\u2069", "\u200e", "\u061c", "\ufeff", "\ufffe", "\U0010ffff",
    "\ud800", "x\udfff", "é", "e\u0301", "ß", "İ", "ﬃ", "日本語", "👩‍👩‍👧", "a" * 61, "a" * 101, "a" * 201,
    "a" * 256, "a" * 301, "é" * 300, "x" * 5_000, "'", '"', "\\", "' OR 1=1 --", "<script>", "{{7*7}}",
    "%s%s%n", "$(id)", "null", "None", "true", "NaN", "undefined", "[]", "{}", "a,b,,c", "a=b&c=d",
    "(?:a+)+$", "(" * 50, "[", "a|" * 100, "(a*)*b", r"\d{1000}{1000}", "javascript:alert(1)",
    "http://127.0.0.1:1/", "http://169.254.169.254/latest", "https://[::1", "//x", "mailto:x@y",
)  # fmt: skip

WHOLE_NUMBERS: Sequence[int] = (
    0, 1, -1, 2, 7, 100, 255, 256, 32_767, 32_768, 65_535, 65_536, 2**31 - 1, 2**31, -(2**31) - 1,
    2**32, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**18, 10**19, 10**30, 10**320, -(10**30),
)  # fmt: skip
NUMBERS: Sequence[float] = (
    0.0, -0.0, 0.5, 1.5, -1.0, 1e-9, 5e-324, 1e9, 1e15, 1e18, 1e19, 1e30, 1e200, 1.7e308, -1.7e308,
    float("nan"), float("inf"), float("-inf"),
)  # fmt: skip
#: How a number may be written where it is a text.
DIGITS: Sequence[str] = (
    "0", "1", "-1", "+1", " 1", "1 ", "01", "0" * 30, "0" * 5_000, "0" * 20 + "1", "9" * 20, "9" * 5_000,
    "1.0", "1e3", "1e400", "-1e400", "nan", "inf", "-Infinity", "0x10", "1_000", "1,000", "٣", "９", "²",
    "½", "৪২", str(2**31), str(2**63 - 1), str(2**63), str(-(2**63) - 1), "1000000001", "", "\0", "1\0",
)  # fmt: skip
MOMENTS: Sequence[str] = (
    "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "0001-01-01", "9999-12-31", "2024-02-30",
    "0000-00-00", "2024-01-01T00:00:00+99:99", "2024-01-01T24:00:00Z", "2024-06-30T23:59:60Z",
    "2024-01-01T00:00:00+24:00", "2024-W01-1", "20240101T000000Z", "2024-01-01 00:00", "12:00", "now",
    "2024-01-01T00:00:00.123456789Z", "-0001-01-01", "+12024-01-01", "1e400", "-62135596801", "0", "-1",
    "253402300800", "99999999999999999999", "1700000000", "1700000000.5", "nan", "inf", "٢٠٢٤-٠١-٠١",
    "2026-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "", "\0",
)  # fmt: skip
SPANS: Sequence[str] = (
    "15m",
    "1h",
    "2d",
    "0s",
    "-1h",
    "1e9d",
    "9" * 30 + "d",
    "h",
    "1",
    "1 h",
    "١h",
)

#: What opens a level, and closes it, in each language that is read.
_LEVELS: Sequence[tuple[bytes, bytes, bytes]] = (
    (b"[", b"", b"]"),
    (b'{"a":', b"1", b"}"),
    (b'[{"a":', b"1", b"}]"),
    (b'{"nodes":[', b"", b"]}"),
    (b"- ", b"x", b""),
    (b"\x91", b"\xc0", b""),
    (b"\x81\xa1a", b"\xc0", b""),
    (b"(", b"1", b")"),
    (b"!", b"true", b""),
    (b"\x0a\x7f", b"", b""),
)


def deep(rng: Random) -> bytes:
    """Return a document that is nested thousands deep, closed or left open."""
    opening, inside, closing = rng.choice(_LEVELS)
    depth = rng.choice((60, 200, 900, 1_100, 5_000, 60_000))
    whole = rng.random() < 0.5
    return opening * depth + inside + (closing * depth if whole else b"")


def text(rng: Random) -> str:
    return rng.choice((TEXTS, TEXTS, DIGITS, MOMENTS, SPANS)[rng.randrange(5)])


def anything(rng: Random, depth: int = 0) -> Any:
    """Return a value that JSON has, of any kind."""
    kind = rng.randrange(8 if depth < 3 else 6)
    if kind == 0:
        return rng.choice((None, True, False))
    if kind == 1:
        return rng.choice(WHOLE_NUMBERS)
    if kind == 2:
        return rng.choice(NUMBERS)
    if kind < 6:
        return text(rng)
    if kind == 6:
        return [anything(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {text(rng): anything(rng, depth + 1) for _ in range(rng.randrange(4))}


def mutated(document: Any, rng: Random) -> Any:
    """Return a copy of a document in which one place holds something else, or is gone."""
    if isinstance(document, dict) and document and rng.random() < 0.9:
        name = rng.choice(sorted(document))
        changed = dict(document)
        if rng.random() < 0.15:
            del changed[name]
        else:
            changed[name] = mutated(document[name], rng)
        if rng.random() < 0.05:
            changed[text(rng)] = anything(rng)
        return changed
    if isinstance(document, list) and document and rng.random() < 0.9:
        place = rng.randrange(len(document))
        return [mutated(each, rng) if at == place else each for at, each in enumerate(document)]
    return anything(rng)


def cut(body: bytes, rng: Random) -> bytes:
    """Return the bytes with some of them changed, left out, doubled or added."""
    for _ in range(rng.randrange(1, 5)):
        at, size = rng.randrange(len(body) + 1), rng.choice((0, 1, 1, 2, 8, 64))
        junk = rng.choice((b"", rng.randbytes(rng.choice((1, 1, 2, 8))), body[at : at + size] * 2))
        body = body[:at] + junk + body[at + size :]
    return body
