"""Users as pages show them: lines of the list, and all that one user has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import (
    BooleanField,
    Case,
    Count,
    Exists,
    IntegerField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
)
from django.db.models.functions import Coalesce
from django.utils import timezone

from accounts.models import ApiToken, AuditEntry, Authenticator, Identity, Session, User
from accounts.password_links import ends_at
from accounts.roles import Capability, Role
from accounts.sign_on import provider
from admission.jobs import catalog
from admission.jobs.models import Project
from dashboard.classes import policy_in_force

__all__ = [
    "ENTRIES_DAYS",
    "MOST_ENTRIES",
    "STATES",
    "Filters",
    "Given",
    "Row",
    "entries",
    "grants",
    "read",
    "rows",
    "select",
    "submits_to",
]

#: States of users that one may ask for.
STATES = ("active", "deactivated")
#: What was done is looked for in so many days, and so much of it is shown.
ENTRIES_DAYS, MOST_ENTRIES = 30, 30
#: What is done to a user; such entries have the user's name as their target.
_ABOUT_USERS = (
    "user.", "password.", "token.", "session.", "second_factor.", "identity.", "login.",
    "project.groups",
)  # fmt: skip
_NEEDS = "needed, none yet"
_LINK_OUT = "no password yet, a link is out"


@dataclass(frozen=True, slots=True)
class Filters:
    """What is chosen of the list; an empty text chooses all."""

    role: str = ""
    state: str = ""
    project: str = ""
    search: str = ""

    @property
    def params(self) -> dict[str, str]:
        """What is chosen, as parameters of the page."""
        names = ("role", "state", "project", "search")
        return {name: value for name in names if (value := getattr(self, name))}


def read(given: Mapping[str, str]) -> Filters:
    """Read filters; what there is none of is left out, but for a project that is not there."""
    role, state = given.get("role", ""), given.get("state", "")
    return Filters(
        role=role if role in Role.values else "",
        state=state if state in STATES else "",
        project=given.get("project", "")[:60],
        search=given.get("search", "").strip()[:200],
    )


@dataclass(frozen=True, slots=True)
class Row:
    """A user. ``lacks``: whether a second factor is needed and missing; ``waits``: whether the user
    has yet to set a password by a link."""

    user: User
    projects: list[str]
    state: str
    second_factor: str
    lacks: bool
    waits: bool
    sessions: int
    tokens: int

    @classmethod
    def of(cls, user: Any) -> Row:
        """Return the line of a user that :func:`select` has found."""
        return cls(
            user=user,
            projects=sorted(each.name for each in user.projects.all()),
            state=(state := _state(user)),
            second_factor=_second_factor(user),
            lacks=user.lacks,
            waits=state == _LINK_OUT,
            sessions=user.session_count,
            tokens=user.token_count,
        )


def _state(user: Any) -> str:
    if not user.is_active:
        return "deactivated"
    if user.has_usable_password() or user.is_signed_on:
        return "active"
    return _LINK_OUT if ends_at(user) else "no password"


def _second_factor(user: Any) -> str:
    if user.has_app:
        return "on"
    if user.lacks:
        return _NEEDS
    return "none here" if user.is_signed_on else "off"


def rows(found: Iterable[Any]) -> list[Row]:
    """Return the lines of users of :func:`select`. Two queries, and one for each link."""
    return [Row.of(each) for each in found]


def select(filters: Filters, now: datetime) -> QuerySet[Any]:
    """Return the users that are chosen; those who lack a second factor first, then by name."""
    told = _told(User.objects.filter(_chosen(filters)), now)
    rank = Case(
        When(lacks=True, then=Value(0)),
        When(is_active=True, then=Value(1)),
        default=Value(2),
        output_field=IntegerField(),
    )
    found: QuerySet[Any] = told.annotate(rank=rank).order_by("rank", "username")
    return found.prefetch_related("projects")


def _chosen(filters: Filters) -> Q:
    chosen = Q()
    if filters.role:
        chosen &= Q(role=filters.role)
    if filters.state:
        chosen &= Q(is_active=filters.state == "active")
    if filters.project:
        of_project = Project.objects.filter(name=filters.project)
        chosen &= Q(pk__in=of_project.values("members"))
    if text := filters.search:
        chosen &= (
            Q(username__icontains=text)
            | Q(first_name__icontains=text)
            | Q(last_name__icontains=text)
            | Q(email__icontains=text)
        )
    return chosen


def _told(found: QuerySet[User], now: datetime) -> QuerySet[Any]:
    """Have the database say with each user what lines tell: counts, and second factors."""
    mine = Q(user=OuterRef("pk"))
    of_provider = Identity.objects.filter(mine, issuer=settings.OIDC_ISSUER)
    no_provider = Value(False, output_field=BooleanField())
    return found.annotate(
        session_count=_count(Session.objects.live(now).filter(mine)),
        token_count=_count(ApiToken.objects.usable().filter(mine)),
        has_app=Exists(Authenticator.objects.filter(mine)),
        is_signed_on=Exists(of_provider) if provider.is_configured() else no_provider,
    ).annotate(
        # Whoever logs in at a provider may show it there: that is not known here.
        lacks=Case(
            When(
                is_active=True,
                role__in=settings.SECOND_FACTOR_ROLES,
                has_app=False,
                is_signed_on=False,
                then=Value(True),
            ),
            default=Value(False),
            output_field=BooleanField(),
        )
    )


def _count(of_user: QuerySet[Any]) -> Coalesce:
    counted = of_user.order_by().values("user").annotate(many=Count("pk")).values("many")
    return Coalesce(Subquery(counted, output_field=IntegerField()), 0)


@dataclass(frozen=True, slots=True)
class Given:
    """A project of a user: who put the user there, and the classes that its jobs may have."""

    project: Project
    by: str
    classes: list[str]


def grants(user: User) -> list[Given]:
    """Return the projects of a user. Four queries."""
    held = list(user.projects.order_by("name"))
    by_groups = set(user.group_memberships.values_list("project_id", flat=True))
    allowed, classes = policy_in_force().grants.allowed, catalog.current().values()
    return [
        Given(
            each,
            f"a group of {settings.OIDC_NAME}" if each.pk in by_groups else "hand",
            sorted(allowed(each.name, classes)),
        )
        for each in held
    ]


def submits_to(user: User) -> str:
    """Return in words which projects a user may submit jobs to."""
    if not user.can(Capability.SUBMIT_JOBS):
        return "none"
    return "all projects" if user.can(Capability.EDIT_POLICIES) else "their own projects"


def entries(user: User, most: int) -> list[AuditEntry]:
    """Return the newest entries of the audit log by a user, or about the user's account."""
    since = timezone.now() - timedelta(days=ENTRIES_DAYS)
    about = Q()
    for each in _ABOUT_USERS:
        about |= Q(action__startswith=each)
    name = user.get_username()
    found = AuditEntry.objects.filter(Q(actor=name) | (Q(target=name) & about), at__gte=since)
    return list(found.order_by("-at", "-pk")[:most])
