"""The objectives that come with Headroom: one YAML file each, in this folder."""

from __future__ import annotations

from pathlib import Path

from admission.slos.models import Slo

AUTHOR = "headroom"
_FOLDER = Path(__file__).parent


def texts() -> dict[str, str]:
    """Return the built-in objectives by name."""
    return {path.stem: path.read_text() for path in sorted(_FOLDER.glob("*.yaml"))}


def load() -> list[str]:
    """Bring what is missing or older, and return the names of what was brought.

    What people have changed or retired is left alone. One query where nothing is missing.
    """
    wanted = texts()
    found = {slo.name: slo for slo in Slo.objects.filter(name__in=wanted)}
    brought = [name for name, text in wanted.items() if _is_wanted(text, found.get(name))]
    if not brought:
        return []
    # Imported here: at most starts nothing is missing, and compiling is slow to import.
    from admission.slos import actions

    for name in brought:
        actions.declare(AUTHOR, wanted[name])
    return brought


def _is_wanted(text: str, known: Slo | None) -> bool:
    if known is None:
        return True
    return known.text != text and known.author == AUTHOR and known.retired_at is None
