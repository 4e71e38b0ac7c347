"""Which incidents firings open, which they join, and which firings are hidden. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from policies.firings import Firing
from policies.incidents.grouping import Group, group_of, member_key
from policies.incidents.inhibition import Inhibition, inhibited, root_of
from policies.incidents.matchers import Matcher, Subject, Subjects
from policies.incidents.places import Places

__all__ = ["Arrival", "Known", "Plan", "plan", "silenced", "subject_of"]


@dataclass(frozen=True)
class Known:
    """A member that fires already, as it is recorded."""

    subject: Subject
    version: int
    playbook: str
    #: group that it would be in by itself, and the one whose incident it is in
    group_key: str
    home_key: str
    inhibited_by: str
    silence: int | None
    #: its incident was closed while it fired
    dismissed: bool

    @property
    def is_guest(self) -> bool:
        """Say whether it is in the incident of the firing that explains it."""
        return self.group_key != self.home_key


@dataclass(frozen=True)
class Arrival:
    """A firing that becomes a member of an incident: of its own ``group``, or of a host's."""

    firing: Firing
    subject: Subject
    group: Group
    inhibited_by: str
    silence: int | None


@dataclass(frozen=True)
class Plan:
    """The changes to record. Keys are those of members; everything else stays as it is."""

    #: by the key of the group in whose incident they are to be
    arrivals: dict[str, list[Arrival]] = field(default_factory=dict)
    #: guests that nothing explains any more: each leaves, and is among the arrivals
    released: list[str] = field(default_factory=list)
    #: what fires already in another version, severity or with another playbook
    changed: dict[str, Firing] = field(default_factory=dict)
    #: whom something else hides now, or nothing
    inhibited: dict[str, str] = field(default_factory=dict)
    #: whom another silence keeps quiet now, or none
    silenced: dict[str, int | None] = field(default_factory=dict)


def subject_of(firing: Firing, places: Places) -> Subject:
    """Return the fields of ``firing`` that matchers look at."""
    return _subject(member_key(firing), firing, places)


def _subject(key: str, firing: Firing, places: Places) -> Subject:
    return Subject(
        key=key,
        rule=firing.rule,
        severity=firing.severity,
        scope=firing.scope,
        site=places.site(firing.scope) or firing.labels.get("site", ""),
        labels=firing.labels,
    )


def silenced(
    subjects: Sequence[Subject], silences: Iterable[tuple[int, tuple[Matcher, ...]]]
) -> dict[str, int]:
    """Return the silence that keeps it quiet by the key of each subject that has one."""
    table = Subjects(subjects)
    found: dict[str, int] = {}
    for silence, matchers in silences:
        for row in np.flatnonzero(table.matching(matchers)).tolist():
            found.setdefault(subjects[row].key, silence)
    return found


def plan(
    firings: Iterable[Firing],
    known: Mapping[str, Known],
    released: Mapping[str, Firing],
    *,
    places: Places,
    inhibitions: Sequence[Inhibition],
    silences: Sequence[tuple[int, tuple[Matcher, ...]]],
) -> Plan:
    """Plan the changes for ``firings``, by key, beside the members ``known`` to fire.

    ``released`` has, by key, the known guests as firings: they go into their own group when nothing
    explains them any more. Called again with firings that are all known, the plan is empty.
    """
    given = {member_key(firing): firing for firing in firings}
    new = {key: firing for key, firing in given.items() if key not in known}
    subjects = {key: each.subject for key, each in known.items()}
    subjects |= {key: _subject(key, firing, places) for key, firing in new.items()}
    everything = list(subjects.values())
    by = inhibited(everything, inhibitions, places)
    quiet = silenced(everything, silences)
    freed = {
        key: released[key]
        for key, each in known.items()
        if each.is_guest and not each.dismissed and key not in by and key in released
    }
    coming = {key: (firing, subjects[key]) for key, firing in {**new, **freed}.items()}
    return Plan(
        arrivals=_arrivals(coming, known, by, quiet, places),
        released=list(freed),
        changed=_changed(given, known),
        inhibited={
            key: by.get(key, "")
            for key, each in known.items()
            if key not in freed and each.inhibited_by != by.get(key, "")
        },
        silenced={
            key: quiet.get(key)
            for key, each in known.items()
            if key not in freed and each.silence != quiet.get(key)
        },
    )


def _arrivals(
    coming: Mapping[str, tuple[Firing, Subject]],
    known: Mapping[str, Known],
    by: Mapping[str, str],
    quiet: Mapping[str, int],
    places: Places,
) -> dict[str, list[Arrival]]:
    groups = {key: group_of(firing, places) for key, (firing, _) in coming.items()}
    keys = {group: group.key for group in set(groups.values())}
    found: dict[str, list[Arrival]] = {}
    for key, (firing, subject) in coming.items():
        arrival = Arrival(
            firing=firing,
            subject=subject,
            group=groups[key],
            inhibited_by=by.get(key, ""),
            silence=quiet.get(key),
        )
        root = groups.get(root_of(key, by)) if key in by else groups[key]
        home = keys[root] if root else _known_home(root_of(key, by), known)
        found.setdefault(home or keys[groups[key]], []).append(arrival)
    return found


def _known_home(root: str, known: Mapping[str, Known]) -> str:
    """Return the key of the group whose incident ``root`` is in; "" where that was closed."""
    return "" if known[root].dismissed else known[root].home_key


def _changed(given: Mapping[str, Firing], known: Mapping[str, Known]) -> dict[str, Firing]:
    def differs(firing: Firing, each: Known) -> bool:
        return (firing.version, firing.severity, firing.playbook) != (
            each.version,
            each.subject.severity,
            each.playbook,
        )

    return {
        key: firing
        for key, firing in given.items()
        if key in known and not known[key].dismissed and differs(firing, known[key])
    }
