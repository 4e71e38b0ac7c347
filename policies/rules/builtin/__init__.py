"""The rules that come with Headroom: one YAML file each, in this folder."""

from __future__ import annotations

from pathlib import Path

from policies.rules.modes import Mode

AUTHOR = "headroom"
REVIEWER = "system"
_FOLDER = Path(__file__).parent


def texts() -> dict[str, str]:
    """Return the built-in rules by name."""
    return {path.stem: path.read_text() for path in sorted(_FOLDER.glob("*.yaml"))}


def load() -> list[str]:
    """Bring what is missing, as active versions, and return the names of what was brought.

    What people have touched is left alone: a rule that has a version of theirs, or that they have
    retired. One query where nothing is missing.
    """
    # Imported here: the texts are read where there is no database.
    from policies.rules.models import Rule

    found: dict[str, list[tuple[str, str, str]]] = {}
    rows = Rule.objects.filter(name__in=texts()).values_list(
        "name", "versions__text", "versions__author", "versions__state"
    )
    for name, text, author, state in rows:
        found.setdefault(name, []).append((text, author, state))
    wanted = [name for name, new in texts().items() if _is_wanted(new, found.get(name, []))]
    if not wanted:
        return []
    # Imported here: at most starts nothing is missing, and compiling is slow to import.
    from django.db import transaction

    from policies.rules import actions
    from policies.rules.models import RuleVersion

    with transaction.atomic():
        for name in wanted:
            draft = actions.create_draft(AUTHOR, texts()[name], note="comes with Headroom")
            actions.promote(REVIEWER, draft, RuleVersion.States.ACTIVE)
    return wanted


def _is_wanted(text: str, versions: list[tuple[str, str, str]]) -> bool:
    """Say whether ``text`` is new, and nobody has changed what was there before it."""
    if any(known == text for known, _, _ in versions):
        return False
    is_ours = all(author == AUTHOR for _, author, _ in versions)
    is_used = not versions or any(state == Mode.ACTIVE.value for _, _, state in versions)
    return is_ours and is_used
