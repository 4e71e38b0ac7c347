"""ML teams that queue jobs by the public API, as people and pipelines do.

Each has a project and a habit. Together they want more than the machines that are for the queue
can run at once, so that something always waits, and for several reasons: GPUs, the power of a rack,
a quota, a phase before it, somebody's hold.
"""

from __future__ import annotations

import hashlib
import logging
import random
import string
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from headroom.client import HeadroomError, Refused
from lab.hardware import A100, H100, L40S

__all__ = ["HABITS", "Habit", "Teams"]

log = logging.getLogger(__name__)

Document = dict[str, Any]

#: The teams look so often whether there is room in the queue for another job, s.
EVERY_S = 3.0
#: Phases that they like to see waiting, and of one project at most: what has a quota, or asks for
#: much, would be all that is left.
WAITING, OF_ONE_PROJECT = 14, 4
#: So many of them at the beginning, when jobs are queued faster than they can begin.
FIRST, FIRST_EVERY_S = 24, 0.5
#: One job in so many is held by the team itself, and let go after so many more.
HOLD_EVERY, HOLD_FOR = 12, 8
#: Refused so often in a row, they give up: the server does not want jobs.
MOST_REFUSED = 5


@dataclass(frozen=True, kw_only=True)
class Habit:
    """The jobs that one team queues again and again."""

    project: str
    job_class: str
    stem: str
    weight: float
    models: tuple[str, ...]
    #: GPUs that a job asks for: one of these; and the share of them that will do
    gpus: tuple[int, ...]
    least: float = 1.0
    peak_w: float
    lowest_cap_w: float | None = None
    kind: str
    #: how long it computes at full clocks, s
    work_s: tuple[float, float]
    checkpoint_s: float | None = None
    network: Document = field(default_factory=dict)
    locality: Document = field(default_factory=dict)
    #: an 8-GPU phase before it and one after it
    is_pipeline: bool = False


HABITS = (
    Habit(
        project="foundation", job_class="high-density-training", stem="pretrain", weight=1.2,
        models=(H100.name,), gpus=(32, 48, 64), least=0.5, peak_w=700.0, lowest_cap_w=500.0,
        kind="train", work_s=(240.0, 540.0), checkpoint_s=120.0,
        network={"collective_bytes_per_step": 1.4e10, "step_s": 1.8},
    ),
    Habit(
        project="foundation", job_class="high-density-training", stem="curriculum", weight=0.7,
        models=(H100.name,), gpus=(16, 32), peak_w=700.0, lowest_cap_w=550.0,
        kind="train", work_s=(180.0, 360.0), checkpoint_s=120.0, is_pipeline=True,
    ),
    Habit(
        project="foundation", job_class="high-density-training", stem="giant", weight=0.25,
        models=(H100.name,), gpus=(160,), peak_w=700.0, kind="train", work_s=(240.0, 300.0),
        checkpoint_s=120.0, locality={"required": "site"},
    ),
    Habit(
        project="vision", job_class="checkpoint-heavy", stem="diffusion", weight=1.6,
        models=(H100.name,), gpus=(8, 16, 24), peak_w=690.0, lowest_cap_w=550.0,
        kind="finetune", work_s=(150.0, 360.0), checkpoint_s=60.0,
    ),
    Habit(
        project="speech", job_class="low-power-experimentation", stem="asr-trial", weight=1.6,
        models=(A100.name,), gpus=(8, 16), least=0.5, peak_w=390.0, lowest_cap_w=250.0,
        kind="evaluate", work_s=(60.0, 200.0),
    ),
    Habit(
        project="robotics", job_class="high-density-training", stem="policy", weight=1.2,
        models=(A100.name,), gpus=(16, 32), peak_w=400.0, kind="finetune",
        work_s=(150.0, 300.0), checkpoint_s=60.0,
    ),
    Habit(
        project="search", job_class="latency-sensitive-inference-build", stem="embed-build",
        weight=1.0, models=(L40S.name,), gpus=(8, 16), peak_w=340.0, kind="serve",
        work_s=(60.0, 150.0),
    ),
    Habit(
        project="vision", job_class="cross-site-validation", stem="validate", weight=0.5,
        models=(A100.name, H100.name), gpus=(8,), peak_w=650.0, kind="evaluate",
        work_s=(90.0, 180.0), checkpoint_s=60.0, network={"cross_site_bits_per_s": 2e10},
        locality={"data_site": "oslo"},
    ),
)  # fmt: skip

#: What the teams are, as their operator would have set them up.
PROJECTS: tuple[Document, ...] = (
    {"name": "foundation", "weight": 3.0, "description": "Pretraining of base models"},
    {"name": "vision", "weight": 1.0, "description": "Image and video models"},
    {"name": "speech", "weight": 1.0, "description": "Speech recognition, mostly trials"},
    {"name": "robotics", "weight": 1.0, "gpu_quota": 32, "description": "Control policies"},
    {"name": "search", "weight": 1.0, "description": "Builds of what serves search"},
)


def job(habit: Habit, name: str, rng: random.Random) -> Document:
    """Return the specification of one job of a habit."""
    wanted = _phase(habit, "train", rng.choice(habit.gpus), rng.uniform(*habit.work_s))
    phases = [wanted]
    if habit.is_pipeline:
        wanted["needs"] = ["prepare"]
        before = _phase(habit, "prepare", 8, rng.uniform(30.0, 60.0), kind="evaluate")
        after = _phase(habit, "evaluate", 8, rng.uniform(30.0, 60.0), kind="evaluate")
        phases = [before, wanted, {**after, "needs": ["train"]}]
    return {
        "name": name,
        "project": habit.project,
        "class": habit.job_class,
        "phases": phases,
        "labels": {"team": habit.project},
    }


