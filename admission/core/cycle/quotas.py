"""Limits on how much projects, classes and restrictions let run at once, and who is next for them.

What is in the way of a job because others have used it up is kept for it: those behind it take only
what it does not need by then, or what they give back before.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import TypeVar

from admission.core.reasons import Reason, ReasonToken
from admission.core.request import Placement, Request
from admission.core.snapshot import ClassRules, ConcurrencyCap, ProjectShare
from fleet.tables import FleetArrays
from policies.headroom.binding import balance, quantity
from policies.scopes import Scope, ScopeKind, UnknownScope, nodes_in

__all__ = ["Kept", "Quota", "Quotas"]

T = TypeVar("T")

#: Watts may be off by so much through adding and taking away.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Kept:
    """A quota kept for a waiting job: from ``at`` on (Unix s) others may have ``spare``.

    ``rank`` is its place in the order: it is in the way of those behind it alone. It takes
    ``amount``, and not before ``earliest_at``, when others give it back sooner.
    """

    key: str
    rank: int
    at: float
    spare: float
    amount: float
    earliest_at: float


@dataclass(eq=False)
class Quota:
    """One limit on how much may run at once, and its use."""

    token: ReasonToken
    #: as in "its project vision may have 64 GPUs"
    label: str
    limit: float
    unit: str
    scope: Scope | None
    evidence: dict[str, object]
    used: float = 0.0
    #: when how much of it is given back
    ends: list[tuple[float, float]] = field(default_factory=list)
    kept: Kept | None = None

    @property
    def left(self) -> float:
        return self.limit - self.used

    def left_at(self, at: float) -> float:
        """Return what is left once what is to end by a moment has, and not kept for anybody."""
        given_back = sum(amount for end_at, amount in self.ends if end_at <= at)
        return self.left + given_back - (self.kept.amount if self.kept is not None else 0.0)

    def take(self, amount: float, end_at: float) -> None:
        self.used += amount
        self.ends.append((end_at, amount))

    def end_sooner(self, amount: float, end_at: float, sooner_at: float) -> None:
        """Note that what was taken until ``end_at`` is given back sooner."""
        self.ends.remove((end_at, amount))
        self.ends.append((sooner_at, amount))

    def give_back(self, amount: float, end_at: float) -> None:
        """Undo :meth:`take` of the same amount until the same moment."""
        self.used -= amount
        self.ends.remove((end_at, amount))

    def keep(self, key: str, rank: int, amount: float, at: float) -> None:
        """Keep ``amount`` for a job that waits, once that is free and not before ``at``.

        One job at a time, the first in order. Nothing is kept that can never be.
        """
        if self.kept is not None or amount > self.limit + _ROUNDING:
            return
        used, earliest_at = self.used, at
        for end_at, given_back in sorted(self.ends):
            if end_at > at and used + amount <= self.limit + _ROUNDING:
                break
            used -= given_back
            at = max(at, end_at)
        self.kept = Kept(key, rank, at, self.limit - used - amount, amount, earliest_at)

    def keep_anew(self, at: float) -> None:
        """Have whom it is kept for take of what others give back at ``at``, sooner than known."""
        kept, self.kept = self.kept, None
        if kept is not None:
            self.keep(kept.key, kept.rank, kept.amount, max(kept.earliest_at, at))

    def in_the_way(self, amount: float, end_at: float, rank: int) -> Kept | None:
        """Return the reservation that using ``amount`` until ``end_at`` would break, if any."""
        kept = self.kept
        if kept is None or kept.rank >= rank or end_at <= kept.at:
            return None
        return None if amount <= kept.spare + _ROUNDING else kept

    def is_kept_within(self, from_at: float, to_at: float, rank: int) -> bool:
        """Say whether it is kept for one before ``rank`` from a moment in that time on."""
        kept = self.kept
        return kept is not None and kept.rank < rank and from_at <= kept.at < to_at

    def spend_spare(self, amount: float, end_at: float) -> None:
        """Take from the spare part, which the job that it is kept for leaves over."""
        if self.kept is not None and end_at > self.kept.at:
            self.kept = replace(self.kept, spare=self.kept.spare - amount)

    def refusal(self, amount: float) -> Reason:
        have = max(self.left, 0.0)
        need_text, have_text, short_text = self._told(amount, have)
        text = (
            f"needs {need_text}, and {self.label} {_amount(self.limit, self.unit)} at once,"
            f" of which {have_text} {'is' if have == 1 else 'are'} left: short {short_text}"
        )
        return Reason(self.token, amount, have, self.unit, self.scope, text, {**self.evidence})

    def _told(self, need: float, have: float) -> tuple[str, str, str]:
        """Return need, supply and shortage in words: what is shown of them adds up."""
        if self.unit == "W":
            told = balance(need, have, self.unit)
            return told.told(told.need), told.told(told.have), told.told(told.short)
        short = need - have
        return _amount(need, self.unit), _amount(have, self.unit), _amount(short, self.unit)

    def kept_reason(self, amount: float, kept: Kept) -> Reason:
        have = max(kept.spare, 0.0)
        text = (
            f"{self.label} {_amount(self.limit, self.unit)} at once, and what is left is kept for"
            " another job, which has waited for longer or counts for more"
        )
        evidence = {**self.evidence, "kept_for": kept.key, "kept_at": kept.at}
        token = ReasonToken.BACKFILL_RESERVATION
        return Reason(token, amount, have, self.unit, self.scope, text, evidence)


def _amount(value: float, unit: str) -> str:
    if unit == "W":
        return quantity(value, unit)
    return f"{value:g} {unit if value != 1 else unit.removesuffix('s')}"


@dataclass(eq=False)
class _PlaceCap:
    quota: Quota
    nodes: frozenset[int]


@dataclass(eq=False)
class _Member:
    """A project in a cohort: the quotas that its jobs draw on.

    ``most`` is all that it may hold, with what it borrows; ``firm`` what jobs of it may hold that
    nobody may stop: its own quota, since what they borrow could not be asked back. Of its GPUs a
    job has as many as there are from ``own``, the part of its quota that it lends nobody, and the
    others from the ``pool`` of what all lend.
    """

    most: Quota
    firm: Quota
    own: Quota
    pool: Quota
    #: by key of a job that has taken of them: how many of its GPUs are from ``own``
    from_own: dict[str, float] = field(default_factory=dict)

    def all(self) -> tuple[Quota, ...]:
        return self.most, self.firm, self.own, self.pool

    def draws(self, request: Request, gpus: float) -> Iterator[tuple[Quota, float]]:
        """Yield what a job uses of each, or would with so many GPUs."""
        yield self.most, gpus
        if not request.preemptible:
            yield self.firm, gpus
        from_own = self.from_own.get(request.key)
        if from_own is None:
            from_own = min(gpus, max(self.own.left, 0.0))
        if from_own:
            yield self.own, from_own
        if gpus > from_own:
            yield self.pool, gpus - from_own

    def note(self, request: Request, gpus: float) -> None:
        """Remember of a job that takes of them from where its GPUs are."""
        taken = {id(quota): amount for quota, amount in self.draws(request, gpus)}
        self.from_own[request.key] = taken.get(id(self.own), 0.0)

    def room(self, quota: Quota, end_at: float, rank: int) -> int:
        """Return how many GPUs a job may have as far as one of them goes."""
        if quota is self.own:
            quota = self.pool
        own = int(max(self.own.left, 0.0) + _ROUNDING) if quota is self.pool else 0
        return own + _most(quota, end_at, rank)

    def chosen(self, chosen: Callable[[Quota], Quota]) -> _Member:
        """Return the same with other quotas in place of some."""
        return replace(
            self,
            most=chosen(self.most),
            firm=chosen(self.firm),
            own=chosen(self.own),
            pool=chosen(self.pool),
            from_own=dict(self.from_own),
        )


def _members(cohort: str, together: Sequence[tuple[ProjectShare, int]]) -> dict[str, _Member]:
    """Return the projects of a cohort by name, given with their quotas of GPUs."""
    token = ReasonToken.QUOTA_EXCEEDED
    lends = {
        each.name: quota if each.may_lend is None else min(each.may_lend, quota)
        for each, quota in together
    }
    lent = sum(lends.values())
    evidence: dict[str, object] = {"cohort": cohort}
    told: dict[str, object] = {**evidence, "pool": True}
    pool = Quota(token, f"its cohort {cohort} shares", float(lent), "GPUs", None, told)
    found = {}
    for each, quota in together:
        own = quota - lends[each.name]
        borrows = lent - lends[each.name]
        if each.may_borrow is not None:
            borrows = min(borrows, each.may_borrow)

        def of(label: str, limit: int, name: str = each.name) -> Quota:
            told = {**evidence, "project": name}
            return Quota(token, f"its project {name} {label}", float(limit), "GPUs", None, told)

        found[each.name] = _Member(
            most=of("may have, with what it may borrow,", quota + borrows),
            firm=of("may have, for jobs that nobody may stop,", quota),
            own=of("lends nobody", own),
            pool=pool,
        )
    return found


class Quotas:
    """All quotas and caps, and which of them a job draws on."""

    def __init__(
        self,
        fleet: FleetArrays,
        projects: Mapping[str, ProjectShare],
        classes: Mapping[str, ClassRules],
        caps: Sequence[ConcurrencyCap],
    ) -> None:
        self._gpus_of_project: dict[str, Quota] = {}
        self._in_cohort: dict[str, _Member] = {}
        self._per_user = {name: each.per_user for name, each in projects.items()}
        #: by project and user, those of whom something was asked
        self._of_user: dict[tuple[str, str], list[Quota]] = {}
        self._watts_of_project: dict[str, Quota] = {}
        self._jobs_of_class: dict[str, list[Quota]] = {}
        self._gpus_of_class: dict[str, Quota] = {}
        self._of_job: dict[str, list[Quota]] = {}
        self._places: list[_PlaceCap] = []
        for project in projects.values():
            self._add_project(project)
        self._add_cohorts(projects.values())
        for rules in classes.values():
            self._add_class(rules)
        for cap in caps:
            self._add_cap(fleet, cap)
        self._at_first: list[tuple[float, list[tuple[float, float]]]] = []
        self._from_own_at_first: dict[str, dict[str, float]] = {}

    def _add_project(self, project: ProjectShare) -> None:
        label, evidence = f"its project {project.name} may have", {"project": project.name}
        token = ReasonToken.QUOTA_EXCEEDED
        if project.gpu_quota is not None and not project.cohort:
            self._gpus_of_project[project.name] = Quota(
                token, label, float(project.gpu_quota), "GPUs", None, {**evidence}
            )
        if project.power_quota_w is not None:
            self._watts_of_project[project.name] = Quota(
                token, label, project.power_quota_w, "W", None, {**evidence}
            )

    def _add_cohorts(self, projects: Iterable[ProjectShare]) -> None:
        members: dict[str, list[tuple[ProjectShare, int]]] = {}
        for each in projects:
            if each.cohort and each.gpu_quota is not None:
                members.setdefault(each.cohort, []).append((each, each.gpu_quota))
        for name, together in members.items():
            self._in_cohort |= _members(name, together)

    def _add_class(self, rules: ClassRules) -> None:
        scope = Scope(ScopeKind.CLASS, rules.name)
        label, evidence = f"its class {rules.name} may have", {"class": rules.name}
        token = ReasonToken.CONCURRENCY_CAP
        if rules.max_running is not None:
            self._jobs_of_class.setdefault(rules.name, []).append(
                Quota(token, label, float(rules.max_running), "jobs", scope, {**evidence})
            )
        if rules.max_gpus is not None:
            self._gpus_of_class[rules.name] = Quota(
                token, label, float(rules.max_gpus), "GPUs", scope, {**evidence}
            )

    def _add_cap(self, fleet: FleetArrays, cap: ConcurrencyCap) -> None:
        quota = Quota(
            ReasonToken.CONCURRENCY_CAP,
            f"{cap.scope} may run",
            float(cap.max_jobs),
            "jobs",
            cap.scope,
            {"restrictions": [cap.restriction_id], "reason": cap.reason},
        )
        if cap.scope.kind is ScopeKind.CLASS:
            self._jobs_of_class.setdefault(cap.scope.name, []).append(quota)
        elif cap.scope.kind is ScopeKind.JOB:
            self._of_job.setdefault(cap.scope.name, []).append(quota)
        else:
            try:
                nodes = nodes_in(fleet, cap.scope).nonzero()[0]
            except UnknownScope:
                return  # it is on a thing that is gone, and holds for nothing
            self._places.append(_PlaceCap(quota, frozenset(nodes.tolist())))

    def _user_quotas(self, request: Request) -> list[Quota]:
        """Return the limits of a job's user in its project, made when they are first asked for."""
        key = (request.project, request.user)
        if not request.user or request.project not in self._per_user:
            return []
        if key not in self._of_user:
            most = self._per_user[request.project].of(request.user)
            label = f"each user of its project {request.project} may have"
            if request.user in self._per_user[request.project].own:
                label = f"its user may have in project {request.project}"
            evidence = {"project": request.project, "per_user": True}
            limits = {"GPUs": most.gpus, "jobs": most.running}
            self._of_user[key] = [
                Quota(ReasonToken.QUOTA_EXCEEDED, label, float(limit), unit, None, {**evidence})
                for unit, limit in limits.items()
                if limit is not None
            ]
        return self._of_user[key]

    # --- What a job draws on ----------------------------------------------------------------------

    def _anywhere(self, request: Request, gpus: int) -> Iterator[tuple[Quota, float]]:
        """Yield the quotas that a job uses wherever it stands, and how much of each."""
        counted = request.counted(gpus)
        if (member := self._in_cohort.get(request.project)) is not None:
            yield from member.draws(request, counted)
        for by_name, name in (
            (self._gpus_of_project, request.project),
            (self._gpus_of_class, request.job_class),
        ):
            if name in by_name:
                yield by_name[name], counted
        for each in self._user_quotas(request):
            yield each, counted if each.unit == "GPUs" else 1.0
        for each in self._jobs_of_class.get(request.job_class, ()):
            yield each, 1.0
        for each in self._of_job.get(request.job, ()):
            yield each, 1.0

    def _there(self, request: Request, placement: Placement) -> Iterator[tuple[Quota, float]]:
        """Yield the quotas that a job uses with that placement, and how much of each."""
        yield from self._anywhere(request, len(placement.gpus))
        if request.project in self._watts_of_project:
            yield self._watts_of_project[request.project], placement.total_w
        for each in self._places:
            if not each.nodes.isdisjoint(placement.nodes):
                yield each.quota, 1.0

    def full_nodes(self) -> frozenset[int]:
        """Return the rows of the nodes where restrictions let no further job run."""
        return self._nodes_where(lambda each: each.quota.left < 1.0)

    def full_nodes_at(self, at: float) -> frozenset[int]:
        """Return the same for a moment to come (Unix s), and with what is kept for others."""
        return self._nodes_where(lambda each: each.quota.left_at(at) < 1.0)

    def kept_nodes(self, end_at: float, rank: int) -> frozenset[int]:
        """Return the nodes where what restrictions let run is kept for those before ``rank``.

        For a job that ends at ``end_at`` (Unix s).
        """
        return self._nodes_where(lambda each: bool(each.quota.in_the_way(1.0, end_at, rank)))

    def other_places(self, placement: Placement) -> frozenset[int]:
        """Return the nodes in places that restrictions limit and that a placement is not in."""
        return self._nodes_where(lambda each: each.nodes.isdisjoint(placement.nodes))

    def _nodes_where(self, chosen: Callable[[_PlaceCap], bool]) -> frozenset[int]:
        return frozenset().union(*(each.nodes for each in self._places if chosen(each)))

    def full_places(self) -> list[Reason]:
        """Return why, by restriction."""
        return [each.quota.refusal(1.0) for each in self._places if each.quota.left < 1.0]

    # --- Verdicts ---------------------------------------------------------------------------------

    def fitted(self, request: Request, end_at: float, rank: int) -> Request | tuple[Reason, ...]:
        """Return ``request`` with as many GPUs as its quotas leave, or why these are too few.

        ``rank`` is its place in the order: what is kept for those before it is not left to it.
        """
        gpus, reasons = request.gpus, []
        member = self._in_cohort.get(request.project)
        for quota, least in self._anywhere(request, request.min_gpus):
            if least > quota.left + _ROUNDING:
                reasons.append(quota.refusal(least))
            elif kept := quota.in_the_way(least, end_at, rank):
                reasons.append(quota.kept_reason(least, kept))
            elif request.slice:
                continue  # one slice is all that it asks for
            elif member is not None and quota in member.all():
                gpus = min(gpus, member.room(quota, end_at, rank))
            elif quota.unit == "GPUs":
                gpus = min(gpus, _most(quota, end_at, rank))
        if reasons:
            return tuple(reasons)
        return request if gpus == request.gpus else replace(request, gpus=gpus)

    def refusals(
        self, request: Request, placement: Placement, end_at: float, rank: int
    ) -> tuple[Reason, ...]:
        """Return the quotas that forbid that placement; empty where none does."""
        reasons = []
        for quota, amount in self._there(request, placement):
            if amount > quota.left + _ROUNDING:
                reasons.append(quota.refusal(amount))
            elif kept := quota.in_the_way(amount, end_at, rank):
                reasons.append(quota.kept_reason(amount, kept))
        return tuple(reasons)

    def fewer(
        self, request: Request, placement: Placement, end_at: float, rank: int
    ) -> Request | None:
        """Return a job with as many GPUs as the watts of its project are for; None: it has these.

        By what each of its GPUs draws in ``placement``, and no fewer than it accepts: None, too,
        where that has no more.
        """
        quota = self._watts_of_project.get(request.project)
        if quota is None or request.slice:
            return None
        left_w, gpus = _left(quota, end_at, rank), len(placement.gpus)
        if placement.total_w <= left_w + _ROUNDING:
            return None
        step = request.gpus_per_node or 1
        most = int(left_w * gpus / placement.total_w + _ROUNDING)
        fewer = max(most // step * step, request.least_gpus)
        return replace(request, gpus=fewer) if fewer < gpus else None

    def narrowed(
        self, request: Request, end_at: float, rank: int, place: Callable[[Request], Placement | T]
    ) -> Placement | T:
        """Return what ``place`` finds for a job with as many GPUs as its project has watts for.

        It is asked for all of ``request`` first, and for no fewer than that accepts: its other
        quotas, and the watts of the fewest, are for the caller to ask of what is found.
        """
        found = place(request)
        while isinstance(found, Placement):
            fewer = self.fewer(request, found, end_at, rank)
            if fewer is None:
                break
            request, found = fewer, place(fewer)
        return found

    def ever_let(self, request: Request, placement: Placement) -> bool:
        """Say whether its quotas allow that placement when nothing else runs."""
        draws = self._there(request, placement)
        member = self._in_cohort.get(request.project)
        # What comes from its own part and what from the pool changes; together they are enough.
        parts = (member.own, member.pool) if member is not None else ()
        return all(
            amount <= quota.limit + _ROUNDING for quota, amount in draws if quota not in parts
        )

    # --- What happens -----------------------------------------------------------------------------

    def take(self, request: Request, placement: Placement, end_at: float) -> None:
        if (member := self._in_cohort.get(request.project)) is not None:
            member.note(request, request.counted(len(placement.gpus)))
        for quota, amount in self._there(request, placement):
            quota.take(amount, end_at)
            quota.spend_spare(amount, end_at)

    def end_sooner(
        self, request: Request, placement: Placement, end_at: float, sooner_at: float
    ) -> None:
        """Note that a job that has taken of them until ``end_at`` ends sooner."""
        for quota, amount in self._there(request, placement):
            quota.end_sooner(amount, end_at, sooner_at)

    def once_over(self, taken: Sequence[tuple[Request, Placement, float]], at: float) -> Quotas:
        """Return these quotas once jobs are over that have taken of them until a time later.

        They end by ``at`` (Unix s): whom their quotas are kept for has these from then on.
        """
        copies = self._given_back(taken)
        for each in copies.values():
            each.keep_anew(at)
        return self._with(copies)

    def without(self, taken: Sequence[tuple[Request, Placement, float]]) -> Quotas:
        """Return these quotas as they were without jobs that have taken of them until a time.

        What these jobs draw on is copied, all else is shared.
        """
        return self._with(self._given_back(taken))

    def beside(self, request: Request, placement: Placement, end_at: float) -> Quotas:
        """Return these quotas once a job has taken of them until a time, as :meth:`without`."""
        draws = self._there(request, placement)
        found = self._with({id(each): replace(each, ends=each.ends.copy()) for each, _ in draws})
        found.take(request, placement, end_at)
        return found

    def _given_back(self, taken: Sequence[tuple[Request, Placement, float]]) -> dict[int, Quota]:
        """Return copies of the quotas that jobs draw on, without them, by identity."""
        copies: dict[int, Quota] = {}
        for request, placement, end_at in taken:
            for quota, amount in self._there(request, placement):
                if id(quota) not in copies:
                    copies[id(quota)] = replace(quota, ends=quota.ends.copy())
                copies[id(quota)].give_back(amount, end_at)
                copies[id(quota)].spend_spare(-amount, end_at)
        return copies

    def _with(self, copies: Mapping[int, Quota]) -> Quotas:
        """Return these quotas with others in place of some, given by the identity of the old."""

        def chosen(quota: Quota) -> Quota:
            return copies.get(id(quota), quota)

        def each_of(quotas: Mapping[str, Quota]) -> dict[str, Quota]:
            return {name: chosen(quota) for name, quota in quotas.items()}

        def all_of(several: Mapping[str, list[Quota]]) -> dict[str, list[Quota]]:
            return {name: list(map(chosen, quotas)) for name, quotas in several.items()}

        found = copy.copy(self)
        found._gpus_of_project = each_of(self._gpus_of_project)
        found._watts_of_project = each_of(self._watts_of_project)
        found._gpus_of_class = each_of(self._gpus_of_class)
        found._jobs_of_class = all_of(self._jobs_of_class)
        found._of_job = all_of(self._of_job)
        found._of_user = {key: list(map(chosen, each)) for key, each in self._of_user.items()}
        found._places = [replace(each, quota=chosen(each.quota)) for each in self._places]
        found._in_cohort = {name: each.chosen(chosen) for name, each in self._in_cohort.items()}
        return found

    def keep(
        self, request: Request, rank: int, at: float, placement: Placement | None = None
    ) -> None:
        """Reserve the quotas of a waiting job, from ``at`` on or as soon as they are free."""
        draws = (
            self._anywhere(request, request.min_gpus)
            if placement is None
            else self._there(request, placement)
        )
        for quota, amount in draws:
            quota.keep(request.key, rank, amount, at)

    def may_keep(self, request: Request) -> bool:
        """Whether it uses some quota that is kept for nobody yet."""
        return (
            any(quota.kept is None for quota, _ in self._anywhere(request, request.min_gpus))
            or request.project in self._watts_of_project
            or bool(self._places)
        )

    def remember(self) -> None:
        """Remember the present use of all quotas, for :meth:`go_back`."""
        self._at_first = [(each.used, each.ends.copy()) for each in self._all()]
        self._from_own_at_first = {
            name: dict(each.from_own) for name, each in self._in_cohort.items()
        }

    def go_back(self) -> None:
        """Go back to the remembered use of all quotas, and drop all reservations."""
        # What was first asked of since then comes last: nobody had any of it.
        at_first = chain(self._at_first, repeat((0.0, [])))
        for each, (used, ends) in zip(self._all(), at_first, strict=False):
            each.used, each.ends, each.kept = used, ends.copy(), None
        for name, from_own in self._from_own_at_first.items():
            self._in_cohort[name].from_own = dict(from_own)

    def kept_for(self) -> dict[str, int]:
        """Return the jobs with a reserved quota, with their ranks."""
        return {each.kept.key: each.kept.rank for each in self._all() if each.kept is not None}

    def kept_at(self) -> set[tuple[float, int]]:
        """Return from when on quotas are kept for jobs, Unix s, with their ranks."""
        return {(each.kept.at, each.kept.rank) for each in self._all() if each.kept is not None}

    def kept_before(self, request: Request, rank: int) -> set[float]:
        """Return from when on what a job draws on is kept for jobs before ``rank``, Unix s."""
        quotas = [quota for quota, _ in self._anywhere(request, request.min_gpus)]
        if request.project in self._watts_of_project:
            quotas.append(self._watts_of_project[request.project])
        quotas += [each.quota for each in self._places]
        kept = (quota.kept for quota in quotas)
        return {each.at for each in kept if each is not None and each.rank < rank}

    def are_soon_drawn_on(
        self, request: Request, placement: Placement, end_at: float, rank: int, later_s: float
    ) -> bool:
        """Say whether a job still has of what is kept for one before ``rank``, if begun later.

        Then less of it is spare than is left over as long as that job ends in time.
        """
        return any(
            each.is_kept_within(end_at, end_at + later_s, rank)
            for each, _ in self._there(request, placement)
        )

    def draws_on_what_is_kept_for(self, key: str, request: Request) -> bool:
        """Whether ``request`` uses a quota that is kept for the job ``key``."""
        return any(
            quota.kept is not None and quota.kept.key == key
            for quota, _ in self._anywhere(request, request.min_gpus)
        )

    def _all(self) -> Iterator[Quota]:
        for by_name in (self._gpus_of_project, self._watts_of_project, self._gpus_of_class):
            yield from by_name.values()
        for several in (self._jobs_of_class, self._of_job):
            for each in several.values():
                yield from each
        for place in self._places:
            yield place.quota
        # Those of one cohort have one pool.
        yield from {id(each): each for of in self._in_cohort.values() for each in of.all()}.values()
        for quotas in self._of_user.values():
            yield from quotas


def _left(quota: Quota, end_at: float, rank: int) -> float:
    """Return what is left of a quota until ``end_at`` and not kept for a job before ``rank``."""
    kept = quota.kept
    if kept is not None and kept.rank < rank and end_at > kept.at:
        return min(quota.left, kept.spare)
    return quota.left


def _most(quota: Quota, end_at: float, rank: int) -> int:
    """Return how many GPUs are left that are not kept for a job before ``rank``."""
    return int(_left(quota, end_at, rank) + _ROUNDING)
