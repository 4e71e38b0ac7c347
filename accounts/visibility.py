"""Visibility of jobs to a reader: the one place that decides.

The table is in docs/reference/roles.md. Who holds ``see_all_jobs`` sees the name of every job; who
does not, those of the own projects. To such a reader a job of another project has no name: rows
about it alone are not there, and where it stands in a text or a list, :data:`ANOTHER` does.

Jobs are rows of a room above this one. It says by :func:`provide` how they are looked up; until it
has, nobody without ``see_all_jobs`` sees any.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import msgspec
from django.db.models import F, Func, Q, TextField, Value
from django.db.models.lookups import In

from accounts.roles import Capability

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest

    from accounts.models import User

__all__ = [
    "ANOTHER",
    "Jobs",
    "Visibility",
    "named_in",
    "of",
    "provide",
    "sees_all",
    "without_names",
]

Row = TypeVar("Row")

#: What stands where a name would.
ANOTHER = "a job of another project"
#: How texts name jobs: "job/phase", with "/attempt" behind it or without; and "job NAME", as scopes
#: are written.
_KEY = re.compile(
    r"(?<![\w./-])(?:"
    r"(?P<job>[a-z0-9][a-z0-9._-]{0,199})/(?P<phase>[a-z0-9](?:[a-z0-9._-]{0,58}[a-z0-9])?)"
    r"(?:/[0-9]+)?"
    r"|job[ :](?P<scope>[a-z0-9](?:[a-z0-9._-]{0,198}[a-z0-9])?)"
    r")(?![\w/-])"
)
#: The same, roughly, for Postgres: a text without this names no job.
_MAY_NAME = r"[a-z0-9]/[a-z0-9]|job[ :][a-z0-9]"


class Jobs(Protocol):
    """How jobs are looked up."""

    def names_of(self, user: User) -> QuerySet[Any]:
        """The names of the jobs of the projects of ``user``, as a query of one column."""

    def of_others(self, user: User, keys: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        """Those of ``keys`` (job, phase) that are phases of jobs of other projects. One query.

        Where the phase is empty, the job alone is meant.
        """


_provided: list[Jobs] = []


def provide(jobs: Jobs) -> None:
    """Have jobs be looked up in ``jobs`` from now on."""
    _provided[:] = [jobs]


def sees_all(user: User) -> bool:
    """Say whether ``user`` sees the names of the jobs of all projects."""
    return user.can(Capability.SEE_ALL_JOBS)


def of(request: HttpRequest) -> Visibility:
    """Return the visibility of a page's reader; its guard has let in only known users."""
    return Visibility(cast("User", request.user))


