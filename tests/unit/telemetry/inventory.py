"""An inventory without a database, for what looks names up."""

from __future__ import annotations

from telemetry.directory import AgentScope, KnownNode, KnownThing, Names

NOW = 1_790_000_000.0
#: Speaks for n1 and n2, not for n3.
SCOPE = AgentScope(1, "agent-1", frozenset({11, 12}), frozenset())


class FakeNames(Names):
    """Nodes n1, n2 and n3 of four GPUs each, a link and a meter at n1 and at n3, all at s1."""

    def __init__(self) -> None:
        """Know no fleet."""

    def node(self, name: str) -> KnownNode | None:
        if name not in ("n1", "n2", "n3"):
            return None
        number = int(name[1])
        return KnownNode(10 + number, 1, {index: 100 * number + index for index in range(4)})

    def site(self, name: str) -> int | None:
        return {"s1": 1}.get(name)

    def link(self, name: str) -> KnownThing | None:
        return {"l1": KnownThing(1, 11, 1), "l3": KnownThing(3, 13, 1)}.get(name)

    def meter(self, name: str) -> KnownThing | None:
        return {"m1": KnownThing(1, 11, 1), "m3": KnownThing(3, 13, 1)}.get(name)
