from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from accounts.models import User
from accounts.roles import Role
from fleet import snapshot
from policies import current
from policies.headroom.columns import FIELDS, Table
from policies.playbooks import runs
from policies.playbooks.models import PlaybookRun, PlaybookVersion
from policies.playbooks.run_context import Conditions
from policies.playbooks.versions import PLAYBOOKS
from policies.restrictions.models import Restriction
from policies.scopes import Scope, ScopeKind
from telemetry import stream
from tests.builders.accounts import make_user
from tests.builders.documents import put_in_force
from tests.builders.fleet import SmallFleet, small_fleet

RACK = Scope(ScopeKind.RACK, "oslo/A01")

HEAD = """\
name: {name}
description: Shows how a run goes
scopes: [rack]
constraint: Heat
failure_mode: GPUs slow down
switching_cost: Minutes
"""


@pytest.fixture(autouse=True)
def fleet(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallFleet]:
    """One site with six racks, and no worker: tests move runs by hand."""
    stream.connection().flushall()
    snapshot.invalidate()
    monkeypatch.setattr("celery.current_app.send_task", lambda *_args, **_options: None)
    yield small_fleet(sites=["oslo"])
    snapshot.invalidate()


@dataclass
class Readings:
    """What headroom says of racks, in place of what telemetry would show."""

    values: dict[str, float]

    @property
    def summary(self) -> Any:
        """What GPUs and nodes draw."""
        fleet = snapshot.current()
        gpus = SimpleNamespace(load_w=np.full(len(fleet.gpus), 900.0))
        return SimpleNamespace(
            gpus=gpus, nodes=SimpleNamespace(load_w=np.full(len(fleet.nodes), 4500.0))
        )

    def table(self, kind: ScopeKind) -> Table:
        fleet = snapshot.current()
        names = fleet.racks.paths if kind is ScopeKind.RACK else fleet.sites.names
        columns: dict[str, Any] = {}
        for name, field in FIELDS[kind].items():
            value = self.values.get(name, np.nan)
            dtype: Any = {"double": float, "bool": bool, "string": object}[field.type]
            filler = {"double": value, "bool": bool(np.nan_to_num(value)), "string": ""}[field.type]
            columns[name] = np.full(len(names), filler, dtype=dtype)
        return Table(kind, names, {**columns, "name": names})


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> Readings:
    shown = Readings({"power_drawn_w": 9000.0, "power_budget_w": 12000.0, "gpus": 8.0})

    monkeypatch.setattr(current, "headroom", lambda _now: shown)
    return shown


@dataclass
class Stage:
    """Plays one run over a clock of its own."""

    run: PlaybookRun
    now: datetime

    def play(self, seconds: float = 0.0) -> PlaybookRun:
        self.now += timedelta(seconds=seconds)
        runs.advance(self.run.pk, self.now, Conditions(self.now))
        self.run.refresh_from_db()
        return self.run

    def states(self) -> dict[str, str]:
        return dict(self.run.steps.order_by("id").values_list("step", "state"))

    def in_force(self) -> set[tuple[str, float | None]]:
        rows = Restriction.objects.in_force(self.now)
        return {(row.kind, row.value) for row in rows}


def make_playbook(steps: str, name: str = "on-stage", head: str = HEAD) -> PlaybookVersion:
    """Make an active playbook with these steps."""
    text = f"{head.replace('{name}', name)}steps:\n{textwrap.indent(textwrap.dedent(steps), '  ')}"
    return put_in_force(PLAYBOOKS, text, author="ada", reviewer="bob")


def start(
    steps: str, *, incident_id: int | None = None, inputs: dict[str, float] | None = None
) -> Stage:
    """Start a playbook with these steps on a rack."""
    version = make_playbook(steps)
    now = datetime.now(UTC)
    run = runs.start(
        version.name, scope=RACK, values={}, incident_id=incident_id, by="ada", now=now,
        inputs=inputs,
    )  # fmt: skip
    return Stage(run, now)


@pytest.fixture
def operator(db: None) -> User:
    return make_user(Role.OPERATOR)


@pytest.fixture
def responder(db: None) -> User:
    return make_user(Role.RESPONDER)
