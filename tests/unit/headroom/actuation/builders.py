"""A GPU whose limits a test sees, and everything that is needed to set them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from headroom.agent.actuation.actuator import LimitActuator
from headroom.agent.actuation.journal import Journal
from headroom.agent.actuation.knobs import Knob, KnobError
from headroom.agent.actuation.leases import LeaseBook
from headroom.agent.actuation.reports import Reports
from headroom.contracts import Limit, LimitKind, LimitReport, LimitSet
from tests.unit.headroom.builders import Clock

NODE = "n1"
FOREVER_S = 1e9


def make_limit(
    limit_id: str = "l1",
    value: float = 400,
    *,
    kind: str = LimitKind.POWER_CAP_W,
    gpu: int | None = None,
    node: str = NODE,
    expires_at: float = 1e10,
) -> Limit:
    return Limit(id=limit_id, node=node, kind=kind, value=value, expires_at=expires_at, gpu=gpu)


class FakeKnob:
    """A limit between 200 and 700 that is in force, and a word on each step of setting it."""

    def __init__(self, value: float | None, steps: Callable[[str], None]) -> None:
        self.value = value
        self.hidden = False
        self.refuses: KnobError | None = None
        self.sticks = False
        self.seen_violation = ""
        self._steps = steps

    def in_force(self) -> float | None:
        return None if self.hidden else self.value

    def bounded(self, asked: float) -> float:
        return min(max(asked, 200.0), 700.0)

    def set(self, value: float) -> None:
        self._change(value)

    def restore(self, original: float | None) -> None:
        self._change(original)

    def violation(self, value: float) -> str:
        return self.seen_violation

    def _change(self, value: float | None) -> None:
        self._steps("before set")
        if self.refuses:
            raise self.refuses
        if not self.sticks:
            self.value = value
        self._steps("after set")


class FakeGpu:
    """One GPU with a power cap, and a clock cap whose value nobody can read."""

    def __init__(
        self,
        index: int = 0,
        *,
        value: float = 650,
        steps: Callable[[str], None] = lambda step: None,
    ) -> None:
        self.index = index
        self.uuid = f"GPU-{index}"
        self.watts: float | None = 600.0
        self.power = FakeKnob(value, steps)
        self.clock = FakeKnob(None, steps)
        self.clock.hidden = True

    def knob(self, kind: str) -> Knob | None:
        return {LimitKind.POWER_CAP_W: self.power, LimitKind.CLOCK_CAP_MHZ: self.clock}.get(
            LimitKind(kind)
        )

    def mean_w(self, since_s: float) -> float | None:
        return self.watts


class Bench:
    """An actuator with its clock, its leases, its journal and its GPUs."""

    def __init__(
        self, folder: Path, *gpus: FakeGpu, steps: Callable[[str], None] = lambda step: None
    ) -> None:
        self.path = folder / "limits.json"
        self.clock = Clock(0.0)
        self.gpus = list(gpus) or [FakeGpu()]
        self._steps = steps
        self.start()

    @property
    def power(self) -> FakeKnob:
        return self.gpus[0].power

    def start(self) -> None:
        """Begin a new life on the same machine."""
        self.leases = LeaseBook(NODE)
        self.reports = Reports(self.clock)
        self.journal = SteppedJournal(self.path, self._steps)
        self.actuator = LimitActuator(
            NODE, self.leases, self.journal, self.reports, monotonic=self.clock
        )

    def say(self, *limits: Limit, valid_for_s: float = FOREVER_S) -> None:
        """Let the server say that these are all the limits in force."""
        answer = LimitSet(limits=list(limits), now=self.clock.now, valid_for_s=valid_for_s)
        self.leases.take(answer, sent_at=self.clock.now, got_at=self.clock.now)

    def step(self) -> list[LimitReport]:
        """Let the actuator do its work; return what it has to tell."""
        self.actuator.step(self.gpus)
        return self.reports.take()

    def stop(self) -> list[LimitReport]:
        self.actuator.stop(self.gpus)
        return self.reports.take()


class SteppedJournal(Journal):
    """A journal that gives a word on each step of writing."""

    def __init__(self, path: Path, steps: Callable[[str], None]) -> None:
        super().__init__(path, machine_boot="boot-1")
        self._steps = steps

    def _save(self, entries: object) -> None:
        self._steps("before save")
        super()._save(entries)  # type: ignore[arg-type]
        self._steps("after save")


def told(reports: Iterable[LimitReport]) -> list[tuple[str, int | None, str, float | None]]:
    """The gist of reports: limit, GPU, state, and what is in force."""
    return [(r.limit, r.gpu, r.state.value, r.applied) for r in reports]
