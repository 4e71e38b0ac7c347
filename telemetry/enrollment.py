"""Giving agents their tokens: enrolling, rotating, revoking. Each leaves an audit entry."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from django.db import IntegrityError, transaction
from django.db.models import Model
from django.utils import timezone

from accounts import audit
from accounts.models import User
from fleet.models import Node, Site
from telemetry import directory
from telemetry.models import Agent


@dataclass(frozen=True, slots=True)
class Enrollment:
    """An agent to enroll, with the names of the nodes and of the sites that it may speak for.

    ``any_job``: it may report on jobs that are not placed there.
    """

    name: str
    nodes: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    any_job: bool = False


@dataclass(frozen=True, slots=True)
class Enrolled:
    """An agent with its token, which cannot be had again."""

    agent: Agent
    token: str
    created: bool


class EnrollmentError(Exception):
    """An enrollment is wrong. ``index``: which one; ``field``: which part of it."""

    def __init__(self, index: int, field: str, message: str) -> None:
        super().__init__(message)
        self.index = index
        self.field = field


class UnknownName(EnrollmentError):
    """The inventory has no node or site of this name."""


class NameTaken(EnrollmentError):
    """There is an agent of this name already, and it was not asked to give it a new token."""


def enroll(
    actor: User | str, wanted: Sequence[Enrollment], *, rotate: bool = False
) -> list[Enrolled]:
    """Enroll all of ``wanted`` or none, in one transaction.

    ``rotate`` gives an agent that exists a new token and the nodes and sites named here. Raises
    :class:`EnrollmentError`. The number of queries does not grow with the number of agents, but for
    the audit log.
    """
    try:
        with transaction.atomic():
            return _enroll(actor, wanted, rotate)
    except IntegrityError:
        # Somebody enrolled the same name between our look and our write.
        raise NameTaken(0, "name", "an agent of this name was enrolled just now") from None


def _enroll(actor: User | str, wanted: Sequence[Enrollment], rotate: bool) -> list[Enrolled]:
    nodes = _ids(Node, {name for each in wanted for name in each.nodes})
    sites = _ids(Site, {name for each in wanted for name in each.sites})
    _check_names(wanted, nodes, sites)
    existing = _existing(wanted, rotate)
    before = {name: audit.state(agent, "nodes", "sites") for name, agent in existing.items()}
    enrolled = _save(wanted, existing)
    _scope(enrolled, wanted, nodes, sites)
    for each, one in zip(wanted, enrolled, strict=True):
        audit.record(
            actor,
            "agent.enroll" if one.created else "agent.rotate",
            one.agent.name,
            nodes=list(each.nodes),
            sites=list(each.sites),
            any_job=each.any_job,
            **audit.changes(before.get(each.name), _state_of(one.agent, each)),
        )
    transaction.on_commit(directory.invalidate_scopes)
    return enrolled


def _state_of(agent: Agent, enrollment: Enrollment) -> audit.State:
    """Return an agent as it is now, from the enrollment just written instead of by queries."""
    scope = {"nodes": sorted(set(enrollment.nodes)), "sites": sorted(set(enrollment.sites))}
    return {**audit.state(agent), **scope}


_Named = TypeVar("_Named", Node, Site)


def _ids(model: type[_Named], names: Collection[str]) -> dict[str, int]:
    return dict(model._default_manager.filter(name__in=names).values_list("name", "pk"))


def _check_names(
    wanted: Sequence[Enrollment], nodes: dict[str, int], sites: dict[str, int]
) -> None:
    seen: set[str] = set()
    for index, each in enumerate(wanted):
        if each.name in seen:
            raise NameTaken(index, "name", f"{each.name!r} stands here twice")
        seen.add(each.name)
        for field, named, known in (("nodes", each.nodes, nodes), ("sites", each.sites, sites)):
            for place, name in enumerate(named):
                if name not in known:
                    raise UnknownName(
                        index, f"{field}[{place}]", f"the inventory has no {field[:-1]} {name!r}"
                    )


def _existing(wanted: Sequence[Enrollment], rotate: bool) -> dict[str, Agent]:
    named = Agent.objects.filter(name__in=[each.name for each in wanted])
    locked = named.select_for_update().order_by("pk").prefetch_related("nodes", "sites")
    existing = {agent.name: agent for agent in locked}
    if existing and not rotate:
        index = next(i for i, each in enumerate(wanted) if each.name in existing)
        raise NameTaken(index, "name", f"there is an agent {wanted[index].name!r} already")
    return existing


def _save(wanted: Sequence[Enrollment], existing: dict[str, Agent]) -> list[Enrolled]:
    enrolled = []
    for each in wanted:
        agent = existing.get(each.name) or Agent(name=each.name)
        agent.any_job = each.any_job
        secret = agent.renew_token()
        enrolled.append(Enrolled(agent, secret, created=agent.pk is None))
    Agent.objects.bulk_create(one.agent for one in enrolled if one.created)
    old = [one.agent for one in enrolled if not one.created]
    Agent.objects.bulk_update(old, [*Agent.TOKEN_FIELDS, "any_job"])
    return enrolled


def _scope(
    enrolled: Sequence[Enrolled],
    wanted: Sequence[Enrollment],
    nodes: dict[str, int],
    sites: dict[str, int],
) -> None:
    old = [one.agent.pk for one in enrolled if not one.created]
    pairs = [(one.agent.pk, each) for one, each in zip(enrolled, wanted, strict=True)]
    to_nodes = ((pk, "node_id", nodes[name]) for pk, each in pairs for name in each.nodes)
    to_sites = ((pk, "site_id", sites[name]) for pk, each in pairs for name in each.sites)
    _link(Agent.nodes.through, old, to_nodes)
    _link(Agent.sites.through, old, to_sites)


def _link(through: type[Model], old: Sequence[int], links: Iterable[tuple[int, str, int]]) -> None:
    through._default_manager.filter(agent_id__in=old).delete()
    # A set: a name that was given twice is one link.
    through._default_manager.bulk_create(
        through(agent_id=agent, **{field: target}) for agent, field, target in sorted(set(links))
    )


def allow_any_job(actor: User | str, agent: Agent, allowed: bool) -> None:
    """Let ``agent`` report on jobs that are not placed on its nodes, or no longer."""
    with transaction.atomic():
        before = Agent.objects.select_for_update().get(pk=agent.pk).any_job
        agent.any_job = allowed
        if before == allowed:
            return
        agent.save(update_fields=["any_job"])
        told = audit.changes({"any_job": before}, {"any_job": allowed})
        audit.record(actor, "agent.any_job", agent.name, **told)
        transaction.on_commit(directory.invalidate_scopes)


def rotate(actor: User | str, agent: Agent, *, grace: timedelta = timedelta()) -> str:
    """Give ``agent`` a new token and return it. The old one ends after ``grace``."""
    with transaction.atomic():
        before = audit.state(agent)
        old_until = timezone.now() + grace if grace else None
        secret = agent.renew_token(old_until=old_until)
        agent.save(update_fields=Agent.TOKEN_FIELDS)
        audit.record(
            actor,
            "agent.rotate",
            agent.name,
            hint=agent.hint,
            grace_s=grace.total_seconds(),
            **audit.changes(before, audit.state(agent)),
        )
        transaction.on_commit(directory.invalidate_scopes)
    return secret


def revoke(actor: User | str, agent: Agent) -> bool:
    """End the tokens of ``agent``; False where that was done before."""
    with transaction.atomic():
        now = timezone.now()
        if not Agent.objects.usable().filter(pk=agent.pk).update(revoked_at=now):
            return False
        before = audit.state(agent)
        agent.revoked_at = now
        told = audit.changes(before, audit.state(agent))
        audit.record(actor, "agent.revoke", agent.name, hint=agent.hint, **told)
        transaction.on_commit(directory.invalidate_scopes)
    return True
