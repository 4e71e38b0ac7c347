"""A link that is shared, a kernel that keeps queues in memory, and a guard that notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headroom.agent.actuation.leases import LinkLeases
from headroom.agent.actuation.reports import Reports
from headroom.agent.traffic.keeping import TrafficKeeper
from headroom.agent.traffic.queues import Matches, Queue
from headroom.agent.traffic.tc import Standing, TcError
from headroom.contracts import ClassShare, LimitReport, LimitSet, LinkLimit
from headroom.traffic import TrafficClass
from policies.traffic import BUILT_IN
from tests.unit.headroom.builders import Clock

LINK, DEVICE = "oslo-bergen", "eth0"


def make_limit(**given: object) -> LinkLimit:
    """A limit on the link, with the shares that come with Headroom."""
    classes = [
        ClassShare(name=n, guaranteed=each.guaranteed, most=each.most)
        for n, each in BUILT_IN.items()
    ]
    values: dict[str, object] = {
        "id": "l1",
        "link": LINK,
        "capacity_bits_per_s": 1e9,
        "share": 1.0,
        "classes": classes,
        "expires_at": 600.0,
    }
    return LinkLimit(**{**values, **given})  # type: ignore[arg-type]


@dataclass
class FakeKernel:
    """Queues by interface. ``foreign`` has somebody else's; ``error`` is raised by what changes."""

    trees: dict[str, tuple[Queue, ...]] = field(default_factory=dict)
    foreign: set[str] = field(default_factory=set)
    error: TcError | None = None
    sent: int = 0
    changes: int = 0

    def is_ours(self, device: str) -> bool:
        return device in self.trees

    def set(self, device: str, tree: tuple[Queue, ...], matches: Matches) -> None:
        if device in self.foreign:
            raise TcError("somebody else's", is_refusal=True)
        if self.error is not None:
            raise self.error
        self.changes += 1
        self.trees[device] = tree

    def remove(self, device: str) -> None:
        if self.error is not None:
            raise self.error
        del self.trees[device]

    def standing(self, device: str) -> Mapping[int, Standing]:
        tree = self.trees.get(device, ())
        return {each.minor: Standing(each.rate, each.ceil, self.sent) for each in tree}


@dataclass
class FakeGuard:
    """Notes what it is told, in order."""

    noted: list[tuple[str, float]] = field(default_factory=list)
    is_dismissed: bool = False

    def note(self, device: str, until_s: float) -> None:
        self.noted.append((device, until_s))

    def dismiss(self) -> None:
        self.is_dismissed = True


class Bench:
    """A keeper of one interface, whose steps and time a test has in its hand."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.clock.now = 100.0
        self.kernel, self.guard = FakeKernel(), FakeGuard()
        self.reports = Reports(lambda: 0.0)
        self.leases = LinkLeases("n1")
        self.keeper = TrafficKeeper(
            "n1",
            {DEVICE: LINK},
            Matches(),
            self.leases,
            self.reports,
            self.kernel,
            self.guard,
            monotonic=self.clock,
        )

    def say(self, *limits: LinkLimit, valid_for_s: float = 60.0) -> None:
        """Have the server say that these are in force, with a clock that is at 0 now."""
        answer = LimitSet(limits=[], now=0.0, valid_for_s=valid_for_s, links=list(limits))
        self.leases.take(answer, sent_at=self.clock.now, got_at=self.clock.now)

    def step(self) -> list[LimitReport]:
        """Take one step, and return what is reported."""
        self.keeper.step()
        return self.reports.take()

    def drain(self) -> list[LimitReport]:
        """Go on until what waited in switches has gone, and return what is reported."""
        self.clock.now += 3.0
        return self.step()

    def rate_of(self, traffic_class: TrafficClass) -> Queue:
        """Return the queue of a class."""
        from headroom.agent.traffic.queues import minor_of

        minor = minor_of(traffic_class)
        return next(each for each in self.kernel.trees[DEVICE] if each.minor == minor)
