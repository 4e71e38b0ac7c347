"""Firings for tests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from policies.firings import Firing, Severity
from policies.scopes import Scope, ScopeKind

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def scope(text: str) -> Scope:
    """Return the scope that "rack oslo/A01" or so names."""
    kind, _, name = text.partition(" ")
    return Scope(ScopeKind(kind), name)


def make_firing(where: str = "rack s1/A01", rule: str = "rack-heat", **given: Any) -> Firing:
    """Return a firing of ``rule`` on ``where``; ``given`` replaces any other field."""
    fields: dict[str, Any] = {
        "version": 1,
        "severity": Severity.WARNING,
        "since": NOW,
        "at": NOW,
        "summary": f"{rule}: {where} is too hot",
        "values": {"thermal_margin_c": 3.5},
        **given,
    }
    return Firing(rule=rule, scope=scope(where), **fields)
