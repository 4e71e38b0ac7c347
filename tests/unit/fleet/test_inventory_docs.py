"""What the pages on the inventory say holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

import msgspec
import pytest

from fleet.inventory import State, document, parse, plan
from fleet.urls import router

DOCS = Path(__file__).parents[3] / "docs"
REFERENCE = (DOCS / "reference" / "inventory.md").read_text()


def test_the_example_can_be_imported() -> None:
    page = (DOCS / "how-to" / "import-a-fleet.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert plan(parse(example), State()).counts["gpus"]["created"] == 8


@pytest.mark.parametrize(
    "entry",
    [
        cast("type[msgspec.Struct]", each)
        for name, each in vars(document).items()
        if name.endswith("Entry")
    ],
)
def test_every_field_is_described(entry: type[msgspec.Struct]) -> None:
    missing = [name for name in entry.__struct_fields__ if name not in REFERENCE]
    assert not missing


def test_every_resource_is_listed() -> None:
    assert all(f"`{prefix}`" in REFERENCE for prefix, _, _ in router.registry)
