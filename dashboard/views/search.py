"""Search by name: sites, zones, power domains, storage, racks, nodes, GPUs, jobs and links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast
from urllib.parse import urlencode

from django.db.models import Case, Model, QuerySet, When
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from accounts.cost import dear
from accounts.decorators import requires
from accounts.models import User
from accounts.roles import Capability
from admission.jobs.models import Job
from fleet.models import (
    CoolingZone,
    Gpu,
    Link,
    Node,
    PowerDomain,
    Rack,
    Site,
    StorageEndpoint,
)
from fleet.recordings import recordings_over
from policies.scopes import ScopeKind

__all__ = ["page"]

M = TypeVar("M", bound=Model)

_MOST = 50
_LONGEST = 200
#: "node/gpu3", "node gpu 3": how people and events write a GPU.
_GPU = re.compile(r"(?P<node>.+?)[/ ]+gpu ?(?P<index>\d{1,3})", re.IGNORECASE)


@dataclass(frozen=True)
class Hit:
    name: str
    url: str
    where: str


@dataclass(frozen=True)
class Group:
    name: str
    hits: list[Hit]
    more: bool


@require_safe
@requires(Capability.VIEW_FLEET)
@dear("the words")
def page(request: HttpRequest) -> HttpResponse:
    """The things with this name. A name that only one thing has leads there directly."""
    query = request.GET.get("q", "").replace("\x00", "").strip()[:_LONGEST]
    if not query:
        return render(request, "dashboard/search.html", {"query": "", "groups": []})
    user = cast(User, request.user)
    groups = [group for group in _groups(query, user) if group.hits]
    exact = [hit for group in groups for hit in group.hits if hit.name.lower() == query.lower()]
    if len(exact) == 1:
        return redirect(exact[0].url)
    context = {"query": query, "groups": groups, "total": sum(len(g.hits) for g in groups)}
    return render(request, "dashboard/search.html", context)


def _groups(query: str, user: User) -> list[Group]:
    left = _MOST
    groups = []
    for name, find in (
        ("Sites", _sites),
        ("Power domains", partial(_places, ScopeKind.POWER_DOMAIN, PowerDomain)),
        ("Cooling zones", partial(_places, ScopeKind.ZONE, CoolingZone)),
        ("Storage", partial(_places, ScopeKind.STORAGE, StorageEndpoint)),
        ("Racks", _racks),
        ("Nodes", _nodes),
        ("GPUs", _gpus),
        ("Jobs", partial(_jobs, user)),
        ("Links", _links),
    ):
        hits = find(query, left + 1) if left > 0 else []
        groups.append(Group(name, hits[:left], len(hits) > left))
        left -= min(left, len(hits))
    return groups


def _sites(query: str, most: int) -> list[Hit]:
    found = _named(Site.objects.exclude(pk__in=recordings_over()), query)[:most]
    return [Hit(site.name, f"{reverse('fleet')}?{_param(site.name)}", "site") for site in found]


def _racks(query: str, most: int) -> list[Hit]:
    site, _, name = query.rpartition("/")
    racks = Rack.objects.exclude(site__in=recordings_over()).select_related("site")
    if site:
        racks = racks.filter(site__name__iexact=site)
    return [
        Hit(
            str(rack) if site else rack.name,
            reverse("rack", args=[rack.pk]),
            f"{rack.site.name}, row {rack.row}" if rack.row else rack.site.name,
        )
        for rack in _named(racks, name)[:most]
    ]


def _nodes(query: str, most: int) -> list[Hit]:
    nodes = _named(Node.objects.select_related("rack__site"), query)[:most]
    return [Hit(n.name, reverse("node", args=[n.pk]), f"rack {n.rack}") for n in nodes]


def _gpus(query: str, most: int) -> list[Hit]:
    gpus = Gpu.objects.select_related("node__rack__site").order_by("node__name", "index")
    if match := _GPU.fullmatch(query):
        gpus = gpus.filter(node__name__icontains=match["node"], index=int(match["index"]))
    else:
        gpus = gpus.filter(uuid__iexact=query).exclude(uuid="")
    return [
        Hit(
            gpu.uuid if gpu.uuid.lower() == query.lower() else str(gpu),
            reverse("gpu", args=[gpu.pk]),
            f"rack {gpu.node.rack}",
        )
        for gpu in gpus[:most]
    ]


def _jobs(user: User, query: str, most: int) -> list[Hit]:
    jobs = Job.objects.visible_to(user).select_related("project").defer("spec")
    return [
        Hit(job.name, reverse("job-page", args=[job.name]), f"{job.state}, {job.project.name}")
        for job in _named(jobs, query)[:most]
    ]


def _links(query: str, most: int) -> list[Hit]:
    links = _named(Link.objects.all(), query)[:most]
    return [
        Hit(
            link.name,
            reverse("place", args=[ScopeKind.LINK.value, link.name]),
            link.get_kind_display(),
        )
        for link in links
    ]


def _places(kind: ScopeKind, model: type[Model], query: str, most: int) -> list[Hit]:
    """Return things whose names are unique within their site: "site/name" finds one."""
    site, _, name = query.rpartition("/")
    rows = model._default_manager.exclude(site__in=recordings_over()).select_related("site")
    if site:
        rows = rows.filter(site__name__iexact=site)
    found: list[Any] = list(_named(rows, name)[:most])
    return [
        Hit(
            f"{each.site.name}/{each.name}" if site else each.name,
            reverse("place", args=[kind.value, f"{each.site.name}/{each.name}"]),
            each.site.name,
        )
        for each in found
    ]


def _named(things: QuerySet[M], name: str) -> QuerySet[M]:
    """Return rows with ``name`` in their name, exact matches first."""
    exactly = Case(When(name__iexact=name, then=0), default=1)
    return things.filter(name__icontains=name).order_by(exactly, "name")


def _param(site: str) -> str:
    return urlencode({"site": site})
