"""Rollouts in Postgres: begun, followed and answered by people. Each move is one transaction.

A rollout's row is locked for as long as it is moved, so of two workers one moves it, and what a
move asks for (runs of a playbook, or taking them back) is committed with the state that tells of
it. Nothing is installed by these: the runs' playbook says how a rack comes to the change, by
restrictions, a webhook or a person, and its undo how it comes back.
"""

from __future__ import annotations

import dataclasses
import enum
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from django.db import IntegrityError, transaction

from accounts import audit
from accounts.models import User
from accounts.roles import Capability
from fleet import snapshot
from headroom.numbers import plain
from policies import current
from policies.documents.life import Kind
from policies.playbooks import runs as playbook_runs
from policies.playbooks.machine import RunState
from policies.playbooks.models import PlaybookRun
from policies.rollouts import document, gathering, machine
from policies.rollouts.arming import NoRacks, arms_of
from policies.rollouts.document import Plan
from policies.rollouts.judging import Judgement, judge
from policies.rollouts.machine import Change, Effect, Move, Rollout, RolloutState, Seen, TakeBack
from policies.rollouts.models import RolloutEvent, RolloutRun, RolloutVersion
from policies.scopes import Scope, ScopeKind

__all__ = ["ROLLOUTS", "NotPossible", "Verb", "act", "due", "follow", "start"]

NotPossible = machine.NotPossible

_FIELDS = ("state", "step", "since", "why", "by", "soaking_since")
#: Evidence is read anew so often: roll-ups are by the minute.
_JUDGED_EVERY = timedelta(seconds=60)


ROLLOUTS = Kind(noun="rollout", model=RolloutVersion, name_of=lambda text: document.read(text).name)


class Verb(enum.StrEnum):
    """What a person may do with a rollout."""

    PROMOTE = "promote"
    HOLD = "hold"
    RESUME = "resume"
    ROLL_BACK = "roll_back"

    @property
    def capability(self) -> Capability:
        """What it takes: to stop harm takes less than to go on."""
        stops = self in (Verb.HOLD, Verb.ROLL_BACK)
        return Capability.RUN_PLAYBOOKS if stops else Capability.EDIT_POLICIES


_OF_STATE = {
    Verb.HOLD: machine.hold,
    Verb.RESUME: machine.resume,
    Verb.ROLL_BACK: machine.roll_back,
}


# --- By itself -----------------------------------------------------------------------------------


def due() -> list[int]:
    """Return the rollouts that are not over, the oldest first."""
    return list(RolloutRun.objects.live().order_by("id").values_list("pk", flat=True))


def follow(run_id: int, now: datetime) -> bool:
    """Make the next move of a rollout, if there is one; return whether there was.

    Where another worker moves it, nothing is done.
    """
    with transaction.atomic():
        rows = RolloutRun.objects.select_for_update(skip_locked=True, of=("self",))
        run = rows.select_related("version").filter(pk=run_id).first()
        if run is None or RolloutState(run.state).is_over:
            return False
        plan = document.read(run.version.text)
        move = machine.move(plan, _load(run), _seen(plan, run, now), now)
        if move is None:
            return False
        _make(plan, run, move, now)
    return True


def _load(run: RolloutRun) -> Rollout:
    values: dict[str, Any] = {name: getattr(run, name) for name in _FIELDS}
    state = RolloutState(run.state)
    has_begun = len(run.racks) > run.step
    return Rollout(**{**values, "state": state}, has_begun=has_begun)


def _seen(plan: Plan, run: RolloutRun, now: datetime) -> Seen:
    state = RolloutState(run.state)
    racks = [path for step in run.racks for path in step]
    back = state is RolloutState.ROLLING_BACK
    missing, failed = _reported(plan, run, racks, back=back)
    judgement = None
    is_judged = state is RolloutState.SOAKING and not missing
    if is_judged and (run.judged_at is None or now - run.judged_at >= _JUDGED_EVERY):
        judgement = _judgement(plan, run, racks, now)
    return Seen(tuple(missing), tuple(failed), judgement)


def _reported(
    plan: Plan, run: RolloutRun, racks: list[str], *, back: bool
) -> tuple[list[str], list[str]]:
    """Return the racks that are not where they are to be, and what failed. Two queries.

    Of what agents do not report, the runs of the playbook are believed.
    """
    states = dict(
        PlaybookRun.objects.filter(pk__in=run.playbook_runs.values()).values_list("pk", "state")
    )
    wanted = RunState.UNDONE if back else RunState.SUCCEEDED
    ended = {path: states.get(pk, "") for path, pk in run.playbook_runs.items() if path in racks}
    failed = [
        f"run {run.playbook_runs[path]} of {plan.playbook} on {path}: {state}"
        for path, state in ended.items()
        if state in (RunState.FAILED, RunState.ABORTED, RunState.UNDONE) and state != wanted
    ]
    if plan.field is None:
        return [path for path in racks if ended.get(path) != wanted], failed
    fleet = snapshot.fresh()
    gone = set(racks) - set(fleet.racks.paths.tolist())
    off = {each["rack"] for each in gathering.drift(plan, fleet, racks, back=back)}
    return [path for path in racks if path in gone | off], failed


