"""The playbooks that come with Headroom: one YAML file each, in this folder."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

AUTHOR = "headroom"
_FOLDER = Path(__file__).parent


def texts() -> dict[str, str]:
    """Return the built-in playbooks by name."""
    return {path.stem: path.read_text() for path in sorted(_FOLDER.glob("*.yaml"))}


def load() -> list[str]:
    """Bring what is missing or older, as active versions, and return the names of what was brought.

    What people wrote or retired is left alone. One query where nothing is missing.
    """
    # Imported here: the texts are read where there is no database.
    from policies.playbooks import versions
    from policies.playbooks.models import PlaybookVersion

    ours = texts()
    known = PlaybookVersion.objects.filter(name__in=ours).values_list("name", "text")
    there = set(known)
    missing = [(name, text) for name, text in ours.items() if (name, text) not in there]
    now = datetime.now(UTC)
    return [name for name, text in missing if versions.adopt(text, author=AUTHOR, now=now)]
