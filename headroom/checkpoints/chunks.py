"""Chunks: where content is cut, what a chunk is called, and how it is stored.

A stored chunk is a Zstandard frame that any tool opens. Before it there may be a skippable frame of
one byte: the number of bytes in a word, where the words' first bytes are stored first, then their
second ones, and so on. Of floating-point numbers that is smaller, for exponents are alike.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from io import BytesIO, RawIOBase
from typing import NamedTuple

import numpy as np
import zstandard

from headroom.checkpoints.errors import Damaged

__all__ = [
    "LEAST",
    "MOST",
    "SIZES",
    "Buffers",
    "Sizes",
    "digest_of",
    "packed",
    "pieces",
    "unpacked",
]


class Sizes(NamedTuple):
    """The least, the usual and the greatest size of a chunk, in bytes."""

    least: int
    usual: int
    most: int


SIZES = Sizes(least=1 << 20, usual=4 << 20, most=16 << 20)
LEAST, _, MOST = SIZES

#: Bytes that decide on a cut, and how many are looked at together: they fit a processor's cache.
_WINDOW, _LOOK = 8, 256 << 10
#: Odd numbers that spread a window over all of 32 bits, and what keeps zeros from being a cut.
_FIRST, _SECOND, _OFFSET = np.uint32(0x9E3779B1), np.uint32(0x85EBCA77), np.uint32(0x5851F42D)

#: Of a chunk, how much is tried, and by how much less words have to need to be taken apart.
_SAMPLE, _WORTH_IT = 64 << 10, 0.98
_WORDS = (2, 4)
_SKIPPABLE = struct.Struct("<IIB")
_MAGIC = 0x184D2A5B


def pieces(file: RawIOBase | BytesIO, sizes: Sizes = SIZES) -> Iterator[bytes]:
    """Yield the content of ``file``, cut where its content says.

    A piece ends after eight bytes whose hash is small, so that equal stretches of two files are cut
    alike wherever they lie. It has ``sizes.least`` to ``sizes.most`` bytes; the last may have less.
    """
    held = np.empty(2 * sizes.most, np.uint8)
    start = end = 0
    is_over = False
    while True:
        if end - start < sizes.most and not is_over:
            # They do not overlap: no more than half of it is left.
            held[: end - start] = held[start:end]
            start, end = 0, end - start
            end, is_over = _filled(file, held, end)
        if start == end:
            return
        size = _first_cut(held[start : min(end, start + sizes.most)], sizes)
        yield held[start : start + size].tobytes()
        start += size


def _filled(file: RawIOBase | BytesIO, held: np.ndarray, end: int) -> tuple[int, bool]:
    """Read until ``held`` is full or the file over; return where it ends, and which of both."""
    while end < len(held):
        count = file.readinto(held[end:].data)
        if not count:
            return end, True
        end += count
    return end, False


def _first_cut(data: np.ndarray, sizes: Sizes) -> int:
    """Return the size of the piece with which ``data`` begins."""
    below = np.uint32((1 << 32) // (sizes.usual - sizes.least))
    for start in range(sizes.least - _WINDOW, len(data) - _WINDOW + 1, _LOOK):
        found = _hits(data[start : start + _LOOK + _WINDOW - 1], below)
        if found is not None:
            return start + found + _WINDOW
    return len(data)


def _hits(data: np.ndarray, below: np.uint32) -> int | None:
    """Return where the first window with a hash under ``below`` begins."""
    least = None
    for offset in range(4):
        words = data[offset : offset + (len(data) - offset) // 4 * 4].view("<u4")
        hashes = words[:-1] * _FIRST
        hashes += words[1:] * _SECOND
        hashes += _OFFSET
        is_hit = hashes < below
        first = int(is_hit.argmax()) if len(is_hit) else 0
        if len(is_hit) and is_hit[first]:
            at = offset + 4 * first
            least = at if least is None else min(least, at)
    return least


def digest_of(data: bytes | memoryview) -> str:
    """Return the SHA-256 of ``data``, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def packed(data: bytes, level: int = 1) -> bytes:
    """Return ``data`` as it is stored."""
    word = _best_word(data)
    frame = zstandard.ZstdCompressor(level=level).compress(_apart(data, word))
    return frame if word == 1 else _SKIPPABLE.pack(_MAGIC, 1, word) + frame


