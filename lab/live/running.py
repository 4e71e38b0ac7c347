"""A scenario against a server: the twin plays it, the server decides, the public API tells.

Three things go on at once: a thread in which the fleet's agents push and obey (the demo), and here
the submission of jobs when they are due and a look at the server every few seconds.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from headroom.client import HeadroomError
from lab.demo import Demo, Settings
from lab.enroll import Server, Stopped
from lab.live.jobs import Manner, Submitter, job_document, set_up_project
from lab.live.staging import Play, cannot_do_live
from lab.live.watching import Watch
from lab.matrix.expect import Told, judge
from lab.matrix.report import words
from lab.matrix.result import Cell, Check, Verdict, verdict_of_checks, why_of_checks
from lab.matrix.scenario import Scenario
from lab.scenarios.faults import spans
from lab.scenarios.loads import arrivals_of

__all__ = ["LiveSettings", "run_live"]

#: How often jobs are submitted and the progress is shown, s.
_TICK_S = 0.25
#: After the end, machines have so long to tell that the jobs have stopped, s.
_LINGER_S = 30.0
_POLL_S = 1.0
_JOIN_S = 30.0


@dataclass(frozen=True, kw_only=True)
class LiveSettings:
    """The settings of a run. ``speed``: seconds of the scenario in each second."""

    seed: int = 1
    speed: float = 1.0
    sample_s: float = 5.0
    #: between two looks at the server, s
    look_s: float = 5.0


@dataclass
class _Run:
    """A scenario while it runs."""

    server: Server
    scenario: Scenario
    settings: LiveSettings
    play: Play
    run: str = field(default_factory=lambda: f"r{secrets.token_hex(3)}")
    stop: threading.Event = field(default_factory=threading.Event)
    #: why the fleet's thread has ended by itself
    broken: str = ""
    #: how far the scenario came, s
    reached_s: float = 0.0

    def __post_init__(self) -> None:
        arrivals = arrivals_of(self.scenario, self.play.fleet, seed=self.settings.seed)
        project = f"scenario-{self.scenario.name}"
        manner = Manner(run=self.run, project=project, sites=tuple(self.play.fleet.sites))
        self.jobs = Submitter(
            self.server.setup,
            [job_document(arrival, manner) for arrival in arrivals],
            [arrival.at_s for arrival in arrivals],
        )
        self.watch = Watch(self.server.setup, self.play.fleet.sites, project, self.run)
        self._thread = threading.Thread(target=self._run_fleet, name="fleet", daemon=True)

    def _run_fleet(self) -> None:
        settings = Settings(
            sample_s=self.settings.sample_s, seed=self.settings.seed, speed=self.settings.speed
        )
        try:
            Demo(self.server, settings, stop=self.stop, stage=self.play.stage).run()
        except Stopped:
            return
        except HeadroomError as exc:
            self.broken = str(exc)

    @property
    def lives(self) -> bool:
        return self._thread.is_alive()

    def begin(self, is_stopped: Callable[[], bool]) -> bool:
        """Start the fleet; return whether the time of the scenario has begun."""
        self._thread.start()
        while self.play.now_s is None:
            if not self.lives or is_stopped():
                return False
            time.sleep(_TICK_S)
        set_up_project(self.server.setup, self.watch.project, self.scenario.title)
        return True

    def go_on(self, is_stopped: Callable[[], bool], show: Callable[[float, str], None]) -> None:
        """Submit jobs, watch and show progress until the scenario is over, broken or stopped."""
        look_at = 0.0
        while self.lives and not is_stopped():
            self.reached_s = min(self.play.now_s or 0.0, self.scenario.duration_s)
            self.jobs.step(self.reached_s)
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + self.settings.look_s
                self.watch.look(self.reached_s)
            show(self.reached_s, self.said())
            if self.is_over:
                return
            time.sleep(_TICK_S)

    @property
    def is_over(self) -> bool:
        return self.reached_s >= self.scenario.duration_s

    def end(self) -> None:
        """Have the jobs stop, then the fleet."""
        self.jobs.cancel("the scenario is over")
        deadline = time.monotonic() + _LINGER_S
        while self.lives and time.monotonic() < deadline and self._has_open_jobs():
            time.sleep(_POLL_S)
        self.stop.set()
        self._thread.join(_JOIN_S)

    def _has_open_jobs(self) -> bool:
        try:
            return bool(self.watch.open_jobs())
        except HeadroomError:
            return False  # nobody is there who could be told

    def said(self) -> str:
        """Return a line of status: the time, the use of budgets, jobs, and the faults that act."""
        acting = [str(fault.kind) for fault in self.scenario.faults if fault.acts(self.reached_s)]
        row = self.watch.rows[-1] if self.watch.rows else {}
        parts = [
            f"{words.clock(self.reached_s)} of {words.clock(self.scenario.duration_s)}",
            f"{words.quantity(row.get('budget_use'), 'share')} of a budget",
            f"{words.number(row.get('running_gpus'))} GPUs run",
            f"{words.number(row.get('queued_jobs'))} jobs wait",
            *(words.words_of(kind).upper() for kind in dict.fromkeys(acting)),
        ]
        if self.watch.obstacle:
            parts.append(f"WAITING: {self.watch.obstacle}")
        return "  ".join(parts)

    def judged(self) -> tuple[list[Check], dict[str, object]]:
        """Return the checks of the expectations, and the cell's series and measures behind them."""
        series = self.watch.series()
        measures = self.watch.measures(self.scenario.warm_up_s, self.scenario.duration_s)
        told = Told({each.name: each for each in series}, {each.name: each for each in measures})
        return judge(self.scenario, told), {"series": series, "measures": measures}

    def log(self) -> str:
        jobs = self.jobs
        lines = [
            f"{words.count(len(jobs.accepted), 'job')} accepted, {jobs.refused} refused, "
            f"{len(jobs.documents) - jobs.place} never due"
        ]
        return "\n".join([*lines, *jobs.refusals])


