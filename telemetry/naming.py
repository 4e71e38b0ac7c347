"""Names that batches bring into being: jobs that nobody placed, mounts, boot_ids.

All else that a batch names is in the inventory. Each of these gets a row when it first comes, and
there are only so many of them: of jobs by agent, of mounts by node, of boot_ids by agent. A name
that this process knows to have its row costs nothing. ``telemetry.forgetting`` removes those that
are of no use any more.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Count, QuerySet

from headroom.contracts import BatchError, TelemetryBatch
from telemetry import checks, placed, stream
from telemetry.directory import AgentScope
from telemetry.models import IngestPosition, Mount, ReportedJob
from telemetry.rows import Mount as MountName
from telemetry.rows import Packed

__all__ = [
    "MAX_BOOT_IDS",
    "MAX_NAMES",
    "Brought",
    "NamesOf",
    "are_jobs_known",
    "are_known",
    "check",
    "check_boot_id",
    "invalidate",
    "learn",
    "refused_jobs",
    "refused_mounts",
]

#: Names of jobs and mounts in one batch. A larger one is to be sent in pieces.
MAX_NAMES = 10_000
#: boot_ids of one agent that are known at once.
MAX_BOOT_IDS = 10_000
#: What a process knows to have its row is looked up again after so long, s.
_KNOWN_FOR_S = 6 * 3600.0
_MOST_KNOWN = 200_000


#: A holder's id (an agent's or a node's), and a name.
Held: TypeAlias = tuple[int, str]


class _Names(ABC):
    """The names of one kind, each held by an agent or a node, and how many one may hold."""

    #: first key of the advisory lock; the second is the holder's
    lock: int

    def __init__(self) -> None:
        self.invalidate()

    def invalidate(self) -> None:
        """Look all of them up again."""
        self._known: dict[str, frozenset[int]] = {}
        self._since = time.monotonic()

    def unknown(self, holder: int, names: Iterable[str]) -> set[str]:
        """Return the names of which this process does not know that they have their row."""
        if time.monotonic() - self._since > _KNOWN_FOR_S or len(self._known) > _MOST_KNOWN:
            self.invalidate()
        known = self._known
        return {name for name in names if holder not in known.get(name, ())}

    def know(self, holder: int, names: Iterable[str]) -> None:
        """Note that ``names`` have their rows."""
        for name in names:
            self._known[name] = self._known.get(name, frozenset()) | {holder}

    def admit(self, holder: int, names: Collection[str]) -> set[str]:
        """Give each of ``names`` its row; return those for which there is no room."""
        return self.admit_all({holder: names}).get(holder, set())

    def admit_all(self, wanted: Mapping[int, Collection[str]]) -> dict[int, set[str]]:
        """Give the names of each holder their rows; return those for which there is no room.

        One query, and three more where any is new.
        """
        pairs = {(holder, name) for holder, names in wanted.items() for name in names}
        if not pairs:
            return {}
        new = pairs - self.find(pairs)
        left = self._add_some(_by_holder(new)) if new else {}
        for holder, names in wanted.items():
            over = left.get(holder, ())
            self.know(holder, (name for name in names if name not in over))
        return left

    def _add_some(self, new: Mapping[int, Collection[str]]) -> dict[int, set[str]]:
        most = self.most()
        with transaction.atomic():
            # Else two batches at once would each find the last place free. Who locks many does it
            # in order, so that nobody waits for somebody who waits for him.
            with connection.cursor() as cursor:
                keys = sorted({holder % 2**31 for holder in new})
                cursor.execute(
                    "SELECT pg_advisory_xact_lock(%s, key) FROM unnest(%s::int[]) AS key",
                    [self.lock, keys],
                )
            counts = self.count(new.keys())
            named = {holder: sorted(names) for holder, names in new.items()}
            room = {holder: max(most - counts.get(holder, 0), 0) for holder in new}
            self.add([(h, name) for h, names in named.items() for name in names[: room[h]]])
        over = {holder: set(names[room[holder] :]) for holder, names in named.items()}
        return {holder: names for holder, names in over.items() if names}

    @abstractmethod
    def most(self) -> int:
        """Return how many names one holder may have."""

    @abstractmethod
    def find(self, pairs: Collection[Held]) -> set[Held]:
        """Return which of ``pairs`` have their row."""

    @abstractmethod
    def count(self, holders: Collection[int]) -> dict[int, int]:
        """Return how many names the holders have, of those that have any."""

    @abstractmethod
    def add(self, pairs: Sequence[Held]) -> None:
        """Write rows for ``pairs``."""


def _by_holder(pairs: Iterable[Held]) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for holder, name in pairs:
        found.setdefault(holder, set()).add(name)
    return found


def _counts(rows: QuerySet[Any], holder: str, holders: Collection[int]) -> dict[int, int]:
    """Return how many of ``rows`` each of ``holders`` has, by the name of that column."""
    of_these = rows.filter(**{f"{holder}__in": holders}).order_by()
    return dict(of_these.values_list(holder).annotate(Count("pk")))


def _found(rows: QuerySet[Any], holder: str, name: str, pairs: Collection[Held]) -> set[Held]:
    """Return which of ``pairs`` are among ``rows``, by the names of the two columns."""
    holders, names = zip(*pairs, strict=True)
    of_these = rows.filter(**{f"{holder}__in": set(holders), f"{name}__in": set(names)})
    return set(of_these.values_list(holder, name)).intersection(pairs)


class _Jobs(_Names):
    """Jobs by their names, each held by the agent that named it first."""

    lock = 0x4E4A4F42
    _placed: Collection[str] = ()

    def unknown(self, holder: int, names: Iterable[str]) -> set[str]:
        """Return the names that are not known, and those of jobs that have been placed since."""
        if (jobs := placed.jobs()) is not self._placed:
            self._placed = jobs
            # It was another scheduler's when it was looked up, and now a job of ours is called so.
            self._known = {n: h for n, h in self._known.items() if placed.job_of(n) not in jobs}
        return super().unknown(holder, names)

    def most(self) -> int:
        return settings.TELEMETRY_MAX_JOB_NAMES_PER_AGENT

    def find(self, pairs: Collection[Held]) -> set[Held]:
        # A name that somebody else was first to use is as good.
        rows = ReportedJob.objects.filter(name__in={name for _, name in pairs})
        found = set(rows.values_list("name", flat=True))
        return {(holder, name) for holder, name in pairs if name in found}

    def count(self, holders: Collection[int]) -> dict[int, int]:
        return _counts(ReportedJob.objects.all(), "agent_id", holders)

    def add(self, pairs: Sequence[Held]) -> None:
        rows = [ReportedJob(name=name, agent_id=holder) for holder, name in pairs]
        ReportedJob.objects.bulk_create(rows, ignore_conflicts=True)


class _Mounts(_Names):
    """Mounts by their names, each held by its node."""

    lock = 0x4E4D4E54

    def most(self) -> int:
        return settings.TELEMETRY_MAX_MOUNTS_PER_NODE

    def find(self, pairs: Collection[Held]) -> set[Held]:
        return _found(Mount.objects.all(), "node_id", "name", pairs)

    def count(self, holders: Collection[int]) -> dict[int, int]:
        return _counts(Mount.objects.all(), "node_id", holders)

    def add(self, pairs: Sequence[Held]) -> None:
        rows = [Mount(node_id=holder, name=name) for holder, name in pairs]
        Mount.objects.bulk_create(rows, ignore_conflicts=True)


class _BootIds(_Names):
    """The lives of an agent's spool, each with its position."""

    lock = 0x4E424F54

    def most(self) -> int:
        return MAX_BOOT_IDS

    def find(self, pairs: Collection[Held]) -> set[Held]:
        return _found(IngestPosition.objects.all(), "agent_id", "boot_id", pairs)

    def count(self, holders: Collection[int]) -> dict[int, int]:
        return _counts(IngestPosition.objects.all(), "agent_id", holders)

    def add(self, pairs: Sequence[Held]) -> None:
        rows = [IngestPosition(agent_id=holder, boot_id=name) for holder, name in pairs]
        IngestPosition.objects.bulk_create(rows, ignore_conflicts=True)


