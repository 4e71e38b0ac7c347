"""The rules that come with Headroom: one YAML file each, in this folder."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent
#: Rules that came with Headroom once. Admission holds budgets by itself.
WITHDRAWN = ("autoscaling-gate",)


def texts() -> dict[str, str]:
    """Return the built-in rules by name."""
    return {path.stem: path.read_text() for path in sorted(_FOLDER.glob("*.yaml"))}


def load() -> list[str]:
    """Add missing or newer built-in rules, and return their names."""
    # Imported here: the texts are read where there is no database.
    from policies.documents import builtin
    from policies.rules.models import RuleVersion

    return builtin.load(RuleVersion, texts(), "policies.rules.actions.RULES", WITHDRAWN)