def run_live(
    server: Server,
    scenario: Scenario,
    settings: LiveSettings,
    *,
    is_stopped: Callable[[], bool],
    show: Callable[[float, str], None],
) -> Cell:
    """Run ``scenario`` against a server and return its cell.

    Sites, jobs and readings are the scenario's own, and no fault outlives this process. Raises
    :class:`headroom.client.HeadroomError` where the server will not have them.
    """
    begun = time.monotonic()
    if why := cannot_do_live(scenario):
        return _cell(scenario, settings, Verdict.NOT_RUN, why)
    run = _Run(server, scenario, settings, Play(scenario, settings.seed))
    checks: list[Check] = []
    parts: dict[str, object] = {}
    try:
        if run.begin(is_stopped):
            run.go_on(is_stopped, show)
        if run.is_over:
            checks, parts = run.judged()
    finally:
        run.end()
    if run.broken:
        raise HeadroomError(run.broken)
    parts |= {"wall_s": time.monotonic() - begun, "simulated_s": run.reached_s, "log": run.log()}
    if not run.is_over:
        why = f"it was stopped at {words.clock(run.reached_s)}"
        return _cell(scenario, settings, Verdict.NOT_RUN, why, **parts)
    verdict = verdict_of_checks(checks)
    why = why_of_checks(checks)
    return _cell(scenario, settings, verdict, why, checks=checks, **parts)


def _cell(
    scenario: Scenario, settings: LiveSettings, verdict: Verdict, why: str, **parts: object
) -> Cell:
    return msgspec.structs.replace(
        Cell(
            scenario=scenario.name,
            title=scenario.title,
            about=scenario.about,
            seed=settings.seed,
            verdict=verdict,
            why=why,
            spans=spans(scenario),
        ),
        **parts,
    )