class Visibility:
    """The visibility to one reader. It remembers its look-ups: make one for each request."""

    def __init__(self, user: User) -> None:
        self._user = user
        self.sees_all = sees_all(user)
        self._seen: dict[str, bool] = {}
        self._is_foreign: dict[tuple[str, str], bool] = {}

    # --- Names ---

    def sees(self, name: str) -> bool:
        """Say whether the reader sees the job of ``name``: "job", "job/phase" or "job/phase/1".

        No for one that is not known to any project: unknown is not open.
        """
        return self.sees_all or self.seen([name])[0]

    def seen(self, names: Sequence[str]) -> list[bool]:
        """Say of each of ``names`` whether the reader sees its job. One query at most."""
        if self.sees_all:
            return [True] * len(names)
        jobs = [name.partition("/")[0] for name in names]
        self._look_up({job for job in jobs if job not in self._seen})
        return [self._seen[job] for job in jobs]

    def _look_up(self, jobs: Collection[str]) -> None:
        if not jobs:
            return
        mine = set(self._names().filter(name__in=jobs)) if _provided else set()
        self._seen |= {job: job in mine for job in jobs}

    def _names(self) -> QuerySet[Any]:
        return _provided[0].names_of(self._user)

    # --- Rows ---

    def hides(self, scope_kind: str, scope_name: str) -> bool:
        """Say whether this scope is a job that the reader may not see."""
        return scope_kind == "job" and not self.sees(scope_name)

    def seen_rows(self, kind: str = "scope_kind", name: str = "scope_name") -> Q:
        """Return a condition for rows that are not about the job of another project."""
        if self.sees_all:
            return Q()
        return ~Q(**{kind: "job"}) | self.seen_names(name)

    def seen_names(self, field: str) -> Q:
        """Return a condition for rows whose ``field`` names a job or phase that the reader sees."""
        if self.sees_all:
            return Q()
        job = Func(F(field), Value("/"), Value(1), function="split_part", output_field=TextField())
        return Q(In(job, self._names())) if _provided else Q(pk__in=())

    def without_names(self, field: str) -> Q:
        """Return a condition for rows whose text in ``field`` this reader's search may look at."""
        return Q() if self.sees_all else ~Q(**{f"{field}__regex": _MAY_NAME})

    # --- Texts ---

    def shown(self, names: Sequence[str]) -> list[str]:
        """Return :meth:`name` of each; empty stays empty. One query at most."""
        return [
            name if is_seen or not name else ANOTHER
            for name, is_seen in zip(names, self.seen(names), strict=True)
        ]

    def text(self, text: str) -> str:
        """Return ``text`` with :data:`ANOTHER` in place of keys of jobs of other projects.

        Only what is the whole key of a phase counts, or the whole name of a job behind the word
        "job", so no other word is ever replaced.
        """
        if self.sees_all or ("/" not in text and "job" not in text):
            return text
        self.read([text])
        return without_names(text, self._is_foreign.__getitem__)

    def read(self, values: Iterable[Any]) -> None:
        """Look up all jobs that texts and JSON name: one query at most for all of them."""
        if self.sees_all:
            return
        keys = {key for value in values for key in named_in(value)} - self._is_foreign.keys()
        if keys and _provided:
            foreign = _provided[0].of_others(self._user, keys)
            self._is_foreign |= {key: key in foreign for key in keys}
        else:
            self._is_foreign |= dict.fromkeys(keys, True)

    def data(self, value: Any) -> Any:
        """Return JSON with :meth:`text` applied to all of its texts."""
        if self.sees_all:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(name)): self.data(each) for name, each in value.items()}
        return [self.data(each) for each in value] if isinstance(value, list | tuple) else value

    def veiled(self, rows: Iterable[Row], *fields: str) -> list[Row]:
        """Return copies of rows with :meth:`data` applied to ``fields``. They are not to be saved.

        One query at most.
        """
        found = list(rows)
        if self.sees_all:
            return found
        self.read(getattr(row, field) for row in found for field in fields)
        return [
            _with(row, {field: self.data(getattr(row, field)) for field in fields}) for row in found
        ]


def _with(row: Row, values: dict[str, Any]) -> Row:
    """Return a copy with other values of a dataclass, a struct or the row of a table."""
    if isinstance(row, msgspec.Struct):
        return msgspec.structs.replace(row, **values)
    if dataclasses.is_dataclass(row) and not isinstance(row, type):
        return dataclasses.replace(row, **values)
    made = copy.copy(row)
    for field, value in values.items():
        setattr(made, field, value)
    return made


def _named(found: re.Match[str]) -> tuple[str, str]:
    """Return job and phase that a text names; no phase where it names the job alone."""
    return (found["scope"], "") if found["scope"] else (found["job"], found["phase"])


def named_in(value: Any) -> Iterable[tuple[str, str]]:
    """Yield job and phase of whatever texts and JSON may name; the phase is empty for a job."""
    if isinstance(value, str):
        yield from map(_named, _KEY.finditer(value))
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from named_in(name)
            yield from named_in(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from named_in(each)


def without_names(text: str, is_hidden: Callable[[tuple[str, str]], bool]) -> str:
    """Return ``text`` with :data:`ANOTHER` in place of each name that ``is_hidden``."""
    return _KEY.sub(lambda found: ANOTHER if is_hidden(_named(found)) else found[0], text)
