"""The objectives that come with Headroom: one YAML file each, in this folder."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent


def texts() -> dict[str, str]:
    """Return the built-in objectives by name."""
    return {path.stem: path.read_text() for path in sorted(_FOLDER.glob("*.yaml"))}


def load() -> list[str]:
    """Load built-in objectives that are missing or older, and return their names."""
    # Imported here: the texts are read where there is no database.
    from admission.slos.models import Slo
    from policies.documents import builtin

    return builtin.load(Slo, texts(), "admission.slos.actions.SLOS")
