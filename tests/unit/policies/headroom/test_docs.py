"""The reference has every field, token and parameter, as the code has them."""

from __future__ import annotations

import re
from pathlib import Path

from policies.headroom.binding import Token
from policies.headroom.columns import FIELDS, Field

PAGE = (Path(__file__).parents[4] / "docs" / "reference" / "headroom.md").read_text()


def section(heading: str) -> str:
    """Return the rows of the table under a heading."""
    return PAGE.split(f"\n## {heading}\n")[1].partition("\n## ")[0]


def test_every_field_is_described_as_it_is_and_no_other() -> None:
    kinds: dict[str, tuple[Field, list[str]]] = {}
    for kind, fields in FIELDS.items():
        for name, field in fields.items():
            kinds.setdefault(name, (field, []))[1].append(f"`{kind}`")
    expected = [
        f"| `{name}` | {field.unit} | {'all' if len(of) == len(FIELDS) else ', '.join(of)} "
        f"| {field.help} |"
        for name, (field, of) in kinds.items()
    ]
    assert re.findall(r"^\| `.+$", section("Fields"), re.MULTILINE) == expected


def test_every_token_is_described_and_no_other() -> None:
    tokens = re.findall(r"^\| `(\w+)`", section("What binds"), re.MULTILINE)
    assert set(tokens) == {token.value for token in Token}


def test_every_kind_is_named() -> None:
    assert re.findall(r"^\| `(\w+)`", section("Scopes"), re.MULTILINE) == [str(k) for k in FIELDS]
