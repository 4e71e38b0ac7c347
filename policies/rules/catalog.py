"""The versions that are evaluated, compiled. Texts never change, so each is compiled once."""

from __future__ import annotations

from functools import lru_cache

import structlog

from headroom.documents import DocumentError
from policies.rules import document
from policies.rules.engine import LiveRule, Mode
from policies.rules.models import RuleVersion

log = structlog.get_logger(__name__)


@lru_cache(maxsize=20_000)
def _compiled(text: str) -> document.Rule | None:
    try:
        return document.read(text)
    except DocumentError as error:
        # It was right once: fields have changed with a release. The others are not to suffer.
        log.error("rule_cannot_be_used", problems=[str(p) for p in error.problems])
        return None


def live_rules() -> list[LiveRule]:
    """Return all versions that are evaluated. One query."""
    rows = list(RuleVersion.objects.live().only("id", "name", "number", "state", "share", "text"))
    canary_share = {row.name: row.share or 0.0 for row in rows if row.state == "canary"}
    found = []
    for row in rows:
        rule = _compiled(row.text)
        if rule is None:
            continue
        share = canary_share.get(row.name, 0.0) if row.state != "shadow" else 0.0
        found.append(LiveRule(row.pk, row.number, rule, Mode(row.state), share))
    return found
