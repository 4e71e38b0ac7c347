"""The policy of a world: rules, playbooks, tuning, and the approach to admission."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol

from admission.core.allocation import reservation
from admission.core.controlling import Unmanaged
from admission.core.cycle import decide
from admission.core.cycle.decide import Decisions
from admission.core.directives.responding import SHED_AFTER_S
from admission.core.directives.step import Manner
from admission.core.moving import MovingPolicy
from admission.core.preempting import PreemptionPolicy
from admission.core.response import fallback
from admission.core.response.respond import Tuning as ResponseTuning
from admission.core.sharing import Shares
from admission.core.snapshot import Snapshot, Tuning
from policies.controller import control
from policies.playbooks import builtin as builtin_playbook_texts
from policies.playbooks import parse
from policies.playbooks.document import Program
from policies.restrictions.breakers import MAX_SITE_SHARE
from policies.rules import builtin as builtin_rule_texts
from policies.rules import document
from policies.rules.document import Rule

__all__ = ["Approach", "Headroom", "Policy", "builtin_playbooks", "builtin_rules"]


class Approach(Protocol):
    """The approach to admission, and its mechanisms. Each flag stands by itself."""

    @property
    def name(self) -> str: ...

    @property
    def enforces_budgets(self) -> bool:
        """Whether jobs start only within all budgets; else only GPUs have to be free."""

    @property
    def reads_live(self) -> bool:
        """Whether only the present draw counts, without the reservations of jobs beside it."""

    @property
    def follows_rules(self) -> bool:
        """Whether rules fire, restrict and start playbooks."""

    @property
    def caps(self) -> bool:
        """Whether GPUs may be held under power and clock caps."""

    @property
    def responds(self) -> bool:
        """Whether running jobs shrink and pause, as they have agreed to, when room gets small."""

    @property
    def controls(self) -> bool:
        """Whether a controller holds running load within all budgets by caps, every step."""

    @property
    def sheds(self) -> bool:
        """Whether jobs end where more is drawn than may be, for too long."""

    @property
    def moves(self) -> bool:
        """Whether jobs go on at another site when theirs fails them."""

    def decide(self, snapshot: Snapshot) -> Decisions:
        """Return the jobs that start, those that are preempted, and the reasons of the rest."""


@dataclass(frozen=True, kw_only=True)
class Headroom:
    """The approach of the server."""

    name: str = "headroom"
    enforces_budgets: bool = True
    reads_live: bool = False
    follows_rules: bool = True
    caps: bool = True
    responds: bool = True
    controls: bool = True
    sheds: bool = True
    moves: bool = True

    def decide(self, snapshot: Snapshot) -> Decisions:
        return decide.decide(snapshot)


@cache
def builtin_rules() -> tuple[Rule, ...]:
    """Return the rules that come with Headroom."""
    return tuple(document.read(text) for text in builtin_rule_texts.texts().values())


@cache
def builtin_playbooks() -> dict[str, Program]:
    """Return the playbooks that come with Headroom, by name."""
    return {name: parse.parse(text) for name, text in builtin_playbook_texts.texts().items()}


@dataclass(frozen=True, kw_only=True)
class Policy:
    """All that decides in a world, as a value."""

    name: str = "headroom"
    rules: tuple[Rule, ...] = field(default_factory=builtin_rules)
    #: by name
    playbooks: Mapping[str, Program] = field(default_factory=builtin_playbooks)
    tuning: Tuning = field(default_factory=Tuning)
    response: ResponseTuning = field(default_factory=ResponseTuning)
    reserve: reservation.Rules = field(default_factory=reservation.Rules)
    fallback: fallback.Policy = field(default_factory=fallback.built_in)
    approach: Approach = field(default_factory=Headroom)
    control: control.Tuning = field(default_factory=control.Tuning)
    unmanaged: Unmanaged = field(default_factory=Unmanaged)
    shares: Shares = field(default_factory=Shares)
    preemption: PreemptionPolicy = field(default_factory=PreemptionPolicy)
    moving: MovingPolicy = field(default_factory=MovingPolicy)
    #: the share of a site that rules and playbooks may restrict without a person
    max_site_share: float = MAX_SITE_SHARE
    #: what caps and pauses have not brought down by then is brought down by ending jobs, s
    shed_after_s: float = SHED_AFTER_S
    #: from a decision about what runs until agents and jobs do it, s
    directive_delay_s: float = 4.0
    #: readings older than this are stale, s
    stale_after_s: float = 30.0

    @property
    def manner(self) -> Manner:
        """How directives reach running jobs."""
        return Manner(
            response=self.response, fallback=self.fallback, shed_after_s=self.shed_after_s
        )
