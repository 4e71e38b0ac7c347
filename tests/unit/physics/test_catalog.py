"""The catalogue's files: every mistake in them is told with its address."""

from __future__ import annotations

import tomllib
from importlib.resources import files

import pytest

from physics.errors import ImpossibleArgumentError, PhysicsError, UnknownKeyError
from physics.hardware import TEXTBOOK
from physics.hardware.catalog import profile_of

SOURCE = """
[sources.sheet]
document = "data sheet"
publisher = "us"
as_of = "2026"
"""
RACK = '[racks.big]\nsource = "sheet"\npower_w = 5e4\n'


def test_an_entry_names_the_documents_of_its_figures_by_key() -> None:
    text = f"""{SOURCE}
        [sources.reading]
        document = "a reading"
        publisher = "us"
        as_of = "2026-10"
        estimated = true

        [links.fast]
        aliases = ["quick"]
        source = "sheet"
        sources = {{ latency_s = "reading" }}
        kind = "Ethernet"
        per_direction_bytes_per_s = 1e9
        latency_s = 1e-6
    """
    link = profile_of("ours", text).link("quick")
    assert link.source_of("per_direction_bytes_per_s").document == "data sheet"
    assert link.source_of("latency_s").estimated


def test_a_profile_is_laid_over_another_but_for_what_it_replaces() -> None:
    over = profile_of("ours", f"{SOURCE}{RACK}", TEXTBOOK)
    assert list(over.racks) == [*TEXTBOOK.racks, "big"]
    alone = profile_of("ours", f'replaces = ["racks"]\n{SOURCE}{RACK}', TEXTBOOK)
    assert list(alone.racks) == ["big"]
    assert alone.links == TEXTBOOK.links


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[racks.big]\nsource = "shet"\npower_w = 1.0', r"racks.big.source has no shet.* sheet\?"),
        ("[racks.big]\npower_w = 1.0", "racks.big.source must be the key of a source"),
        ('[racks.big]\nsource = "sheet"', "racks.big.power_w must be given"),
        ('[racks.big]\nsource = "sheet"\npower_w = -1.0', "racks.big.power_w must be finite"),
        ('[racks.big]\nsource = "sheet"\nwatts = 1.0', "racks.big has no watts"),
        (f'{RACK}sources = {{ watts = "sheet" }}', "racks.big.sources has no watts"),
        (f'{RACK}aliases = "large"', "racks.big.aliases must be a list"),
        ("[rack.big]\npower_w = 1.0", "section has no rack; did you mean racks"),
        ("[sources.other]\ndocument = 5", "sources.other.document must be a text"),
        ("[racks.big", "not a profile in TOML"),
    ],
)
def test_a_mistake_is_told_with_its_address(text: str, told: str) -> None:
    with pytest.raises(PhysicsError, match=told):
        profile_of("ours", f"{SOURCE}{text}")


def test_a_section_to_replace_has_to_be_one() -> None:
    with pytest.raises(UnknownKeyError):
        profile_of("ours", f'replaces = ["rack"]\n{SOURCE}')
    with pytest.raises(ImpossibleArgumentError, match="replaces"):
        profile_of("ours", f"replaces = 5\n{SOURCE}")


@pytest.mark.parametrize("name", ["textbook", "current"])
def test_every_document_is_the_source_of_a_figure(name: str) -> None:
    text = files("physics.hardware").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text)
    used = {
        key
        for section, entries in document.items()
        if section not in ("sources", "replaces")
        for entry in entries.values()
        for key in (entry["source"], *entry.get("sources", {}).values())
    }
    assert used == set(document["sources"])