_jobs, _mounts, _boot_ids = _Jobs(), _Mounts(), _BootIds()
_KINDS: tuple[_Names, ...] = (_jobs, _mounts, _boot_ids)


def invalidate() -> None:
    """Have this process look all names up again."""
    for kind in _KINDS:
        kind.invalidate()


def are_known(batch: TelemetryBatch, packed: Packed, scope: AgentScope) -> bool:
    """Say whether :func:`check_boot_id` and :func:`check` can do without the database.

    They can where this process knows all names of the batch, and jobs that it reports on run on the
    agent's nodes.
    """
    return (
        not _boot_ids.unknown(scope.agent_id, [batch.boot_id])
        and placed.are_here(scope, _jobs.unknown(scope.agent_id, packed.jobs) | _reported(batch))
        and not any(_mounts.unknown(mount.node_id, [mount.name]) for mount in packed.mounts)
    )


def are_jobs_known(scope: AgentScope, names: Collection[str]) -> bool:
    """Say whether the agent may name jobs, so far as that can be said without the database."""
    return not names or placed.are_here(scope, _jobs.unknown(scope.agent_id, names))


@dataclass(frozen=True)
class Brought:
    """Names that an agent brings, but for those of jobs whose progress it reports."""

    scope: AgentScope
    boot_id: str
    jobs: Collection[str]
    mounts: Collection[MountName] = ()

    @classmethod
    def by(cls, batch: TelemetryBatch, packed: Packed, scope: AgentScope) -> Brought:
        """Return those of a batch, with its rows in ``packed``."""
        jobs = set(packed.jobs) - _reported(batch)
        return cls(scope, batch.boot_id, jobs, packed.mounts)


