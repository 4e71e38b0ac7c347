"""Policies as folders, so that two versions can be played against each other.

A folder has ``policy.yaml`` and, where it differs from the built-in policy, ``rules/`` and
``playbooks/`` with one YAML file each. One with the name of a built-in rule or playbook replaces
it, others are added; ``without`` leaves built-in ones out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from admission.core import policy
from admission.core.cycle.decide import Decisions
from admission.core.policy import AdmissionPolicy, Documents
from admission.core.snapshot import Snapshot
from headroom.documents import DocumentError, closest
from headroom.errors import HeadroomError
from lab.world.policy import Headroom, Policy, builtin_playbooks, builtin_rules
from policies.playbooks import parse as playbooks
from policies.playbooks.document import Program
from policies.rules import document as rules
from policies.rules.document import Rule

__all__ = ["DOCUMENT", "FilledTo", "PolicyError", "load_policy"]

DOCUMENT = "policy.yaml"

T = TypeVar("T")


class PolicyError(HeadroomError, ValueError):
    """The folder of a policy cannot be used."""


@dataclass(frozen=True, kw_only=True)
class FilledTo(Headroom):
    """Admission that fills limits to a share of their capacity: 1.1 oversells them by a tenth."""

    fill_share: float = 1.0

    def decide(self, snapshot: Snapshot) -> Decisions:
        cluster = snapshot.cluster
        had_w = cluster.constants.empty_room_w
        had_w = np.where(np.isinf(had_w), 0.0, had_w)  # what is no limit stays none
        room_w = cluster.room_w + (self.fill_share - 1.0) * had_w
        topology = cluster.topology
        admit_w = (room_w[topology.limit_rows] / topology.limit_share).min(axis=1)
        filled = replace(cluster.copy(), room_w=room_w, admit_w=admit_w)
        return super().decide(replace(snapshot, cluster=filled))


def load_policy(folder: Path | None) -> Policy:
    """Return the policy in ``folder``; None: the built-in one. Raises :class:`PolicyError`."""
    if folder is None:
        return Policy()
    path = folder / DOCUMENT
    given = _document(path)
    played = given.played
    return Policy(
        name=given.name,
        rules=_rules(played.rules, folder, path),
        playbooks=_playbooks(played.playbooks, folder, path),
        tuning=given.tuning,
        reserve=given.reserve,
        response=given.response,
        fallback=given.fallback,
        unmanaged=given.unmanaged,
        shares=given.shares,
        preemption=given.preemption,
        moving=given.moving,
        approach=FilledTo(
            name=given.name,
            fill_share=played.fill_share,
            controls=given.controls,
            **played.mechanisms,
        ),
        max_site_share=played.max_site_share,
        shed_after_s=given.shed_after_s,
        directive_delay_s=played.directive_delay_s,
        stale_after_s=played.stale_after_s,
    )


def _rules(given: Documents, folder: Path, path: Path) -> tuple[Rule, ...]:
    known = {rule.name: rule for rule in builtin_rules()} if given.builtin else {}
    read = {rule.name: rule for rule in _read(folder / "rules", rules.read)}
    return tuple((_without(known, given, path, "rules") | read).values())


def _playbooks(given: Documents, folder: Path, path: Path) -> dict[str, Program]:
    known = dict(builtin_playbooks()) if given.builtin else {}
    read = {
        program.playbook.name: program for program in _read(folder / "playbooks", playbooks.parse)
    }
    return _without(known, given, path, "playbooks") | read


def _without(known: dict[str, T], given: Documents, path: Path, field: str) -> dict[str, T]:
    left = dict(known)
    for name in given.without:
        if left.pop(name, None) is None:
            raise PolicyError(f"{path}: {field}.without: {_unknown(name, known)}")
    return left


def _read(folder: Path, read: Callable[[str], T]) -> Iterator[T]:
    for path in sorted(folder.glob("*.yaml")):
        try:
            yield read(path.read_text(encoding="utf-8"))
        except (UnicodeDecodeError, DocumentError) as error:
            raise PolicyError(f"{path}: {error}") from error


def _document(path: Path) -> AdmissionPolicy:
    try:
        return policy.read(path.read_bytes().decode())
    except OSError as error:
        raise PolicyError(
            f"{path}: cannot be read: {error.strerror} (a policy is a folder with {DOCUMENT})"
        ) from error
    except (UnicodeDecodeError, DocumentError) as error:
        raise PolicyError(f"{path}: {error}") from error


def _unknown(name: str, known: Iterable[str]) -> str:
    known = sorted(known)
    close = closest(name, known)
    way_out = f"do you mean {close}?" if close else f"one of: {', '.join(known)}"
    return f"there is no {name} ({way_out})"
