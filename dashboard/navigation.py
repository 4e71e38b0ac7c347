"""The navigation: all pages that stand for themselves, in one place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.urls import reverse

from accounts.models import User
from accounts.roles import Capability

__all__ = ["MAIN", "MORE", "Entry", "Navigation", "of"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A page. ``key``: the letter that leads there after ``g``; empty: none does."""

    url_name: str
    name: str
    key: str = ""
    needs: Capability = Capability.VIEW_FLEET


MAIN = (
    Entry("fleet", "Fleet", "f"),
    Entry("incidents", "Incidents", "i"),
    Entry("queue-page", "Queue", "q"),
    Entry("conditions", "Conditions", "c"),
    Entry("restrictions", "Restrictions", "s"),
    Entry("rules", "Rules", "r"),
    Entry("slos", "Service levels", "o"),
    Entry("throttle-events", "Throttling", "t"),
)
MORE = (
    Entry("submit-job", "Submit a job", needs=Capability.SUBMIT_JOBS),
    Entry("classes-page", "Classes and quota"),
    Entry("calendar-page", "Calendar"),
    Entry("goodput-page", "Goodput"),
    Entry("losses-page", "What cost most"),
    Entry("energy", "Energy"),
    Entry("what-if-page", "What if"),
    Entry("curtailments", "Curtailments"),
    Entry("playbooks-page", "Playbooks"),
    Entry("rollouts", "Rollouts"),
    Entry("channels", "Channels"),
    Entry("failures-page", "Failures"),
    Entry("lemons", "Lemons", "l"),
    Entry("agents", "Agents", "a"),
    Entry("users", "Users", needs=Capability.MANAGE_USERS),
)


@dataclass(frozen=True, slots=True)
class Link:
    """An entry as one page shows it."""

    href: str
    name: str
    key: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class Navigation:
    """The links of one page, for one reader."""

    main: list[Link]
    more: list[Link]

    @property
    def is_in_more(self) -> bool:
        """Whether the page at hand is among the further ones."""
        return any(each.is_current for each in self.more)


def of(user: User, url_name: str) -> Navigation:
    """Return the links that ``user`` may follow, on the page of ``url_name``."""
    return Navigation(_links(MAIN, user, url_name), _links(MORE, user, url_name))


def _links(entries: Sequence[Entry], user: User, url_name: str) -> list[Link]:
    return [
        Link(reverse(each.url_name), each.name, each.key, is_current=each.url_name == url_name)
        for each in entries
        if user.can(each.needs)
    ]
