"""Jobs that go on in another scheduler: cancelled where they are, and then submitted elsewhere.

Which job has to leave its site says its fallback state. Our job stays one: what it is submitted as
in the other scheduler carries the key of its move, and takes its place. Nothing is submitted before
its scheduler has confirmed that the job is over there, and nothing twice, whoever dies when. Each
call makes good what is not so yet.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef

from admission.core.response.fallback import Fallback
from admission.directives import fallback
from admission.directives.models import JobFallback
from admission.executors.schedulers import moves, news, registered
from admission.executors.schedulers.models import Move, Scheduler, SchedulerJob
from admission.jobs import history
from admission.jobs.models import Attempt, Job, Phase
from fleet import snapshot
from headroom.schedulers import words
from headroom.schedulers.contract import CAN_MOVE, EndedAs, JobState

__all__ = ["LEAVING", "arrive", "call_off", "follow", "waiting"]

#: The kinds of events.
LEAVES, LEFT, ARRIVED = "leaves", "left", "arrived"
#: A scheduler that has refused a job is asked again after this.
_AGAIN = timedelta(seconds=60)
#: As many as one cycle has leave.
_MOST = 500
#: Moves under which a job has not ended where it was.
LEAVING = Move.objects.filter(source=OuterRef("pk"), state=Move.State.LEAVING)
#: How a job may end that goes on elsewhere; one that has run to its end does not.
_GOES_ON = (EndedAs.CANCELLED, EndedAs.LOST)


def call_off() -> None:
    """Call off moves of jobs that are over: what arrives of them yet is cancelled."""
    ours = Job.objects.open().filter(name=OuterRef("name"))
    for move in Move.objects.open().filter(~Exists(ours)):
        _end(move, Move.State.OFF)


def arrive(rows: Sequence[SchedulerJob]) -> list[SchedulerJob]:
    """Put jobs that came by a move in the place of those that left; return all others."""
    keys = {row.pk: key for row in rows if (key := _key(row))}
    if not keys:
        return list(rows)
    found = Move.objects.filter(key__in=keys.values()).exclude(state=Move.State.ARRIVED)
    by_key = {move.key: move for move in found}
    left = []
    for row in rows:
        move = by_key.get(keys.get(row.pk, ""))
        if move is None or not _is_of(move, row):
            left.append(row)
        elif move.state == Move.State.AWAY:
            # The first is the one: whoever copies its comment has a job of their own.
            del by_key[move.key]
            row.name, row.is_adopted, row.is_changed = move.name, True, True
            row.save(update_fields=["name", "is_adopted", "is_changed"])
        else:
            row.cancel_for = "it goes on elsewhere: it was submitted too late"
            row.save(update_fields=["cancel_for"])
    return left


def _key(row: SchedulerJob) -> str:
    return words.moved_by(row.report.comment)


def _is_of(move: Move, row: SchedulerJob) -> bool:
    if move.to_id != row.scheduler_id:
        return False
    if move.state == Move.State.OFF:
        return True
    if move.parcel["user"] != row.report.user:
        return False
    # There may be one that came by it already.
    return not SchedulerJob.objects.open().filter(name=move.name, scheduler=move.to).exists()


def waiting() -> dict[str, str]:
    """Return why jobs between two schedulers do not start, by name. One query."""
    rows = Move.objects.open().select_related("to", "source__scheduler")
    return {move.name: _why(move) for move in rows}


def _why(move: Move) -> str:
    if move.state == Move.State.LEAVING and move.source is not None:
        return f"it goes on in {move.to}, once {move.source.scheduler} says that it is over there"
    refused = f", which does not take it: {move.why}" if move.why else ""
    return f"it is submitted in {move.to}{refused}"


def follow(at: datetime, may_still_run: Collection[str]) -> None:
    """Bring moves on, and have jobs begin one whose scheduler they may not use any more.

    ``may_still_run``: jobs, by name, of which something may run where nobody hears of it.
    """
    for move in Move.objects.open().select_related("to", "source__scheduler"):
        with transaction.atomic():
            _bring_on(move, at)
    away = fallback.away()
    if away:
        _begin(away, may_still_run, at)
    _settle_down()


# --- On the way ----------------------------------------------------------------------------------


def _bring_on(move: Move, at: datetime) -> None:
    if move.state == Move.State.LEAVING:
        _leave(move, at)
    elif move.refused_at is not None:
        _ask_again(move, at)
    elif _has_arrived(move):
        _end(move, Move.State.ARRIVED)
        _tell(move, ARRIVED, f"Arrived in {move.to}, and waits there", at)


def _leave(move: Move, at: datetime) -> None:
    """Have a job be submitted elsewhere once it is over where it was, and did not end by itself."""
    row = move.source
    if row is None or row.ended_at is None:
        return
    if row.report.ended_as not in _GOES_ON:
        _end(move, Move.State.OFF)
        return
    row.is_settled = True
    row.save(update_fields=["is_settled"])
    move.state = Move.State.AWAY
    move.save(update_fields=["state"])
    _tell(move, LEFT, f"Over in {row.scheduler}; submitted in {move.to}", at)
    news.orders_for(move.to.name)


def _has_arrived(move: Move) -> bool:
    rows = SchedulerJob.objects.open().filter(scheduler=move.to, name=move.name, is_adopted=True)
    # It asks for nodes of its new scheduler by now.
    return rows.filter(is_changed=False).exists()


def _ask_again(move: Move, at: datetime) -> None:
    """Try another scheduler, under another key: what the one that refused may yet have is none."""
    job = Job.objects.filter(name=move.name).first()
    if job is None or move.refused_at is None:
        return
    state, home = fallback.away().get(move.name, (Fallback.PRIMARY_SITE, ""))
    schedulers = _Schedulers.read(at)
    names = _names(move.name, move.parcel["options"].get("comment", ""))
    found = moves.next_of(names, schedulers.open_to(state, home), last=move.to.name)
    if found and found != move.to.name:
        parcel, to = move.parcel, schedulers.rows[found]
        _end(move, Move.State.OFF)
        _write(move.name, to, parcel, at, state=Move.State.AWAY)
        news.orders_for(found)
    elif at - move.refused_at >= _AGAIN:
        move.refused_at = None
        move.save(update_fields=["refused_at"])


def _end(move: Move, state: Move.State) -> None:
    """Bring a move to its last state. Scripts have secrets: it is not kept longer than needed."""
    move.state, move.parcel = state, {"user": move.parcel["user"]}
    move.save(update_fields=["state", "parcel"])


# --- Begun ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Schedulers:
    """Schedulers by name, the sites of their nodes, and those that start jobs just now."""

    rows: Mapping[str, Scheduler]
    sites: Mapping[str, frozenset[str]]
    ready: frozenset[str]

    @classmethod
    def read(cls, at: datetime) -> _Schedulers:
        """Read them as they are. Three queries."""
        ready, of = registered.ready_nodes(at.timestamp()), registered.executor_by_node()
        return cls(
            {row.name: row for row in Scheduler.objects.all() if row.kind in CAN_MOVE},
            registered.sites_of(of, snapshot.current()),
            frozenset(name for node, name in of.items() if node in ready),
        )

    def open_to(self, state: Fallback, home: str) -> dict[str, bool]:
        """Say of each scheduler whether a job in a fallback state may go there now."""
        return {name: name in self.ready and self.allows(name, state, home) for name in self.rows}

    def allows(self, name: str, state: Fallback, home: str) -> bool:
        return moves.is_allowed(state, home, self.sites.get(name, frozenset()))


def _begin(
    away: Mapping[str, tuple[Fallback, str]], may_still_run: Collection[str], at: datetime
) -> None:
    rows = _leaving(away, may_still_run)
    if not rows:
        return
    schedulers = _Schedulers.read(at)
    for row in rows:
        state, home = away[row.name]
        if schedulers.allows(row.scheduler.name, state, home):
            continue
        names = _names(row.name, row.report.comment)
        open_to = schedulers.open_to(state, home)
        found = moves.next_of(names, open_to, but=row.scheduler.name)
        if found:
            with transaction.atomic():
                _begin_one(row, schedulers.rows[found], at)


def _leaving(names: Collection[str], may_still_run: Collection[str]) -> list[SchedulerJob]:
    """Return jobs that could leave: they wait, for us alone, and nothing of them runs."""
    rows = SchedulerJob.objects.open().filter(
        name__in=names, is_adopted=True, state=JobState.HELD, cancel_for="", parcel__isnull=False
    )
    running = Attempt.objects.open().filter(phase__job__name=OuterRef("name"))
    waits = Phase.objects.pending().filter(job__name=OuterRef("name"))
    moving = Move.objects.open().filter(name=OuterRef("name"))
    free = rows.filter(~Exists(running), Exists(waits), ~Exists(moving))
    found = free.select_related("scheduler").order_by("pk")[:_MOST]
    return [row for row in found if row.name not in may_still_run]


def _names(name: str, comment: str) -> list[str]:
    """Return the schedulers that a job may use: its owner's words, and where it was before."""
    before = SchedulerJob.objects.filter(name=name).order_by("pk")
    said = words.read(comment).move_to
    return list(dict.fromkeys([*said, *before.values_list("scheduler__name", flat=True)]))