def _judgement(plan: Plan, run: RolloutRun, racks: list[str], now: datetime) -> Judgement | None:
    """Judge the step that soaks, and keep what was found; None: nothing is left to compare with."""
    if run.soaking_since is None or run.changing_since is None or not run.control:
        return None
    fleet = snapshot.fresh()
    found = gathering.evidence(
        plan, fleet, changed=racks, control=run.control, changing_since=run.changing_since,
        soaking_since=run.soaking_since, sizes=run.checkpoint_bytes, now=now,
    )  # fmt: skip
    step, soaked_s = plan.steps[run.step], (now - run.soaking_since).total_seconds()
    judgement = judge(
        plan.guards, found.means, found.counts, alpha=plan.alpha, beta=plan.beta,
        steps=max(plan.judged_steps, 1), soaked=soaked_s >= step.soak_s,
        is_over=soaked_s >= step.longest_s,
    )  # fmt: skip
    run.judged = plain(
        {
            "verdict": judgement.verdict.value,
            "why": judgement.why,
            "covered": found.covered,
            "blocks": found.blocks,
            "other_work": found.other_work,
            "findings": [dataclasses.asdict(each) for each in judgement.findings],
        }
    )
    run.judged_at = now
    run.save(update_fields=["judged", "judged_at"])
    return judgement


# --- Making a move -------------------------------------------------------------------------------


def _make(plan: Plan, run: RolloutRun, move: Move, now: datetime) -> None:
    """Do what a move asks for, and save the state that it leads to.

    What cannot be done holds the rollout where it is.
    """
    try:
        with transaction.atomic():
            for effect in move.effects:
                _perform(plan, run, effect, now)
    except (NoRacks, playbook_runs.BadStart) as error:
        run.refresh_from_db()
        held = dataclasses.replace(
            _load(run), state=RolloutState.HELD, since=now, why=str(error)[:500], by=""
        )
        move = Move(held)
    before = _state_of(run)
    for name in _FIELDS:
        setattr(run, name, getattr(move.rollout, name))
    run.why = run.why[:500]
    run.ended_at = now if move.rollout.state.is_over else None
    if move.rollout.soaking_since is None:
        run.judged, run.judged_at = {}, None
    run.save()
    _tell(run, now)
    told = audit.changes(before, _state_of(run))
    audit.record(run.by or f"rollout:{run.name}", f"rollout.{run.state}", str(run.version), **told)


def _state_of(run: RolloutRun) -> audit.State:
    """Return what the audit log keeps: no names of jobs, which not all of its readers may see."""
    return {"state": run.state, "step": run.step, "why": run.why, "racks": run.racks}


def _tell(run: RolloutRun, now: datetime) -> None:
    RolloutEvent.objects.create(
        run=run, at=now, state=run.state, step=run.step, by=run.by, text=run.why
    )


def _perform(plan: Plan, run: RolloutRun, effect: Effect, now: datetime) -> None:
    if isinstance(effect, Change):
        _change(plan, run, effect.step, now)
    elif isinstance(effect, TakeBack):
        _take_back(run, effect.why, now)


def _change(plan: Plan, run: RolloutRun, step: int, now: datetime) -> None:
    """Choose the racks of a step, and start the playbook on each. Raises NoRacks, BadStart."""
    headroom = current.headroom(now.timestamp())
    paths = headroom.fleet.racks.paths.astype(str)
    changed = np.isin(paths, [path for racks in run.racks for path in racks])
    added, arms = arms_of(plan, step, headroom, changed, seed=run.pk)
    run.racks = [*run.racks[:step], paths[added].tolist()]
    run.control = [] if arms is None else paths[arms.control].tolist()
    run.imbalance = {} if arms is None else plain(arms.imbalance)
    if run.changing_since is None:
        run.changing_since, run.checkpoint_bytes = now, gathering.checkpoint_sizes()
    for path in run.racks[step]:
        started = playbook_runs.start(
            plan.playbook,
            scope=Scope(ScopeKind.RACK, path),
            values={"rollout": run.name, "kind": plan.what.value, "version": plan.version},
            incident_id=None,
            by=f"rollout:{run.name}",
            now=now,
        )
        run.playbook_runs[path] = started.pk


def _take_back(run: RolloutRun, why: str, now: datetime) -> None:
    """Take back the playbook on each rack, the last that was changed first."""
    over = {RunState.UNDOING, RunState.UNDONE}
    rows = PlaybookRun.objects.filter(pk__in=run.playbook_runs.values())
    done = set(rows.filter(state__in=over).values_list("pk", flat=True))
    for pk in sorted(run.playbook_runs.values(), reverse=True):
        if pk not in done:
            playbook_runs.undo(pk, user=f"rollout:{run.name}", why=why[:300], now=now)


# --- What people do ------------------------------------------------------------------------------


def start(user: User, name: str, *, now: datetime) -> RolloutRun:
    """Begin the version of a rollout that is in force. Raises :class:`NotPossible`.

    It goes on by that version, whatever comes into force meanwhile.
    """
    version = RolloutVersion.objects.active().filter(name=name).first()
    if version is None:
        raise NotPossible(f"no version of {name} is in force: have somebody review one")
    by = user.get_username()
    try:
        with transaction.atomic():
            run = RolloutRun.objects.create(
                version=version, name=name, since=now, started_at=now, by=by
            )
            _tell(run, now)
            told = audit.changes(None, _state_of(run))
            audit.record(user, "rollout.start", str(version), **told)
    except IntegrityError as error:
        raise NotPossible(f"{name} is under way already") from error
    return run


@transaction.atomic
def act(user: User, run_id: int, verb: Verb, *, why: str, now: datetime) -> RolloutRun:
    """Make a person's move, waiting for whoever has the rollout.

    Raises RolloutRun.DoesNotExist, :class:`NotPossible`.
    """
    rows = RolloutRun.objects.select_for_update(of=("self",)).select_related("version")
    run = rows.get(pk=run_id)
    plan, rollout, by = document.read(run.version.text), _load(run), user.get_username()
    if verb is Verb.PROMOTE:
        seen = _seen(plan, run, now)
        move = machine.promote(plan, rollout, seen, now, by=by, why=why)
    else:
        move = _OF_STATE[verb](rollout, now, by=by, why=why)
    _make(plan, run, move, now)
    return run
