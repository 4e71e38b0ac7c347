"""Where content is cut, and how chunks are stored."""

from __future__ import annotations

import random
from io import BytesIO

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from headroom.checkpoints import Damaged
from headroom.checkpoints.chunks import Sizes, packed, pieces, unpacked
from tests.unit.headroom.checkpoints.builders import SMALL
from tests.unit.headroom.checkpoints.reader import unpacked as unpacked_by_others


def cut(data: bytes, sizes: Sizes = SMALL) -> list[bytes]:
    return list(pieces(BytesIO(data), sizes))


@given(st.integers(0, 2**32), st.integers(0, 60_000))
def test_pieces_are_all_of_it_within_their_sizes(seed: int, size: int) -> None:
    data = random.Random(seed).randbytes(size)
    found = cut(data)
    assert b"".join(found) == data
    assert all(SMALL.least <= len(each) <= SMALL.most for each in found[:-1])
    assert all(found)


def test_equal_stretches_are_cut_alike_wherever_they_lie() -> None:
    data = random.Random(1).randbytes(100_000)
    whole = set(cut(data))
    for before in (1, 2, 3, 4, 5, 1000):
        moved = set(cut(random.Random(2).randbytes(before) + data))
        assert len(whole & moved) >= len(whole) - 3


def test_pieces_have_the_usual_size_on_the_average() -> None:
    found = cut(random.Random(3).randbytes(4_000_000))
    assert SMALL.usual * 0.85 < 4_000_000 / len(found) < SMALL.usual * 1.15


def test_zeros_are_cut_at_the_greatest_size() -> None:
    assert {len(each) for each in cut(bytes(8 * SMALL.most))} == {SMALL.most}


_ARRAYS = {
    "float32": np.random.default_rng(1).normal(0, 0.02, 500_001).astype("<f4").tobytes(),
    "bfloat16": (np.random.default_rng(1).normal(0, 1, 500_001).astype("<f4").view("<u4") >> 16)
    .astype("<u2")
    .tobytes(),
    "odd": np.random.default_rng(1).normal(0, 1, 50_001).astype("<f4").tobytes()[3:-2],
    "text": b"step loss\n" * 9000,
    "one": b"1",
    "random": random.Random(4).randbytes(70_000),
}


@pytest.mark.parametrize("data", _ARRAYS.values(), ids=_ARRAYS)
def test_a_chunk_is_read_as_it_was_also_by_others(data: bytes) -> None:
    stored = packed(data)
    assert bytes(unpacked(stored, len(data))) == data
    assert unpacked_by_others(stored) == data


@pytest.mark.parametrize(("name", "share"), [("float32", 0.88), ("bfloat16", 0.75)])
def test_numbers_are_stored_smaller_than_by_zstd_alone(name: str, share: float) -> None:
    data = _ARRAYS[name]
    alone = len(zstandard.ZstdCompressor(level=1).compress(data))
    assert len(packed(data)) < min(alone, share * len(data))


@pytest.mark.parametrize("data", _ARRAYS.values(), ids=_ARRAYS)
def test_whatever_is_damaged_is_an_error_or_other_bytes_and_never_a_crash(data: bytes) -> None:
    stored = packed(data)
    chance = random.Random(5)
    for _ in range(60):
        hurt = bytearray(stored)
        hurt[chance.randrange(min(len(hurt), 40))] ^= 1 << chance.randrange(8)
        try:
            assert len(unpacked(bytes(hurt[: chance.randint(0, len(hurt))]), len(data))) == len(
                data
            )
        except Damaged:
            continue