def _begin_one(row: SchedulerJob, to: Scheduler, at: datetime) -> None:
    move = _write(row.name, to, row.parcel, at, source=row)
    row.cancel_for = f"it goes on in {to}"
    row.save(update_fields=["cancel_for"])
    _tell(move, LEAVES, f"Leaves {row.scheduler} for {to}", at)
    news.orders_for(row.scheduler.name)


def _write(
    name: str,
    to: Scheduler,
    parcel: object,
    at: datetime,
    *,
    source: SchedulerJob | None = None,
    state: Move.State = Move.State.LEAVING,
) -> Move:
    number = Move.objects.filter(name=name).count() + 1
    return Move.objects.create(
        key=f"{name}/move/{number}", name=name, source=source, to=to, parcel=parcel,
        state=state, begun_at=at,
    )  # fmt: skip


def _settle_down() -> None:
    """Let jobs be at home where they are once nothing keeps them from their first site any more.

    If that site fails them, they leave it as they left the other. One query where none came.
    """
    came = Move.objects.filter(state=Move.State.ARRIVED, name=OuterRef("job__name"))
    rows = JobFallback.objects.filter(
        Exists(came), job__state__in=Job.OPEN, job__fallback_state=Fallback.PRIMARY_SITE
    ).select_related("job")
    if not rows:
        return
    sites = registered.sites_of(registered.executor_by_node(), snapshot.current())
    for row in rows:
        its = sites.get(row.job.spec.get("scheduler", ""), frozenset())
        if len(its) == 1 and row.home not in its:
            (row.home,) = its
            row.save(update_fields=["home"])


def _tell(move: Move, kind: str, text: str, at: datetime) -> None:
    job = Job.objects.filter(name=move.name).only("pk").first()
    if job is not None:
        history.event(job.pk, kind, text, at, move=move.key, to=move.to.name).save()