def learn(brought: Iterable[Brought]) -> None:
    """Give new names of many agents their rows, with few queries for all of them together.

    What is left to be looked at stays unknown, and is for :func:`check`: names for which there is
    no room, and jobs that are reported on or that are Headroom's own.
    """
    boot_ids: dict[int, set[str]] = {}
    mounts: dict[int, set[str]] = {}
    jobs: dict[int, set[str]] = {}
    for each in brought:
        agent_id = each.scope.agent_id
        boot_ids.setdefault(agent_id, set()).update(_boot_ids.unknown(agent_id, [each.boot_id]))
        unsure = _jobs.unknown(agent_id, each.jobs)
        jobs.setdefault(agent_id, set()).update(unsure - placed.here(each.scope, unsure))
        for mount in each.mounts:
            unknown = _mounts.unknown(mount.node_id, [mount.name])
            mounts.setdefault(mount.node_id, set()).update(unknown)
    _boot_ids.admit_all(boot_ids)
    _mounts.admit_all(mounts)
    ours = placed.known(set[str]().union(*jobs.values()))
    _jobs.admit_all({holder: names - ours for holder, names in jobs.items()})


def _reported(batch: TelemetryBatch) -> set[str]:
    told = {report.job for report in batch.checkpoints}
    return told if batch.jobs is None else told | set(batch.jobs.job)


def check_boot_id(scope: AgentScope, boot_id: str) -> None:
    """Raise where ``boot_id`` is one too many of the agent's."""
    if not _boot_ids.unknown(scope.agent_id, [boot_id]):
        return
    if stream.durable_seq(stream.shard_of(scope.name), scope.agent_id, boot_id) is not None:
        _boot_ids.know(scope.agent_id, [boot_id])
    elif _boot_ids.admit(scope.agent_id, [boot_id]):
        raise checks.too_many_boot_ids(scope, MAX_BOOT_IDS)


def check(batch: TelemetryBatch, packed: Packed, scope: AgentScope) -> None:
    """Raise where the batch, with its rows in ``packed``, has a name that its agent may not use."""
    if not packed.jobs and not packed.mounts:
        return
    _check_count(max(len(packed.jobs), len(packed.mounts)))
    newest_ts = packed.span[1] if packed.span else batch.sent_at
    refused = refused_jobs(scope, _reported(batch), set(packed.jobs), newest_ts)
    for error in (*refused.values(), *refused_mounts(packed.mounts).values()):
        raise error


class NamesOf:
    """Errors in the names of one batch of an agent, for callers who look at each row."""

    def __init__(self, scope: AgentScope) -> None:
        self._scope = scope

    def jobs(
        self, reported: Collection[str], named: Collection[str], newest_ts: float
    ) -> dict[str, BatchError]:
        """Return errors of jobs, by name. Raises :class:`TooManyRows`."""
        _check_count(len(named))
        return refused_jobs(self._scope, reported, named, newest_ts)

    def mounts(self, named: Collection[MountName]) -> dict[MountName, BatchError]:
        """Return errors of mounts. Raises :class:`TooManyRows`."""
        _check_count(len(named))
        return refused_mounts(named)


def _check_count(names: int) -> None:
    if names > MAX_NAMES:
        raise checks.names_at_once(names, MAX_NAMES)


def refused_jobs(
    scope: AgentScope, reported: Collection[str], named: Collection[str], newest_ts: float
) -> dict[str, BatchError]:
    """Return errors of names of jobs, by name; the others have a row from here on.

    ``reported``: whose progress the agent reports, so that they have to be placed on its nodes.
    ``named``: those and all that its GPUs are labeled with. Another scheduler's jobs are none of
    ours, and may stand there; ours have to be placed on its nodes. ``newest_ts``: when that was,
    Unix s, since a spool may hold what is hours old.
    """
    # What is known is none of ours; what is reported has to be placed at any time.
    unsure = _jobs.unknown(scope.agent_id, named) | set(reported)
    if not unsure:
        return {}
    unplaced = unsure - placed.here(scope, unsure)
    refused: dict[str, BatchError] = {}
    if not scope.any_job:
        unplaced -= placed.were_here(scope, unplaced, newest_ts)
        known = placed.known(unplaced)
        just_placed = placed.just_placed(scope, known)
        unplaced -= just_placed
        foreign = unplaced.intersection(known.union(reported))
        refused = {name: checks.foreign_job(name, scope) for name in sorted(foreign)}
    left = _jobs.admit(scope.agent_id, unplaced - refused.keys())
    most = settings.TELEMETRY_MAX_JOB_NAMES_PER_AGENT
    return refused | {name: checks.too_many_jobs(name, scope, most) for name in sorted(left)}


def refused_mounts(named: Collection[MountName]) -> dict[MountName, BatchError]:
    """Return errors of mounts; the others have a row from here on."""
    by_node: dict[int, list[str]] = {}
    for mount in named:
        by_node.setdefault(mount.node_id, []).append(mount.name)
    most = settings.TELEMETRY_MAX_MOUNTS_PER_NODE
    return {
        MountName(node_id, name): checks.too_many_mounts(name, most)
        for node_id, names in by_node.items()
        for name in sorted(_mounts.admit(node_id, _mounts.unknown(node_id, names)))
    }
