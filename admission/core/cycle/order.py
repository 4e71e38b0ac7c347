"""In which order jobs are tried: priority, then shares level by level, then time waited.

Of two jobs the one of more priority goes first. Of equal priority it is the one whose organization
has had less for its weight, then whose project has, then whose user has, then the one that has
waited for longer. What a job has waited, and a deadline that comes near, make up for priority, but
only against those who have had more: however long a backlog waits, it is never put ahead of
somebody who has had less.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property

import numpy as np
import numpy.typing as npt

from admission.core.snapshot import Pending, ProjectShare, Running, Tuning

__all__ = ["Order", "order", "ranks_of", "tried"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: Of a project of which nothing is known.
_NOBODY = ProjectShare("")


@dataclass(frozen=True, eq=False)
class Order:
    """Pending jobs in the order in which they are tried, the first first, with what decided it.

    ``urgency`` is the priority with what waiting and a near deadline have made up for.
    """

    columns: Columns
    #: Unix seconds
    now: float
    urgency: Floats
    waited_s: Floats
    accounts: Accounts
    #: the leaf of ``accounts`` that each job counts for
    leaf: Ints

    def __len__(self) -> int:
        return len(self.pending)

    @property
    def pending(self) -> tuple[Pending, ...]:
        return self.columns.pending

    @property
    def priority(self) -> Floats:
        return self.columns.priority

    def sentence(self, place: int) -> str:
        """Return what decided the place of the job at ``place`` (from 0) in words."""
        parts = [f"priority {self.priority[place]:g}"]
        raised = float(self.urgency[place] - self.priority[place])
        if np.isinf(raised):
            parts[0] += ", before all others with what it was moved for"
        elif raised:
            parts[0] += f", {raised:.1f} more for waiting or a deadline"
        if (deadline_at := float(self.columns.deadline_at[place])) < self.now:
            parts.append(
                f"its deadline, {datetime.fromtimestamp(deadline_at, UTC):%Y-%m-%d %H:%M} UTC, has"
                " passed and counts nothing any more"
            )
        parts += self.accounts.told(int(self.leaf[place]))
        parts.append(f"waited {self.waited_s[place] / 60.0:.0f} min")
        return f"{place + 1} of {len(self)}: {'; '.join(parts)}"


@dataclass(frozen=True, eq=False)
class Columns:
    """What the order goes by, of jobs that wait: a row for each."""

    pending: tuple[Pending, ...]
    #: projects with their users, and the place of each job's among them
    accounts: tuple[tuple[str, str], ...]
    account: Ints
    priority: Floats
    submitted_at: Floats
    #: inf: none
    deadline_at: Floats
    gpus: Floats
    walltime_s: Floats
    can_run: Bools
    #: it goes on after a move, with what is kept for it: before all others
    returns: Bools
    #: goes up with the key, which tells equals apart
    by_key: Floats

    @classmethod
    def of(cls, pending: Sequence[Pending], now: float) -> Columns:
        """Return the columns of jobs as they are at ``now`` (Unix s)."""
        requests = [each.request for each in pending]
        number: dict[tuple[str, str], int] = {}
        account = [
            number.setdefault((each.request.project, each.user), len(number)) for each in pending
        ]
        return cls(
            pending=tuple(pending),
            accounts=tuple(number),
            account=np.array(account, dtype=np.int64),
            priority=np.array([each.priority for each in requests], dtype=np.float64),
            submitted_at=np.array([each.submitted_at for each in requests], dtype=np.float64),
            deadline_at=np.array([each.deadline_at or np.inf for each in requests]),
            gpus=np.array([each.gpus for each in requests], dtype=np.float64),
            walltime_s=np.array([each.walltime_s for each in requests], dtype=np.float64),
            can_run=np.array([not each.is_kept_back(now) for each in pending], dtype=np.bool_),
            returns=np.array([each.returns_to is not None for each in pending], dtype=np.bool_),
            by_key=ranks_of([each.key for each in requests]),
        )

    @cached_property
    def _rows_by_key(self) -> tuple[Ints, list[str]]:
        """The rows in order of their keys, and these."""
        rows = np.argsort(self.by_key)
        return rows, [self.pending[row].request.key for row in rows.tolist()]

    def chosen(self, rows: Ints) -> Columns:
        """Return some rows, in that order."""
        return replace(
            self,
            pending=tuple([self.pending[row] for row in rows.tolist()]),
            **{name: getattr(self, name)[rows] for name in _ARRAYS},
        )

    def with_last(self, pending: Pending, now: float) -> Columns:
        """Return the columns with one more job, in the last row, in place of any of its key."""
        key, (rows, keys) = pending.request.key, self._rows_by_key
        at = bisect_left(keys, key)
        is_known = at < len(keys) and keys[at] == key
        before = self.by_key[rows[at - 1]] if at else -1.0
        others = self.chosen(np.delete(np.arange(len(keys)), rows[at : at + is_known]))
        one = Columns.of([pending], now)
        one = replace(
            one, account=one.account + len(self.accounts), by_key=np.array([before + 0.5])
        )
        return replace(
            others,
            pending=(*others.pending, pending),
            accounts=(*self.accounts, *one.accounts),
            **{name: np.append(getattr(others, name), getattr(one, name)) for name in _ARRAYS},
        )


_ARRAYS = (
    "account", "priority", "submitted_at", "deadline_at", "gpus", "walltime_s", "can_run",
    "returns", "by_key",
)  # fmt: skip


def order(
    pending: Sequence[Pending] | Columns,
    running: Sequence[Running],
    projects: Mapping[str, ProjectShare],
    *,
    now: float,
    tuning: Tuning,
) -> Order:
    """Return ``pending`` in the order in which they are tried.

    A job counts against its user, project and organization from the moment it is queued, for those
    of them that come after it. So accounts take turns, and what a job asks for moves none that is
    ahead of it. What is kept back moves nobody, and an account of which nothing else is there
    shares with nobody.
    """
    columns = pending if isinstance(pending, Columns) else Columns.of(pending, now)
    can_run = columns.can_run
    accounts, leaf = _accounts(columns, running, projects, tuning)
    accounts.note_present(leaf[can_run], running)
    begins = [each for each in running if each.started_at >= now]
    waiting = _Urgency.of(columns, now, tuning)
    urgency = np.where(can_run, 0.0, waiting.priority)
    # Who has begun in this cycle still counts, so that no start changes the order of the others.
    just_begun = Columns.of([Pending(each.request, each.user) for each in begins], now)
    beside = _Urgency.of(just_begun, now, tuning)
    lifted = _lifted(
        np.append(waiting.priority[can_run], beside.priority),
        np.append(waiting.raw[can_run], beside.raw),
        accounts.standing[np.append(leaf[can_run], accounts.leaves_of(begins))],
    )
    urgency[can_run] = lifted[: int(can_run.sum())]
    urgency[columns.returns & can_run] = np.inf
    cost_s = tuning.fair_share_horizon_s * np.where(can_run, columns.gpus, 0.0)
    first = np.lexsort((columns.by_key, columns.submitted_at, -waiting.raw, -urgency))
    places = accounts.in_turns(first, leaf, cost_s, urgency)
    return Order(
        columns.chosen(places),
        now,
        urgency[places],
        np.maximum(now - columns.submitted_at, 0.0)[places],
        accounts,
        leaf[places],
    )


def ranks_of(keys: Sequence[str]) -> Floats:
    """Return numbers that go up with ``keys``, each of which is there once."""
    ranks = np.empty(len(keys), dtype=np.float64)
    ranks[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(keys))
    return ranks


# --- Priority, and what makes up for it -----------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Urgency:
    """The priorities of jobs, and what they would be with all that they have waited (``raw``)."""

    priority: Floats
    raw: Floats

    @classmethod
    def of(cls, columns: Columns, now: float, tuning: Tuning) -> _Urgency:
        waited = np.maximum(now - columns.submitted_at, 0.0) / tuning.wait_s_per_point
        raw = columns.priority + waited + _deadline_points(columns.deadline_at, now, tuning)
        return cls(columns.priority, raw)


def _deadline_points(at: Floats, now: float, tuning: Tuning) -> Floats:
    left = np.clip((at - now) / tuning.deadline_within_s, 0.0, 1.0)
    # It is one to begin by, whatever the run takes: until it has passed, a start now keeps it.
    points: Floats = np.where(at < now, 0.0, tuning.deadline_points * (1.0 - left))
    return points


def _lifted(priority: Floats, raw: Floats, standing: Ints) -> Floats:
    """Return priorities with what waiting makes up for: see the head of this file.

    ``standing``: from 0 on, the less an account has had the lower. A job rises up to the most
    priority of those that have had as much or more. And whoever has no less priority and has had no
    more rises with it, so that nobody passes them by waiting.
    """
    if not len(priority):
        return priority
    kinds, kind = np.unique(priority, return_inverse=True)
    most = np.full(int(standing.max()) + 1, -np.inf)
    np.maximum.at(most, standing, priority)
    most = np.maximum.accumulate(most[::-1])[::-1]
    highest = np.full((len(kinds), len(most)), -np.inf)
    np.maximum.at(highest, (kind, standing), np.minimum(raw, most[standing]))
    highest = np.maximum.accumulate(highest, axis=0)
    highest = np.maximum.accumulate(highest[:, ::-1], axis=1)[:, ::-1]
    found: Floats = highest[kind, standing]
    return found


# --- Accounts -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Account:
    """One organization, project or user, and the account above it."""

    name: str
    parent: str
    weight: float
    used_gpu_s: float
    #: of a user, who is not named to others
    user: str = ""


@dataclass(eq=False)
class _Level:
    """The accounts of one level of the tree, and which of them each leaf belongs to.

    ``used_s`` is past use, ``had_s`` the same with what runs, GPU seconds.
    """

    #: as in "organization research"
    names: list[str]
    of_leaf: Ints
    #: the account above each, of the level above
    parent: Ints
    weight: Floats
    used_s: Floats
    had_s: Floats
    #: whether something of it runs or could
    is_present: Bools

    @classmethod
    def of(cls, each_leaf: Sequence[_Account]) -> _Level:
        """Return a level, given the account of each leaf."""
        number = {each: at for at, each in enumerate(dict.fromkeys(each_leaf))}
        weight = np.array([max(each.weight, 0.0) for each in number], dtype=np.float64)
        used_s = np.array([each.used_gpu_s for each in number], dtype=np.float64)
        parents = {each.parent: None for each in number}
        above = {name: at for at, name in enumerate(parents)}
        return cls(
            names=[each.name for each in number],
            of_leaf=np.array([number[each] for each in each_leaf], dtype=np.int64),
            parent=np.array([above[each.parent] for each in number], dtype=np.int64),
            weight=weight,
            used_s=used_s,
            had_s=used_s,
            is_present=np.zeros(len(number), dtype=np.bool_),
        )

    def normalized(self, had_s: Floats, account: Ints) -> Floats:
        """Return what accounts have had for each unit of weight, s; inf for none of it."""
        weight = self.weight[account]
        none = np.full(len(had_s), np.inf)
        found: Floats = np.divide(had_s, weight, out=none, where=weight > 0)
        return found


@dataclass(eq=False)
class Accounts:
    """The tree of accounts that jobs count for: organizations, projects, and users as leaves.

    A project of no organization stands beside the organizations, with its own weight.
    """

    levels: tuple[_Level, ...]
    #: by leaf: its place by past use from 0 on, who had least first; equals share one
    standing: Ints
    _leaf: dict[tuple[str, str], int]
    _horizon_s: float

    @property
    def projects(self) -> Ints:
        """The project of each leaf, as a number."""
        return self.levels[1].of_leaf

    def leaves_of(self, running: Sequence[Running]) -> Ints:
        leaf = self._leaf
        return np.array([leaf[each.request.project, each.user] for each in running], dtype=np.int64)

    def note_present(self, waiting: Ints, running: Sequence[Running]) -> None:
        """Count what runs, and whose accounts are there at all; ``waiting``: leaves."""
        leaf = self.leaves_of(running)
        held_s = self._horizon_s * np.array(
            [each.request.counted(each.request.gpus) for each in running], dtype=float
        )
        for level in self.levels:
            level.had_s = level.used_s + np.bincount(
                level.of_leaf[leaf], weights=held_s, minlength=len(level.names)
            )
            level.is_present[level.of_leaf[np.append(waiting, leaf)]] = True

    def in_turns(self, first: Ints, leaf: Ints, cost_s: Floats, urgency: Floats) -> Ints:
        """Return the rows of jobs in order, whose users, projects and organizations take turns.

        ``first``: the rows in the order in which each user's go; ``cost_s``: what each job counts
        for those of its accounts behind it.
        """
        places = first
        for level in reversed(self.levels):
            account = level.of_leaf[leaf[places]]
            ahead_s = _before_in_group(cost_s[places], account)
            had = level.normalized(level.had_s[account] + ahead_s, account)
            places = places[np.lexsort((had, -urgency[places]))]
        return places

    def told(self, leaf: int) -> list[str]:
        """Return in words what the accounts of a leaf have had, and what is due to them."""
        return [
            f"its {name} has had {100 * had:.0f} % and is due {100 * due:.0f} %"
            for name, had, due in self.shares_of(leaf)
        ]

    def shares_of(self, leaf: int) -> list[tuple[str, float, float]]:
        """Return name, share had and share due of each account of a leaf, the top first.

        Shares are of what all have had that are there beside it, under the same parent. Where
        nobody else is, the level is left out.
        """
        found = []
        for level in self.levels:
            own = int(level.of_leaf[leaf])
            beside = level.is_present & (level.parent == level.parent[own])
            beside[own] = True
            if beside.sum() < 2:
                continue
            had_s, weight = float(level.had_s[beside].sum()), float(level.weight[beside].sum())
            had = float(level.had_s[own]) / had_s if had_s else 0.0
            due = float(level.weight[own]) / weight if weight else 0.0
            found.append((level.names[own], had, due))
        return found


def _accounts(
    columns: Columns,
    running: Sequence[Running],
    projects: Mapping[str, ProjectShare],
    tuning: Tuning,
) -> tuple[Accounts, Ints]:
    """Return the accounts of all that waits or runs, and the leaf of each job that waits."""
    number: dict[tuple[str, str], int] = {}
    leaves = [number.setdefault(each, len(number)) for each in columns.accounts]
    leaf = np.array(leaves, dtype=np.int64)[columns.account]
    for each in running:
        number.setdefault((each.request.project, each.user), len(number))
    used_by = defaultdict[str, float](float)
    for share in projects.values():
        used_by[share.organization] += share.used_gpu_s
    paths = [_path(projects.get(name, _NOBODY), name, user, used_by) for name, user in number]
    levels = tuple(_Level.of([path[depth] for path in paths]) for depth in range(3))
    past = [level.normalized(level.used_s, np.arange(len(level.names))) for level in levels]
    had_before = [had[level.of_leaf] for level, had in zip(levels, past, strict=True)]
    _, standing = np.unique(np.stack(had_before, axis=1), axis=0, return_inverse=True)
    return Accounts(levels, standing.reshape(-1), number, tuning.fair_share_horizon_s), leaf


def _path(
    share: ProjectShare, project: str, user: str, used_by: Mapping[str, float]
) -> tuple[_Account, _Account, _Account]:
    """Return the accounts that a user's jobs for a project count for, the top first."""
    name = f"project {project}"
    # One of no organization stands beside the organizations itself, and is alone in its place.
    above = f"organization {share.organization}" if share.organization else name
    own = _Account(name, above, share.weight, share.used_gpu_s)
    weight, used_gpu_s = share.user_weights.get(user, 1.0), share.used_by_user.get(user, 0.0)
    leaf = _Account("user", name, weight, used_gpu_s, user)
    if not share.organization:
        return replace(own, parent=""), own, leaf
    used_gpu_s = used_by[share.organization]
    return _Account(above, "", share.organization_weight, used_gpu_s), own, leaf


