"""A reader of stores that uses nothing of ours: what docs/reference/checkpoints.md says, and zstd.

It judges what the library does, and shows that a checkpoint can be read without it.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path

import zstandard

Files = dict[str, bytes]


def whole(store: Path, run: str) -> dict[str, Files]:
    """Return the files of each checkpoint of which each byte is right, by the manifest's name."""
    found = {}
    for path in sorted((store / "manifests" / run).glob("[0-9]*.json")):
        files = files_of(store, path)
        if files is not None:
            found[path.name] = files
    return found


def files_of(store: Path, manifest: Path) -> Files | None:
    """Return the files of one checkpoint, or None where a byte is not as its name says."""
    text = manifest.read_bytes()
    if hashlib.sha256(text).hexdigest() != manifest.stem.rpartition("-")[2]:
        return None
    files = {}
    for file in json.loads(text)["files"]:
        parts = [chunk_of(store, chunk["sha256"]) for chunk in file["chunks"]]
        if None in parts:
            return None
        files[file["path"]] = b"".join(part for part in parts if part is not None)
    return files


def chunk_of(store: Path, digest: str) -> bytes | None:
    """Return the bytes of a chunk, or None where they are not those of its name."""
    path = store / "chunks" / digest[:2] / f"{digest}.zst"
    try:
        return _named(path.read_bytes(), digest)
    except FileNotFoundError:
        return None


@lru_cache(10_000)
def _named(stored: bytes, digest: str) -> bytes | None:
    try:
        data = unpacked(stored)
    except (zstandard.ZstdError, ValueError):
        return None
    return data if hashlib.sha256(data).hexdigest() == digest else None


def unpacked(stored: bytes) -> bytes:
    """Undo the packing: one frame, before which there may be the size of words."""
    word = 1
    if stored[:4] == bytes.fromhex("5b2a4d18"):
        word, stored = stored[8], stored[9:]
    data = zstandard.ZstdDecompressor().decompressobj().decompress(stored)
    count = len(data) // word
    if word not in (1, 2, 4) or not data:
        raise ValueError(word)
    planes = [data[number * count : (number + 1) * count] for number in range(word)]
    return bytes(each for one in zip(*planes, strict=True) for each in one) + data[count * word :]
