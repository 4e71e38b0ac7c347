"""Reads the profiles of the catalogue from the TOML files beside this module."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from physics.errors import ImpossibleArgumentError, UnknownKeyError
from physics.hardware import reading
from physics.hardware.entries import Entry, Source
from physics.hardware.profile import Profile
from physics.hardware.reading import SECTIONS

__all__ = ["CURRENT", "TEXTBOOK", "profile_of"]

_Sources = Mapping[str, Source]


def profile_of(name: str, text: str, base: Profile | None = None) -> Profile:
    """Return the profile that a TOML text holds, laid over ``base``.

    ``[sources.KEY]`` describes a document; an entry names those of its figures by key.
    ``replaces`` lists sections of which nothing of ``base`` is carried over. Raises
    :class:`UnknownKeyError` and :class:`ImpossibleArgumentError`, which name the address.
    """
    document = reading.document_of(text)
    described = reading.as_table("sources", document.pop("sources", {}))
    sources = {key: reading.source_of(f"sources.{key}", each) for key, each in described.items()}
    replaced = reading.texts("replaces", document.pop("replaces", []))
    for section in (*document, *replaced):
        if section not in SECTIONS:
            raise UnknownKeyError("section", section, SECTIONS)
    sections: dict[str, Any] = {}
    for section in SECTIONS:
        held = {} if base is None or section in replaced else base.section(section)
        entries = reading.as_table(section, document.get(section, {}))
        own = {key: _entry(section, key, each, sources) for key, each in entries.items()}
        sections[section] = {**held, **own}
    return Profile(name=name, **sections)


def _entry(section: str, name: str, value: object, sources: _Sources) -> Entry:
    address = f"{section}.{name}"
    given = dict(reading.as_table(address, value))
    named = reading.as_table(f"{address}.sources", given.pop("sources", {}))
    known = reading.kinds_of(section)
    for figure in named:
        if figure not in known:
            raise UnknownKeyError(f"{address}.sources", figure, known)
    return reading.new_entry(
        section,
        name,
        given,
        source=_named(address, given.pop("source", None), sources),
        sources={figure: _named(address, key, sources) for figure, key in named.items()},
        aliases=reading.texts(f"{address}.aliases", given.pop("aliases", [])),
    )


def _named(address: str, key: object, sources: _Sources) -> Source:
    if not isinstance(key, str):
        raise ImpossibleArgumentError(f"{address}.source", "the key of a source")
    if key not in sources:
        raise UnknownKeyError(f"{address}.source", key, sources)
    return sources[key]


def _read(name: str, base: Profile | None = None) -> Profile:
    text = files("physics.hardware").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return profile_of(name, text, base)


#: What the textbook states. Where ``CURRENT`` differs, the newer figure is the better one.
TEXTBOOK = _read("textbook")
#: Newest figures, laid over the textbook's.
CURRENT = _read("current", TEXTBOOK)
