"""The admission policy as a document: how jobs are weighed, reserved for, and moved. Pure.

The server and the twin read the same text. What only the twin can play, such as admission without
budgets, stands in it too (:class:`Played`), and :func:`for_server` refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import yaml
from msgspec import Meta, Struct

from admission.core import snapshot
from admission.core.allocation import reservation
from admission.core.controlling import Unmanaged
from admission.core.directives.responding import SHED_AFTER_S
from admission.core.grants import Grants
from admission.core.moving import MovingPolicy
from admission.core.per_user import PerUser, UserLimit
from admission.core.preempting import PreemptionPolicy
from admission.core.response import fallback, respond
from admission.core.sharing import HALF_LIFE_S, Shares, Stated
from headroom import documents
from headroom.contracts import FieldError
from headroom.contracts import Name as _LinkName
from headroom.documents import Document, DocumentError, closest
from headroom.traffic import TrafficClass
from policies import traffic
from policies.traffic import TrafficPolicy

__all__ = ["LEASE_S", "NAME", "AdmissionPolicy", "Played", "built_in_text", "for_server", "read"]

#: Of the policy that comes with Headroom.
NAME = "headroom"
_SEE = "docs/reference/admission-policy.md"
#: For which a machine that runs jobs may be silent, where no policy says otherwise, and at least: a
#: shorter silence is told from a slow network by nobody, s.
LEASE_S, LEAST_LEASE_S = 60.0, 20.0
_Name = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]{0,99}$")]
_Word = Annotated[str, Meta(min_length=1, max_length=100)]
Tuned = TypeVar("Tuned", snapshot.Tuning, reservation.Rules, respond.Tuning)


# --- As written ----------------------------------------------------------------------------------


class Documents(Struct, frozen=True, forbid_unknown_fields=True):
    """Which of the built-in rules or playbooks the twin plays."""

    builtin: bool = True
    without: tuple[str, ...] = ()


class _Admission(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    fill_share: Annotated[float, Meta(gt=0, le=10)] = 1.0
    enforces_budgets: bool = True
    reads_live: bool = False
    follows_rules: bool = True
    caps: bool = True
    responds: bool = True
    sheds: bool = True
    moves: bool = True
    tuning: dict[str, float] = {}
    reserve: dict[str, float] = {}


class _Loop(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    shed_after_s: Annotated[float, Meta(ge=0)] = SHED_AFTER_S
    max_site_share: Annotated[float, Meta(ge=0, le=1)] = 0.2
    directive_delay_s: Annotated[float, Meta(ge=0)] = 4.0
    stale_after_s: Annotated[float, Meta(gt=0)] = 30.0


class _Unmanaged(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    capped: bool = Unmanaged.is_capped
    lowest_speed: Annotated[float, Meta(ge=0.3, le=1)] = Unmanaged.lowest_speed


_Classes = Annotated[tuple[_Word, ...], Meta(max_length=50)]
#: 0 would be a share of nothing: whoever is to have nothing is not a member.
_Weight = Annotated[float, Meta(gt=0, le=1e6)]


_Gpus = Annotated[int, Meta(ge=0, le=10_000_000)]
_Count = Annotated[int, Meta(ge=0, le=1_000_000)]
_Seconds = Annotated[float, Meta(ge=0, le=1e9)]
_Share = Annotated[float, Meta(ge=0, le=1)]


class _Preemption(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    least_runtime_s: _Seconds = PreemptionPolicy.least_runtime_s
    disruptions_per_h: _Count = PreemptionPolicy.disruptions_per_h
    stops: dict[_Word, _Classes] = {}
    reclaim_quota_after_s: _Seconds | None = PreemptionPolicy.reclaim_quota_after_s
    reclaim_share_after_s: _Seconds | None = PreemptionPolicy.reclaim_share_after_s


class _Machines(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    lease_s: Annotated[float, Meta(ge=LEAST_LEASE_S, le=86_400)] = LEASE_S


class _Moving(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    grows: bool = MovingPolicy.grows
    defragments: bool = MovingPolicy.defragments
    least_return: Annotated[float, Meta(ge=1, le=1e6)] = MovingPolicy.least_return
    least_since_s: Annotated[float, Meta(ge=60, le=1e9)] = MovingPolicy.least_since_s
    moves_per_h: _Count = MovingPolicy.moves_per_h
    restart_s: Annotated[float, Meta(gt=0, le=1e6)] = MovingPolicy.restart_s
    starts_wide: bool = MovingPolicy.starts_wide
    shrinks: bool = MovingPolicy.shrinks
    horizon_s: Annotated[float, Meta(ge=60, le=1e9)] = MovingPolicy.horizon_s
    least_yield: _Share = MovingPolicy.least_yield
    undone_below: _Share = MovingPolicy.undone_below
    least_margin: Annotated[float, Meta(ge=0, lt=1)] = MovingPolicy.least_margin
    packs: bool = MovingPolicy.packs


class _Organization(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    weight: _Weight = 1.0


class _Shares(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    half_life_s: Annotated[float, Meta(ge=60, le=1e9)] = HALF_LIFE_S
    organizations: dict[_Word, _Organization] = {}


class _UserLimit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    gpus: _Gpus | None = None
    running: _Count | None = None
    pending_jobs: _Count | None = None
    pending_phases: _Count | None = None
    submissions_per_s: Annotated[float, Meta(ge=0.01, le=1e4)] | None = None


class _Project(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    classes: Annotated[tuple[_Word, ...], Meta(min_length=1, max_length=50)] | None = None
    granted: _Classes = ()
    organization: _Word | None = None
    weight: _Weight | None = None
    users: dict[_Word, _Weight] = {}
    gpu_quota: _Gpus | None = None
    cohort: _Word | None = None
    may_borrow: _Gpus | None = None
    may_lend: _Gpus | None = None
    disruptions_per_h: _Count | None = None
    each_user: _UserLimit = _UserLimit()
    user_limits: dict[_Word, _UserLimit] = {}


_ShareOfLink = Annotated[float, Meta(ge=0, le=1)]
_LinkKind = Literal["nvlink", "rail", "leaf-uplink", "spine", "wan"]


class _TrafficShare(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    guaranteed: _ShareOfLink
    most: _ShareOfLink


_TrafficShares = dict[TrafficClass, _TrafficShare]


class _Traffic(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    classes: _TrafficShares = {}
    kinds: dict[_LinkKind, _TrafficShares] = {}
    links: Annotated[dict[_LinkName, _TrafficShares], Meta(max_length=10_000)] = {}


class _Document(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: _Name
    about: Annotated[str, Meta(max_length=4000)] = ""
    rules: Documents = Documents()
    playbooks: Documents = Documents()
    admission: _Admission = _Admission()
    response: dict[str, float] = {}
    loop: _Loop = _Loop()
    fallback: fallback.Policy | None = None
    controller: bool = True
    unmanaged: _Unmanaged = _Unmanaged()
    shares: _Shares = _Shares()
    preemption: _Preemption = _Preemption()
    machines: _Machines = _Machines()
    moving: _Moving = _Moving()
    traffic: _Traffic = _Traffic()
    open_classes: _Classes | None = None
    projects: dict[_Word, _Project] = {}


# --- As used -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Played:
    """Settings of the twin alone; a server has them as they are by default."""

    rules: Documents = field(default_factory=Documents)
    playbooks: Documents = field(default_factory=Documents)
    #: limits are filled to this share of what they have
    fill_share: float = 1.0
    #: the mechanisms, by name; see :class:`lab.world.policy.Approach`
    mechanisms: Mapping[str, bool] = field(default_factory=dict)
    max_site_share: float = 0.2
    directive_delay_s: float = 4.0
    stale_after_s: float = 30.0


@dataclass(frozen=True, kw_only=True)
class AdmissionPolicy:
    """A policy, checked. By default it is the one that comes with Headroom."""

    name: str = NAME
    about: str = ""
    tuning: snapshot.Tuning = field(default_factory=snapshot.Tuning)
    reserve: reservation.Rules = field(default_factory=reservation.Rules)
    response: respond.Tuning = field(default_factory=respond.Tuning)
    fallback: fallback.Policy = field(default_factory=fallback.built_in)
    #: what caps and pauses have not brought down by then is brought down by ending jobs, s
    shed_after_s: float = SHED_AFTER_S
    #: whether running load is held within budgets by caps, every few seconds
    controls: bool = True
    #: how far that may slow load of no known owner
    unmanaged: Unmanaged = field(default_factory=Unmanaged)
    #: which project may use which class
    grants: Grants = field(default_factory=Grants)
    #: what is due to whom of the fleet
    shares: Shares = field(default_factory=Shares)
    #: who may have whom give way
    preemption: PreemptionPolicy = field(default_factory=PreemptionPolicy)
    #: a machine that runs jobs and is silent for so long is given up, s
    lease_s: float = LEASE_S
    #: whether running jobs grow, and stand elsewhere so that others fit
    moving: MovingPolicy = field(default_factory=MovingPolicy)
    #: how links are shared by classes of traffic
    traffic: TrafficPolicy = field(default_factory=TrafficPolicy)
    played: Played = field(default_factory=Played)


def built_in_text() -> str:
    """Return the policy that comes with Headroom as a document, every number spelled out."""
    policy = AdmissionPolicy()
    values: dict[str, Any] = {
        "name": policy.name,
        "about": "What Headroom does where nobody has written a policy of their own.",
        "admission": {"tuning": asdict(policy.tuning), "reserve": asdict(policy.reserve)},
        "response": asdict(policy.response),
        "loop": {"shed_after_s": policy.shed_after_s},
        "fallback": msgspec.to_builtins(policy.fallback),
        "controller": policy.controls,
        "unmanaged": {
            "capped": policy.unmanaged.is_capped,
            "lowest_speed": policy.unmanaged.lowest_speed,
        },
        "shares": {"half_life_s": policy.shares.half_life_s, "organizations": {}},
        "preemption": msgspec.to_builtins(_Preemption()),
        "machines": {"lease_s": policy.lease_s},
        "moving": msgspec.to_builtins(_Moving()),
        "traffic": {
            "classes": {name.value: asdict(each) for name, each in traffic.BUILT_IN.items()},
            "kinds": {},
            "links": {},
        },
        "open_classes": None,
        "projects": {},
    }
    text: str = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    return text


# --- Reading -------------------------------------------------------------------------------------

#: Of which 0 would make no sense: they divide, or nothing would ever be tried.
_ABOVE_0 = frozenset(
    {
        "deadline_within_s",
        "depth",
        "fair_share_horizon_s",
        "forgets_in_s",
        "halves_in_s",
        "quantile",
        "ramp_s",
        "stagger_s",
        "wait_s_per_point",
    }
)
#: Numbers of earlier releases: texts that state them are still taken, and they count nothing.
_RETIRED = frozenset({"fair_share_points"})
#: Shares of something that cannot be more than all of it.
_AT_MOST_1 = frozenset({"band", "quantile"})


@lru_cache(maxsize=64)
def read(text: str) -> AdmissionPolicy:
    """Return the policy in ``text``. Raises DocumentError with all faults found."""
    document = documents.read(text)
    given = document.converted(_Document, _SEE)
    problems: list[FieldError] = []
    admission, loop = given.admission, given.loop
    policy = AdmissionPolicy(
        name=given.name,
        about=given.about.strip(),
        tuning=_tuned(document, snapshot.Tuning(), admission.tuning, "admission.tuning", problems),
        reserve=_tuned(
            document, reservation.Rules(), admission.reserve, "admission.reserve", problems
        ),
        response=_tuned(document, respond.Tuning(), given.response, "response", problems),
        fallback=given.fallback or fallback.built_in(),
        shed_after_s=loop.shed_after_s,
        controls=given.controller,
        unmanaged=Unmanaged(
            is_capped=given.unmanaged.capped, lowest_speed=given.unmanaged.lowest_speed
        ),
        grants=_grants(given),
        shares=_shares(given),
        preemption=_preemption(given),
        lease_s=given.machines.lease_s,
        moving=MovingPolicy(**msgspec.structs.asdict(given.moving)),
        traffic=_traffic(given.traffic),
        played=_played(given),
    )
    problems += _faults_of_traffic(document, given.traffic, policy.traffic)
    problems += (*_unknown_organizations(document, given), *_faults_of_cohorts(document, given))
    problems += _faults_of_moving(document, given.moving)
    if given.fallback is not None:
        for path, message in fallback.faults(given.fallback):
            problems.append(document.fault(f"fallback.{path}", message))
    if problems:
        raise DocumentError(problems)
    return policy


def _traffic(given: _Traffic) -> TrafficPolicy:
    def shares(stated: _TrafficShares) -> dict[TrafficClass, traffic.Share]:
        return {name: traffic.Share(each.guaranteed, each.most) for name, each in stated.items()}

    return TrafficPolicy(
        classes={**traffic.BUILT_IN, **shares(given.classes)},
        kinds={name: shares(each) for name, each in given.kinds.items()},
        links={name: shares(each) for name, each in given.links.items()},
    )


def _faults_of_traffic(
    document: Document, given: _Traffic, policy: TrafficPolicy
) -> Iterator[FieldError]:
    """Yield a fault for shares that cannot be: most below guaranteed, or more than the link."""
    stated = {
        "classes": given.classes,
        **{f"kinds.{name}": each for name, each in given.kinds.items()},
        **{f"links.{name}": each for name, each in given.links.items()},
    }
    for place, shares in stated.items():
        for name, each in shares.items():
            if each.most < each.guaranteed:
                path = f"traffic.{place}.{name}.most"
                text = f"it is below what is guaranteed, {each.guaranteed:g}"
                yield document.fault(path, text, "give at least as much")
    for place, sure in policy.overbooked():
        text = f"{sure:.3g} of the link is guaranteed, with the classes that are not named here"
        yield document.fault(f"traffic.{place}", text, "guarantee 1 at most in all")


def _grants(given: _Document) -> Grants:
    projects = given.projects.items()
    return Grants(
        open_classes=None if given.open_classes is None else frozenset(given.open_classes),
        granted={name: frozenset(each.granted) for name, each in projects if each.granted},
        confined={
            name: frozenset(each.classes) for name, each in projects if each.classes is not None
        },
    )


def _shares(given: _Document) -> Shares:
    return Shares(
        half_life_s=given.shares.half_life_s,
        organizations={name: each.weight for name, each in given.shares.organizations.items()},
        projects={
            name: stated
            for name, each in given.projects.items()
            if (stated := _stated(each)) != Stated()
        },
    )


def _stated(project: _Project) -> Stated:
    return Stated(
        organization=project.organization or "",
        weight=project.weight,
        users=project.users,
        gpu_quota=project.gpu_quota,
        cohort=project.cohort or "",
        may_borrow=project.may_borrow,
        may_lend=project.may_lend,
        per_user=PerUser(
            _user_limit(project.each_user),
            {name: _user_limit(each) for name, each in project.user_limits.items()},
        ),
    )


def _user_limit(stated: _UserLimit) -> UserLimit:
    return UserLimit(**msgspec.structs.asdict(stated))


def _preemption(given: _Document) -> PreemptionPolicy:
    stated = given.preemption
    return PreemptionPolicy(
        least_runtime_s=stated.least_runtime_s,
        disruptions_per_h=stated.disruptions_per_h,
        disruptions_of={
            name: each.disruptions_per_h
            for name, each in given.projects.items()
            if each.disruptions_per_h is not None
        },
        stops={name: frozenset(classes) for name, classes in stated.stops.items()},
        reclaim_quota_after_s=stated.reclaim_quota_after_s,
        reclaim_share_after_s=stated.reclaim_share_after_s,
    )


def _faults_of_cohorts(document: Document, given: _Document) -> Iterator[FieldError]:
    """Yield a fault for each project that lends or borrows without quota or without cohort."""
    for name, each in given.projects.items():
        path = f"projects.{name}"
        if each.cohort is not None and each.gpu_quota is None:
            way_out = "state gpu_quota beside it: what is beyond it is borrowed"
            yield document.fault(f"{path}.cohort", "it has no quota to lend or exceed", way_out)
        for field_name in ("may_borrow", "may_lend"):
            if getattr(each, field_name) is not None and each.cohort is None:
                text = "it is in no cohort to borrow from or lend to"
                yield document.fault(f"{path}.{field_name}", text, "state cohort beside it")


def _faults_of_moving(document: Document, moving: _Moving) -> Iterator[FieldError]:
    """Yield a fault where a job would give back what it grows by at the same yield: it swings."""
    if moving.undone_below >= moving.least_yield > 0.0:
        text = f"it is not below least_yield, {moving.least_yield:g}: jobs would swing"
        yield document.fault("moving.undone_below", text, "state less, or raise least_yield")


def _unknown_organizations(document: Document, given: _Document) -> Iterator[FieldError]:
    """Yield a fault for each project of an organization that nothing is stated of: a slip."""
    known = given.shares.organizations
    for name, each in given.projects.items():
        if each.organization is not None and each.organization not in known:
            close = closest(each.organization, sorted(known))
            way_out = f"do you mean {close}?" if close else "name it in shares.organizations"
            path = f"projects.{name}.organization"
            yield document.fault(path, f"there is no organization {each.organization}", way_out)


def _played(given: _Document) -> Played:
    admission, loop = given.admission, given.loop
    names = (
        "enforces_budgets",
        "reads_live",
        "follows_rules",
        "caps",
        "responds",
        "sheds",
        "moves",
    )
    return Played(
        rules=given.rules,
        playbooks=given.playbooks,
        fill_share=admission.fill_share,
        mechanisms={name: getattr(admission, name) for name in names},
        max_site_share=loop.max_site_share,
        directive_delay_s=loop.directive_delay_s,
        stale_after_s=loop.stale_after_s,
    )


def _tuned(
    document: Document,
    default: Tuned,
    given: Mapping[str, float],
    path: str,
    problems: list[FieldError],
) -> Tuned:
    """Return a dataclass with the numbers in ``given`` in place of its own; collect the faults."""
    known = {each.name: type(getattr(default, each.name)) for each in fields(default)}
    found = {}
    for name, value in given.items():
        if name in _RETIRED:
            continue
        if fault := _fault(name, value, known):
            problems.append(document.fault(f"{path}.{name}", *fault))
        else:
            # A whole number stays one: some of these count.
            found[name] = known[name](value)
    return replace(default, **found)


def _fault(name: str, value: float, known: Mapping[str, type]) -> tuple[str, str] | None:
    """Return the fault of a number, and the way out; None: it has none."""
    if name not in known:
        close = closest(name, sorted(known))
        way_out = f"do you mean {close}?" if close else f"one of: {', '.join(sorted(known))}"
        return f"there is no {name}", way_out
    if known[name] is int and value != int(value):
        return f"{value:g} is no whole number", "write one"
    if value < 0 or (value == 0 and name in _ABOVE_0):
        return (
            f"{value:g} is too small",
            f"give {'more than' if name in _ABOVE_0 else 'at least'} 0",
        )
    if value > 1 and name in _AT_MOST_1:
        return f"{value:g} is more than all of it", "give at most 1"
    return None


# --- On a server ---------------------------------------------------------------------------------

#: What only the twin plays, and why a server does not.
_ONLY_PLAYED = {
    "rules": "on a server each rule has a life of its own",
    "playbooks": "on a server each playbook has a life of its own",
    "admission.fill_share": "a server fills limits, and never beyond",
    "admission.enforces_budgets": "a server always does",
    "admission.reads_live": "a server always counts what is reserved",
    "admission.follows_rules": "a server always does",
    "admission.caps": "restrictions say where a server caps",
    "admission.responds": "a job says by its class whether it responds",
    "admission.sheds": "a server always does",
    "admission.moves": "a job says by its class whether it moves",
    "loop.max_site_share": "on a server it is the setting POLICY_MAX_SITE_SHARE",
    "loop.directive_delay_s": "on a server agents and jobs take what they take",
    "loop.stale_after_s": "on a server it is the setting STALE_AFTER_S",
}


def for_server(text: str) -> AdmissionPolicy:
    """Return the policy in ``text``. Raises DocumentError where a server cannot use it."""
    policy = read(text)
    problems = list(_unplayable(documents.read(text)))
    if problems:
        raise DocumentError(problems)
    return policy


def _unplayable(document: Document) -> Iterator[FieldError]:
    for path, why in _ONLY_PLAYED.items():
        if path in document.places:
            yield document.fault(path, f"the twin alone plays this: {why}", "leave it out")
