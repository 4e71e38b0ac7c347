"""Scheduling classes and projects: their terms and limits, and their present use."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

import msgspec
from django.db.models import Count, Min, Sum

from accounts.models import User
from admission.allocation import open_attempts
from admission.core.grants import Grants
from admission.core.per_user import UserLimit
from admission.core.policy import NAME, AdmissionPolicy
from admission.core.sharing import Shares, Stated
from admission.jobs import catalog
from admission.jobs.classes import SchedulingClass
from admission.jobs.limits import Limits, limits_of
from admission.jobs.models import ClassVersion, Phase, Project
from admission.learned import shares
from admission.learned.shares import Standing
from admission.policy.models import AdmissionPolicyVersion
from admission.policy.reading import compiled
from dashboard import units
from dashboard.templatetags.telemetry_words import lasted
from fleet.snapshot import FleetArrays
from policies.headroom.binding import quantity

State = Phase.State


# --- In use --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Use:
    """The present use by phases of one class or project. GPUs and W are those that are held."""

    queued: int = 0
    behind: int = 0
    running: int = 0
    gpus: float = 0.0
    power_w: float = 0.0
    asked_gpus: int = 0
    oldest: datetime | None = None
    #: why most of them wait, and how many do
    reason: str = ""
    reason_count: int = 0


def in_use(by: str, fleet: FleetArrays) -> dict[str, Use]:
    """Return the use by "job__job_class" or "job__project__name". One query, and holdings."""
    found: dict[str, Use] = {}
    rows = (
        Phase.objects.open()
        .order_by()
        .values_list(by, "state", "reason")
        .annotate(count=Count("pk"), asked=Sum("gpus"), oldest=Min("queued_at"))
    )
    for name, state, reason, count, asked, oldest in rows:
        use = found.setdefault(name, Use())
        if state == State.QUEUED:
            _add_queued(use, reason, count, asked, oldest)
        elif state == State.WAITING:
            use.behind += count
        else:
            use.running += count
    is_class = by == "job__job_class"
    for each in open_attempts.current(fleet).attempts:
        name = each.request.job_class if is_class else each.request.project
        use = found.setdefault(name, Use())
        use.gpus += each.request.counted(len(each.placement.gpus))
        use.power_w += each.placement.total_w
    for use in found.values():
        # Slices make some of them others than whole numbers.
        use.gpus = int(use.gpus) if use.gpus.is_integer() else round(use.gpus, 2)
    return found


def _add_queued(use: Use, reason: str, count: int, asked: int, oldest: datetime | None) -> None:
    use.queued += count
    use.asked_gpus += asked
    if reason and count > use.reason_count:
        use.reason, use.reason_count = reason, count
    if oldest is not None:
        use.oldest = min(oldest, use.oldest or oldest)


# --- Classes -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClassCard:
    """One class in force. ``version`` is None for a built-in one."""

    job_class: SchedulingClass
    use: Use
    limits: list[tuple[str, str]]
    defaults: list[tuple[str, str]]
    version: ClassVersion | None
    #: whether it is open to every project that is not confined to others
    is_open: bool

    @property
    def at_cap(self) -> bool:
        """Whether no more jobs of it may run at once."""
        most, gpus = self.job_class.max_running, self.job_class.max_gpus
        is_full = most is not None and self.use.running >= most
        return is_full or (gpus is not None and self.use.gpus >= gpus)


def cards(fleet: FleetArrays, grants: Grants) -> list[ClassCard]:
    """Return the classes in force, the most urgent first. Three queries."""
    written = {row.name: row for row in ClassVersion.objects.active()}
    known = catalog.current()
    use = in_use("job__job_class", fleet)
    ordered = sorted(known.values(), key=lambda each: (-each.priority, each.name))
    return [
        ClassCard(
            job_class=each,
            use=use.get(each.name, Use()),
            limits=_limits(each),
            defaults=_defaults(each),
            version=written.get(each.name),
            is_open=grants.is_open(each),
        )
        for each in ordered
    ]


def _limits(job_class: SchedulingClass) -> list[tuple[str, str]]:
    found = {
        "phases at once": _whole(job_class.max_running),
        "GPUs at once": _whole(job_class.max_gpus),
        "walltime": lasted(job_class.max_walltime_s) if job_class.max_walltime_s else "",
    }
    return [(name, value) for name, value in found.items() if value]


def _whole(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _defaults(job_class: SchedulingClass) -> list[tuple[str, str]]:
    """Return the defaults for phases of the class that leave a field out, section by section."""
    values: dict[str, dict[str, object]] = msgspec.to_builtins(job_class.defaults)
    return [
        (section, ", ".join(_said(name, value) for name, value in given.items()))
        for section, given in values.items()
        if given
    ]


_SHARES = frozenset(("shrink_below", "pause_below", "min_batch_scale", "max_slowdown"))


def _said(name: str, value: object) -> str:
    """Return a field with its value, in the unit that its name ends in."""
    words = name.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"no {words}"
    if isinstance(value, list):
        return f"{words}: {' + '.join(str(each) for each in value) or 'any'}"
    if not isinstance(value, int | float):
        return f"{words} {value}"
    if name in _SHARES:
        return f"{words} {units.percent(value)}"
    for ending, say in _ENDINGS.items():
        if name.endswith(ending):
            return f"{words.removesuffix(ending.replace('_', ' '))} {say(value)}"
    return f"{words} {value:,g}"


_ENDINGS: dict[str, Callable[[float], str]] = {
    "_bytes_per_s": lambda value: quantity(value, "byte/s"),
    "_bits_per_s": lambda value: quantity(value, "bit/s"),
    "_bytes": lambda value: quantity(value, "byte"),
    "_s": lasted,
    "_w": lambda value: f"{units.number(value)} W",
    "_c": units.celsius,
}


# --- The admission policy ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PolicyInForce:
    """The admission policy in force. ``number`` is 0 for the built-in one."""

    name: str
    number: int
    grants: Grants
    shares: Shares


def policy_in_force() -> PolicyInForce:
    """Return the policy in force. One query."""
    row = AdmissionPolicyVersion.objects.active().only("name", "number", "text").first()
    if row is None:
        return PolicyInForce(NAME, 0, Grants(), Shares())
    policy = compiled(row.text) or AdmissionPolicy()
    return PolicyInForce(row.name, row.number, policy.grants, policy.shares)


# --- Projects ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProjectLine:
    """One project: its fair share, the share that it has used, and its quota."""

    project: Project
    use: Use
    share: Standing
    each_user: UserLimit

    @property
    def had(self) -> float:
        """The share of all GPU time that it has had, of 1; NaN where nobody has had any."""
        return math.nan if self.share.had is None else self.share.had

    @property
    def gpu_share(self) -> float:
        """The share of its GPU quota in use; NaN without one."""
        return _share(self.use.gpus, self.share.gpu_quota)

    @property
    def per_user(self) -> str:
        """What each of its users may have at once, in words; empty: as much as it has itself."""
        most = self.each_user
        found = [
            units.count(limit, word)
            for limit, word in ((most.gpus, "GPU"), (most.running, "phase"))
            if limit is not None
        ]
        waiting = [
            units.count(limit, word)
            for limit, word in ((most.pending_jobs, "job"), (most.pending_phases, "phase"))
            if limit is not None
        ]
        said = [f"{' and '.join(found)} at once"] if found else []
        said += [f"{' and '.join(waiting)} that wait"] if waiting else []
        if most.submissions_per_s is not None:
            said.append(f"{most.submissions_per_s:g} submissions a second")
        return ", ".join(said)

    @property
    def borrowed(self) -> float:
        """The GPUs that it holds beyond its quota, of what others of its cohort leave idle."""
        quota = self.share.gpu_quota
        return max(self.use.gpus - quota, 0) if self.share.cohort and quota is not None else 0

    @property
    def power_share(self) -> float:
        return _share(self.use.power_w, self.project.power_quota_w)

    @property
    def limits(self) -> Limits:
        """The limits on its waiting jobs, and on how fast they may come."""
        return limits_of(self.project, "project")

    @property
    def pending(self) -> int:
        """The number of its phases that wait, for the fleet or for other phases."""
        return self.use.queued + self.use.behind


def _share(used: float, quota: float | None) -> float:
    if quota is None:
        return math.nan
    return used / quota if quota > 0 else math.inf


@dataclass(frozen=True, slots=True)
class Projects:
    """The projects that somebody may see by name, and the use of the others together."""

    lines: list[ProjectLine]
    #: None: there are no others
    others: Use | None
    others_count: int

    @property
    def full(self) -> list[ProjectLine]:
        """The projects that have used up a quota."""
        return [line for line in self.lines if line.gpu_share >= 1 or line.power_share >= 1]


def projects(user: User, fleet: FleetArrays, now: float, stated: Shares) -> Projects:
    """Return projects by name, as far as ``user`` may see them. Four queries."""
    rows = list(Project.objects.all())
    seen = set(Project.objects.visible_to(user).values_list("pk", flat=True))
    use = in_use("job__project__name", fleet)
    standings = shares.standings(rows, now, stated)
    lines = [
        ProjectLine(
            row,
            use.get(row.name, Use()),
            standings[row.name],
            stated.projects.get(row.name, Stated()).per_user.each,
        )
        for row in rows
        if row.pk in seen
    ]
    hidden = [use.get(row.name, Use()) for row in rows if row.pk not in seen]
    return Projects(lines, _together(hidden), len(hidden))


def _together(given: Iterable[Use]) -> Use | None:
    found = list(given)
    if not found:
        return None
    return Use(
        queued=sum(each.queued for each in found),
        behind=sum(each.behind for each in found),
        running=sum(each.running for each in found),
        gpus=sum(each.gpus for each in found),
        power_w=sum(each.power_w for each in found),
        asked_gpus=sum(each.asked_gpus for each in found),
    )
