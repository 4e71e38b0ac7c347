"""Policies as folders, so that two versions can be played against each other.

A folder has ``policy.yaml`` and, where it differs from the built-in policy, ``rules/`` and
``playbooks/`` with one YAML file each. One with the name of a built-in rule or playbook replaces
it, others are added; ``without`` leaves built-in ones out.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import numpy as np
from msgspec import Meta, Struct

from admission.core import reserve, response, snapshot
from admission.core.cycle import Decisions
from admission.core.snapshot import Snapshot
from headroom.errors import HeadroomError
from headroom.jobs import yaml_values
from policies.playbooks import parse as playbooks
from policies.playbooks.document import Program
from policies.rules import document as rules
from policies.rules.document import Rule
from policies.rules.errors import RuleError
from sim.world.policy import Headroom, Policy, builtin_playbooks, builtin_rules

__all__ = ["DOCUMENT", "FilledTo", "PolicyError", "load_policy"]

DOCUMENT = "policy.yaml"

T = TypeVar("T")
Tuned = TypeVar("Tuned", snapshot.Tuning, reserve.Rules, response.Tuning, Policy)


class PolicyError(HeadroomError, ValueError):
    """The folder of a policy cannot be used."""


class _Set(Struct, frozen=True, forbid_unknown_fields=True):
    """Which of the built-in documents count."""

    builtin: bool = True
    without: tuple[str, ...] = ()


class _Admission(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How jobs are admitted. The flags are those of :class:`sim.world.Approach`."""

    #: limits are filled to this share of what they have
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


class _Document(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=100)]
    about: str = ""
    rules: _Set = _Set()
    playbooks: _Set = _Set()
    admission: _Admission = _Admission()
    response: dict[str, float] = {}
    #: what else the policy counts with: see :data:`_LOOP`
    loop: dict[str, float] = {}


#: What ``loop`` may set of a policy.
_LOOP = ("max_site_share", "shed_after_s", "directive_delay_s", "stale_after_s")


@dataclass(frozen=True, kw_only=True)
class FilledTo(Headroom):
    """Admission that fills limits to a share of what they have: 1.1 oversells them by a tenth."""

    fill_share: float = 1.0

    def decide(self, snapshot: Snapshot) -> Decisions:
        cluster = snapshot.cluster
        had_w = cluster.sight.empty_room_w
        had_w = np.where(np.isinf(had_w), 0.0, had_w)  # what is no limit stays none
        room_w = cluster.room_w + (self.fill_share - 1.0) * had_w
        layout = cluster.layout
        admit_w = (room_w[layout.limit_rows] / layout.limit_share).min(axis=1)
        filled = replace(cluster.copy(), room_w=room_w, admit_w=admit_w)
        return super().decide(replace(snapshot, cluster=filled))


def load_policy(folder: Path | None) -> Policy:
    """Return the policy in ``folder``; None: the built-in one. Raises :class:`PolicyError`."""
    if folder is None:
        return Policy()
    path = folder / DOCUMENT
    given = _document(path)
    admission = given.admission
    policy = Policy(
        name=given.name,
        rules=_rules(given.rules, folder, path),
        playbooks=_playbooks(given.playbooks, folder, path),
        tuning=_tuned(snapshot.Tuning(), admission.tuning, path, "admission.tuning"),
        reserve=_tuned(reserve.Rules(), admission.reserve, path, "admission.reserve"),
        response=_tuned(response.Tuning(), given.response, path, "response"),
        approach=_approach(given.name, admission),
    )
    return _tuned(policy, given.loop, path, "loop", names=_LOOP)


def _approach(name: str, given: _Admission) -> Headroom:
    return FilledTo(
        name=name,
        fill_share=given.fill_share,
        enforces_budgets=given.enforces_budgets,
        reads_live=given.reads_live,
        follows_rules=given.follows_rules,
        caps=given.caps,
        responds=given.responds,
        sheds=given.sheds,
        moves=given.moves,
    )


def _rules(given: _Set, folder: Path, path: Path) -> tuple[Rule, ...]:
    known = {rule.name: rule for rule in builtin_rules()} if given.builtin else {}
    read = {rule.name: rule for rule in _read(folder / "rules", rules.read)}
    return tuple((_without(known, given, path, "rules") | read).values())


def _playbooks(given: _Set, folder: Path, path: Path) -> dict[str, Program]:
    known = dict(builtin_playbooks()) if given.builtin else {}
    read = {
        program.playbook.name: program for program in _read(folder / "playbooks", playbooks.parse)
    }
    return _without(known, given, path, "playbooks") | read


def _without(known: dict[str, T], given: _Set, path: Path, field: str) -> dict[str, T]:
    left = dict(known)
    for name in given.without:
        if left.pop(name, None) is None:
            raise PolicyError(f"{path}: {field}.without: {_unknown(name, known)}")
    return left


def _read(folder: Path, read: Callable[[str], T]) -> Iterator[T]:
    for path in sorted(folder.glob("*.yaml")):
        try:
            yield read(path.read_text(encoding="utf-8"))
        except (UnicodeDecodeError, RuleError, playbooks.PlaybookError) as error:
            raise PolicyError(f"{path}: {error}") from error


def _document(path: Path) -> _Document:
    try:
        values, _ = yaml_values.read(path.read_bytes().decode())
        return msgspec.convert(values, _Document)
    except OSError as error:
        raise PolicyError(
            f"{path}: cannot be read: {error.strerror} (a policy is a folder with {DOCUMENT})"
        ) from error
    except (UnicodeDecodeError, yaml_values.YamlError, msgspec.ValidationError) as error:
        raise PolicyError(f"{path}: {error} (see docs/reference/policy-folders.md)") from error


def _tuned(
    default: Tuned,
    given: Mapping[str, float],
    path: Path,
    field: str,
    names: Sequence[str] | None = None,
) -> Tuned:
    """Return a dataclass with the numbers in ``given`` in place of its own; only of ``names``."""
    known = [each.name for each in fields(default)] if names is None else names
    for name in given:
        if name not in known:
            raise PolicyError(f"{path}: {field}.{name}: {_unknown(name, known)}")
    # A whole number stays one: some of these count.
    return replace(
        default, **{name: type(getattr(default, name))(value) for name, value in given.items()}
    )


def _unknown(name: str, known: Iterable[str]) -> str:
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    way_out = f"do you mean {close[0]}?" if close else f"one of: {', '.join(known)}"
    return f"there is no {name} ({way_out})"