def _before_in_group(values: Floats, group: Ints) -> Floats:
    """Return for each the sum of the values that come before it in its group."""
    places = np.argsort(group, kind="stable")
    sums = np.cumsum(values[places]) - values[places]
    firsts = np.append(True, np.diff(group[places]) != 0)[: len(places)]
    # What the groups before it came to is carried from the first of each group on.
    offsets = np.maximum.accumulate(np.where(firsts, sums, 0.0)) if len(places) else sums
    out = np.empty(len(values))
    out[places] = sums - offsets
    return out


# --- How far a cycle looks ------------------------------------------------------------------------


def tried(found: Order, depth: int) -> Bools:
    """Return which jobs of an order a cycle tries: no more than ``depth`` of those that can run.

    Projects share the depth evenly, and in each its users; what one does not use, others have. Of
    its own the first in order are tried. What is kept back counts nothing, and is not tried anyway.
    """
    within = ~found.columns.can_run
    places = np.flatnonzero(found.columns.can_run)
    if len(places) <= depth:
        within[places] = True
        return within
    user = found.leaf[places]
    project = found.accounts.projects[user]
    # The first of each user before the second of any, and then so by project.
    turns = np.argsort(_turns(user), kind="stable")
    turns = turns[np.lexsort((turns, _turns(project[turns])))]
    within[places[turns[:depth]]] = True
    return within


def _turns(group: Ints) -> Ints:
    """Return the place of each in its group, from 0."""
    return _before_in_group(np.ones(len(group)), group).astype(np.int64)