class Buffers:
    """Memory that is unpacked into again and again: fresh memory takes longer than the unpacking.

    For one thread. What lies in it is there until the next chunk is unpacked.
    """

    def __init__(self) -> None:
        self._plain = self._joined = np.empty(0, np.uint8)

    def plain(self, size: int) -> np.ndarray:
        """Return ``size`` bytes for what comes out of the frame."""
        if len(self._plain) < size:
            self._plain = np.empty(size, np.uint8)
        return self._plain[:size]

    def joined(self, size: int) -> np.ndarray:
        """Return ``size`` bytes for words that are put together again."""
        if len(self._joined) < size:
            self._joined = np.empty(size, np.uint8)
        return self._joined[:size]


def unpacked(stored: bytes, size: int, buffers: Buffers | None = None) -> memoryview:
    """Return the ``size`` bytes that were stored, in ``buffers``. Raises :class:`Damaged`."""
    buffers, frame, word = buffers or Buffers(), memoryview(stored), 1
    if len(stored) > _SKIPPABLE.size and stored[:4] == _MAGIC.to_bytes(4, "little"):
        word = stored[_SKIPPABLE.size - 1]
        frame = frame[_SKIPPABLE.size :]
    try:
        # Asked before: a damaged frame may claim to be of any size.
        if zstandard.frame_content_size(frame) != size or word not in (1, *_WORDS):
            raise Damaged(f"it does not hold {size} bytes")
        data = buffers.plain(size)
        if _decompressed(frame, data) < size:
            raise Damaged(f"it ends before {size} bytes")
    except zstandard.ZstdError as error:
        raise Damaged(f"it cannot be unpacked: {error}") from None
    return _together(data, word, buffers).data


def _decompressed(frame: memoryview, data: np.ndarray) -> int:
    """Fill ``data`` from a frame; return how much of it there was."""
    filled = 0
    with zstandard.ZstdDecompressor().stream_reader(frame) as reader:
        while filled < len(data) and (count := reader.readinto(data[filled:].data)):
            filled += count
    return filled


def _best_word(data: bytes) -> int:
    """Return by words of which size ``data`` is stored best, from a sample of it."""
    start = max(0, (len(data) - _SAMPLE) // 2)
    sample = data[start : start + _SAMPLE]
    compressor = zstandard.ZstdCompressor(level=1)
    best, least = 1, _WORTH_IT * len(compressor.compress(sample))
    for word in _WORDS:
        taken = _apart(sample, word)
        # One by one, for in a whole chunk each of these parts has blocks of its own.
        part = max(1, len(taken) // word)
        parts = (taken[at : at + part] for at in range(0, len(taken), part))
        size = sum(len(compressor.compress(each)) for each in parts)
        if size < least:
            best, least = word, size
    return best


def _apart(data: bytes, word: int) -> bytes | memoryview:
    """Return the first bytes of all words, then the second ones, …; and what is left at the end."""
    whole = len(data) // word * word
    if word == 1 or not whole:
        return data
    given = np.frombuffer(data, np.uint8)
    parted = np.empty(len(data), np.uint8)
    parted[:whole].reshape(word, -1)[:] = given[:whole].reshape(-1, word).T
    parted[whole:] = given[whole:]
    return parted.data


def _together(stored: np.ndarray, word: int, buffers: Buffers) -> np.ndarray:
    """Undo :func:`_apart`."""
    whole = len(stored) // word * word
    if word == 1 or not whole:
        return stored
    joined = buffers.joined(len(stored))
    table = joined[:whole].reshape(-1, word)
    # A transposed copy takes six times as long.
    for number, plane in enumerate(stored[:whole].reshape(word, -1)):
        table[:, number] = plane
    joined[whole:] = stored[whole:]
    return joined
