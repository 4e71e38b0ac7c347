"""Who may call what, by rules of RBAC, and a record of what was called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Call:
    """One request as an audit log would have it: who did what to which resource."""

    user: str
    verb: str
    group: str
    #: the plural, with the subresource after a slash: ``workloads/status``
    resource: str
    namespace: str = ""
    name: str = ""
    code: int = 0


@dataclass(frozen=True)
class Rule:
    """One rule of a role. ``namespace`` "" is a ClusterRole, bound for the whole cluster."""

    groups: tuple[str, ...]
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()
    namespace: str = ""

    def allows(self, call: Call) -> bool:
        """Say whether this rule is enough for a call."""
        return (
            _within(call.group, self.groups)
            and _within(call.resource, self.resources)
            and _within(call.verb, self.verbs)
            and (not self.names or call.name in self.names)
            and self.namespace in ("", call.namespace)
        )

    def parts(self) -> list[Rule]:
        """Return one rule for each verb on each resource, for finding what nobody needs."""
        return [
            Rule((group,), (resource,), (verb,), self.names, self.namespace)
            for group in self.groups
            for resource in self.resources
            for verb in self.verbs
        ]


def _within(value: str, allowed: Sequence[str]) -> bool:
    return value in allowed or "*" in allowed


def rules_of(role: Mapping[str, Any], namespace: str = "") -> tuple[Rule, ...]:
    """Read the rules of a Role or a ClusterRole."""
    return tuple(
        Rule(
            tuple(rule.get("apiGroups", ())),
            tuple(rule.get("resources", ())),
            tuple(rule.get("verbs", ())),
            tuple(rule.get("resourceNames", ())),
            namespace,
        )
        for rule in role.get("rules", ())
    )


def unused(rules: Iterable[Rule], calls: Iterable[Call]) -> list[Rule]:
    """Return the parts of rules that none of the calls needed."""
    made = list(calls)
    return [
        part
        for rule in rules
        for part in rule.parts()
        if not any(part.allows(call) for call in made)
    ]


@dataclass(frozen=True)
class User:
    """Whoever holds a token. Without rules everything is allowed, as to an administrator."""

    name: str
    rules: tuple[Rule, ...] | None = None

    def may(self, call: Call) -> bool:
        return self.rules is None or any(rule.allows(call) for rule in self.rules)
