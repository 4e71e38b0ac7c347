from __future__ import annotations

import pytest

from accounts import tokens


def test_tokens_differ_and_say_what_they_are_for() -> None:
    first, second = (tokens.generate(tokens.USER_PREFIX) for _ in range(2))
    assert first != second
    assert first.startswith("hru_")
    assert len(first) == len("hru_") + 43


def test_the_hint_gives_too_little_away_to_guess_from() -> None:
    token = tokens.generate(tokens.USER_PREFIX)
    assert token.startswith(tokens.hint(token))
    assert len(tokens.hint(token)) - len(tokens.USER_PREFIX) == 4


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer  abc ", "abc"),
        ("Basic abc", ""),
        ("Bearer", ""),
        ("", ""),
        ("abc", ""),
    ],
)
def test_the_header_is_read(header: str, token: str) -> None:
    assert tokens.from_header(header) == token