def _phase(habit: Habit, name: str, gpus: int, work_s: float, *, kind: str = "") -> Document:
    power = {"expected_peak_w": habit.peak_w}
    if habit.lowest_cap_w is not None:
        power["lowest_cap_w"] = habit.lowest_cap_w
    env = {"TWIN_KIND": kind or habit.kind, "TWIN_WORK_S": f"{work_s:.0f}"}
    phase: Document = {
        "name": name,
        "gang": {"gpus": gpus, "gpus_per_node": 8, "models": list(habit.models)},
        # People ask for more than they need.
        "walltime_s": round(3 * work_s + 120),
        "power": power,
        "network": habit.network,
        "locality": habit.locality,
        "artifacts": _artifacts(habit),
        "command": ["python", f"{habit.stem}.py"],
        "env": env,
    }
    least = max(8, int(gpus * habit.least) // 8 * 8)
    if least < gpus:
        phase["gang"]["min_gpus"] = least
    if habit.checkpoint_s is not None:
        phase["checkpoint"] = {"interval_s": habit.checkpoint_s}
        env["TWIN_CHECKPOINT_S"] = f"{habit.checkpoint_s:.0f}"
    return phase


def _artifacts(habit: Habit) -> Document:
    digest = hashlib.sha256(habit.stem.encode()).hexdigest()
    return {
        "image": f"registry.example/{habit.stem}@sha256:{digest}",
        "code_revision": digest[:40],
        "data": {f"{habit.project}-set": f"sha256:{digest}"},
    }


class JobServer(Protocol):
    """The server that teams queue jobs at, such as :class:`headroom.client.Client`."""

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Any: ...

    def post(self, path: str, document: Any, params: Mapping[str, str] | None = None) -> Any: ...


class Teams:
    """A thread in which the teams queue jobs until ``stop``."""

    def __init__(
        self,
        server: JobServer,
        *,
        stop: threading.Event,
        rng: random.Random | None = None,
        habits: Sequence[Habit] = HABITS,
    ) -> None:
        self._server = server
        self._stop = stop
        # Names are to be others after each start: not the twin's seed.
        self._rng = rng or random.Random()  # noqa: S311 -- names and sizes, no secrets
        self._habits = habits
        self._queued = 0
        self._refused = 0
        self._held: list[tuple[int, str]] = []
        self._thread = threading.Thread(target=self._run, name="teams", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def step(self) -> bool:
        """Queue a job if fewer wait than the teams like. Return whether to go on."""
        found = self._projects()
        habits = self._eager(found or [])
        if habits:
            self._queue_one(habits)
            self._let_go()
        return self._refused < MOST_REFUSED

    def set_up(self) -> bool:
        """Make the projects that are not there. Return whether the server wants jobs."""
        found = self._projects()
        if found is None:
            return False
        known = {each["name"] for each in found}
        for project in PROJECTS:
            if project["name"] not in known:
                self._asked(partial(self._server.post, "/api/v1/projects", project))
        return self._refused == 0

    def _projects(self) -> list[Document] | None:
        """Return all projects, with how much of each waits; None: the server does not say."""
        found = self._asked(partial(self._server.get, "/api/v1/projects", {"page_size": "1000"}))
        return None if found is None else found["results"]

    def _eager(self, projects: list[Document]) -> list[Habit]:
        """Return the habits of those who would queue another job, given how much waits."""
        waiting = {each["name"]: each["waiting"] for each in projects}
        ours = {habit.project: waiting.get(habit.project, 0) for habit in self._habits}
        if not projects or sum(ours.values()) >= (FIRST if self._queued < FIRST else WAITING):
            return []
        return [habit for habit in self._habits if ours[habit.project] < OF_ONE_PROJECT]

    def _queue_one(self, habits: Sequence[Habit]) -> None:
        (habit,) = self._rng.choices(habits, [each.weight for each in habits])
        letters = "".join(self._rng.choices(string.ascii_lowercase + string.digits, k=5))
        name = f"{habit.stem}-{letters}"
        document = job(habit, name, self._rng)
        if self._asked(partial(self._server.post, "/api/v1/jobs", document)) is None:
            return
        self._queued += 1
        if self._queued % HOLD_EVERY == HOLD_EVERY // 2:
            why = {"why": "its data set is being checked"}
            self._asked(partial(self._server.post, f"/api/v1/jobs/{name}/hold", why))
            self._held.append((self._queued + HOLD_FOR, name))

    def _let_go(self) -> None:
        due = [name for at, name in self._held if self._queued >= at]
        self._held = [each for each in self._held if each[1] not in due]
        for name in due:
            self._asked(partial(self._server.post, f"/api/v1/jobs/{name}/release", {}))

    def _asked(self, ask: Callable[[], Any]) -> Any:
        """Return the server's answer; None where it does not answer, or refuses."""
        try:
            answer = ask()
        except Refused as exc:
            self._refused += 1
            log.warning("jobs of the demo refused", extra={"why": exc})
            return None
        except HeadroomError:
            return None  # the server is away; whoever pushes says so
        self._refused = 0
        return answer

    def _run(self) -> None:
        while not self._stop.is_set() and not self.set_up():
            if self._refused:
                return
            self._stop.wait(EVERY_S)
        while not self._stop.is_set() and self.step():
            self._stop.wait(FIRST_EVERY_S if self._queued < FIRST else EVERY_S)
