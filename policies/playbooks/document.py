"""A playbook as typed values: the shape of its YAML, and its steps in a row.

``Playbook`` is the shape; ``Program`` is what the machine runs: all steps of all branches in the
order of the text, each knowing which comes after it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from accounts.roles import Capability, Role
from policies.restrictions.kinds import RestrictionKind
from policies.rules import durations
from policies.scopes import ScopeKind

#: The longest that anything may take, s.
MAX_DURATION_S = 30 * 86_400.0
_UNITS_S = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


class Duration(float):
    """A time in seconds, in YAML as ``90s``, ``5m`` or ``1h30m``."""

    @classmethod
    def read(cls, given: object) -> Duration:
        """Return the duration that ``given`` writes. Raises ValueError with the way out."""
        if isinstance(given, bool) or not isinstance(given, str | int | float):
            raise ValueError("a length of time is needed: write 30s, 5m, 2h or 1h30m")
        found = durations.seconds(given)
        if not 0 <= found <= MAX_DURATION_S:
            raise ValueError(f"{given!r} is not within 0s and 30d")
        return cls(found)

    def __str__(self) -> str:
        left, said = int(self), ""
        for unit_s, letter in _UNITS_S:
            count, left = divmod(left, unit_s)
            said += f"{count}{letter}" if count else ""
        return said or "0s"


_Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=2000)]
_Id: TypeAlias = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]{0,59}$")]
_InputName: TypeAlias = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
_Channels: TypeAlias = Annotated[list[_Text], Meta(max_length=20)]


class OnTimeout(enum.StrEnum):
    """How a run goes on when a step was not done in time, or went wrong."""

    CONTINUE = "continue"
    FAIL = "fail"
    UNDO = "undo"
    PAUSE = "pause"


class Related(enum.StrEnum):
    """A scope as seen from the run's own."""

    SELF = "self"
    RACK = "rack"
    ZONE = "zone"
    SITE = "site"


class Restrict(Struct, forbid_unknown_fields=True):
    """Hold a restriction under a lease that is renewed until ``until``."""

    kind: RestrictionKind
    #: a number, or CEL over the columns of the run's scope and the inputs
    value: float | _Text | None = None
    scope: Related = Related.SELF
    lease: Duration = Duration(600)
    #: ``run``: as long as the run; ``cause``: until the incident is over; else a later step's id
    until: _Text = "run"
    reason: Annotated[str, Meta(max_length=500)] = ""
    #: share of a site that it may take without a person, where not the setting's
    most_of_site: Annotated[float, Meta(ge=0, le=1)] | None = None


class Notify(Struct, forbid_unknown_fields=True):
    """Tell people. ``channels`` empty: whoever hears of the run's incident."""

    subject: _Text
    body: Annotated[str, Meta(max_length=4000)] = ""
    channels: _Channels = []


class Escalate(Struct, forbid_unknown_fields=True):
    """The roles to ask when an approval was not answered in time, and channels to tell them by."""

    roles: list[Role]
    timeout: Duration
    on_silence: Literal["abort", "continue"] = "abort"
    channels: _Channels = []


class Approve(Struct, forbid_unknown_fields=True):
    """Ask a person who may say so."""

    question: _Text
    #: who may answer; empty: whoever has the capability
    roles: list[Role] = []
    capability: Capability = Capability.RUN_PLAYBOOKS
    on_silence: Literal["abort", "continue", "escalate"] = "abort"
    on_refusal: Literal["abort", "undo"] = "abort"
    escalate: Escalate | None = None
    channels: _Channels = []


class WaitUntil(Struct, forbid_unknown_fields=True, rename={"for_": "for"}):
    """Wait until ``condition`` has held for ``for``; without one, for that time."""

    condition: Annotated[str, Meta(max_length=2000)] = ""
    for_: Duration = Duration(0)
    scope: Related = Related.SELF


class Webhook(Struct, forbid_unknown_fields=True):
    """Call another system by a channel of kind webhook, which has its address and secret."""

    channel: _Text
    subject: _Text
    body: Annotated[str, Meta(max_length=4000)] = ""


class Checkpoint(Struct, forbid_unknown_fields=True):
    """Have the jobs of the scope save their state."""

    scope: Related = Related.SELF


class Migrate(Struct, forbid_unknown_fields=True):
    """Have the jobs of the scope go on elsewhere."""

    to: Literal["primary-site", "regional-fallback", "local-only", "held-for-review"]
    scope: Related = Related.SELF


class Resume(Struct, forbid_unknown_fields=True):
    """Have paused jobs of the scope go on."""

    scope: Related = Related.SELF


class Manual(Struct, forbid_unknown_fields=True):
    """Have a person do something and say that it is done."""

    instruction: _Text
    channels: _Channels = []


class Branch(Struct, forbid_unknown_fields=True, rename={"else_": "else"}):
    """Go one of two ways. A condition whose fields are unknown does not hold."""

    when: _Text
    then: list[Step]
    else_: list[Step] = []


Action: TypeAlias = (
    Restrict
    | Notify
    | Approve
    | WaitUntil
    | Webhook
    | Checkpoint
    | Migrate
    | Resume
    | Manual
    | Branch
)


class Undo(Struct, forbid_unknown_fields=True):
    """The action that takes a step back. Exactly one of them."""

    notify: Notify | None = None
    webhook: Webhook | None = None
    checkpoint: Checkpoint | None = None
    migrate: Migrate | None = None
    resume: Resume | None = None
    manual: Manual | None = None
    timeout: Duration | None = None


class Step(Struct, forbid_unknown_fields=True):
    """One step. Exactly one of the actions."""

    id: _Id
    restrict: Restrict | None = None
    notify: Notify | None = None
    approve: Approve | None = None
    wait_until: WaitUntil | None = None
    webhook: Webhook | None = None
    checkpoint: Checkpoint | None = None
    migrate: Migrate | None = None
    resume: Resume | None = None
    manual: Manual | None = None
    branch: Branch | None = None
    timeout: Duration | None = None
    on_timeout: OnTimeout | None = None
    on_error: OnTimeout | None = None
    #: ``nothing``: it stays as it is
    undo: Undo | Literal["nothing"] | None = None


class Input(Struct, forbid_unknown_fields=True):
    """A number that may be set for a run."""

    default: float
    help: _Text
    unit: Annotated[str, Meta(max_length=20)] = ""
    min: float | None = None
    max: float | None = None


class Playbook(Struct, forbid_unknown_fields=True):
    """A playbook's YAML as typed values."""

    name: _Id
    description: _Text
    #: what a run may be about
    scopes: Annotated[list[ScopeKind], Meta(min_length=1)]
    #: What is the real constraint?
    constraint: _Text
    #: What fails first?
    failure_mode: _Text
    #: What does it cost to change later?
    switching_cost: _Text
    steps: Annotated[list[Step], Meta(min_length=1)]
    inputs: Annotated[dict[_InputName, Input], Meta(max_length=20)] = {}
    time_limit: Duration = Duration(86_400)


KINDS = (
    "restrict",
    "notify",
    "approve",
    "wait_until",
    "webhook",
    "checkpoint",
    "migrate",
    "resume",
    "manual",
    "branch",
)
#: How long a step waits that says nothing of it, s.
DEFAULT_TIMEOUT_S: dict[str, float] = {
    "approve": 1800.0,
    "wait_until": 3600.0,
    "webhook": 300.0,
    "checkpoint": 900.0,
    "migrate": 1800.0,
    "resume": 900.0,
    "manual": 3600.0,
}


def actions_of(step: Step | Undo) -> dict[str, Action]:
    """Return the actions that a step names, by kind: one, if it is right."""
    named = {kind: getattr(step, kind, None) for kind in KINDS}
    return {kind: action for kind, action in named.items() if action is not None}


@dataclass(frozen=True)
class PlannedStep:
    """A step in its place.

    ``after``, ``then`` and ``otherwise`` are places in ``Program.steps``; its length is the end.
    """

    place: int
    #: where it stands in the text: ``2`` or ``2.then.0``; its undo is ``2/undo``
    path: str
    id: str
    kind: str
    action: Action
    #: None: it does not wait
    timeout_s: float | None
    on_timeout: OnTimeout
    on_error: OnTimeout
    undo: PlannedStep | None
    after: int
    then: int = -1
    otherwise: int = -1


@dataclass(frozen=True)
class Program:
    """A playbook with its steps in a row."""

    playbook: Playbook
    steps: tuple[PlannedStep, ...]
    _by_path: dict[str, PlannedStep] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found = {step.path: step for step in self.steps}
        undoing = [step.undo for step in self.steps if step.undo is not None]
        found |= {step.path: step for step in undoing}
        object.__setattr__(self, "_by_path", found)

    def step(self, path: str) -> PlannedStep:
        """Return the step, or the undoing of one, that stands at ``path``."""
        return self._by_path[path]


def program_of(playbook: Playbook) -> Program:
    """Put all steps of a checked playbook in a row."""
    steps: list[PlannedStep] = []
    _lay_out(playbook.steps, "", _count(playbook.steps), steps)
    return Program(playbook, tuple(steps))


def _count(steps: list[Step]) -> int:
    return sum(1 for _ in walk(steps))


def walk(steps: list[Step], prefix: str = "") -> Iterator[tuple[str, Step]]:
    """Yield every step of every branch with its path, in the order of the text."""
    for index, step in enumerate(steps):
        path = f"{prefix}{index}"
        yield path, step
        if step.branch is not None:
            yield from walk(step.branch.then, f"{path}.then.")
            yield from walk(step.branch.else_, f"{path}.else.")


def _lay_out(steps: list[Step], prefix: str, after: int, into: list[PlannedStep]) -> None:
    """Append ``steps`` to ``into``; the step after the last of them is at ``after``."""
    for index, step in enumerate(steps):
        place, path = len(into), f"{prefix}{index}"
        size = _count([step])
        following = after if index == len(steps) - 1 else place + size
        ((kind, action),) = actions_of(step).items()
        then = otherwise = -1
        if isinstance(action, Branch):
            then = place + 1 if action.then else following
            else_at = place + 1 + _count(action.then)
            otherwise = else_at if action.else_ else following
        into.append(
            PlannedStep(
                place=place,
                path=path,
                id=step.id,
                kind=kind,
                action=action,
                timeout_s=_timeout_s(kind, action, step.timeout),
                on_timeout=step.on_timeout or OnTimeout.FAIL,
                on_error=step.on_error or OnTimeout.FAIL,
                undo=_undo(step, kind, action, path, place),
                after=following,
                then=then,
                otherwise=otherwise,
            )
        )
        if isinstance(action, Branch):
            _lay_out(action.then, f"{path}.then.", following, into)
            _lay_out(action.else_, f"{path}.else.", following, into)


def _timeout_s(kind: str, action: Action, given: Duration | None) -> float | None:
    if isinstance(action, WaitUntil) and not action.condition:
        return None  # a time is over when it is over
    default = DEFAULT_TIMEOUT_S.get(kind)
    return default if given is None or default is None else float(given)


def _undo(step: Step, kind: str, action: Action, path: str, place: int) -> PlannedStep | None:
    """Return the step that takes ``step`` back. Restrictions are released without a step."""
    if step.undo == "nothing":
        return None
    timeout: Duration | None = None
    if isinstance(step.undo, Undo):
        ((kind, action),) = actions_of(step.undo).items()
        timeout = step.undo.timeout
    elif isinstance(action, Migrate) and action.to != "primary-site":
        action = Migrate(to="primary-site", scope=action.scope)
    else:
        return None
    return PlannedStep(
        place=place,
        path=f"{path}/undo",
        id=f"{step.id}/undo",
        kind=kind,
        action=action,
        timeout_s=_timeout_s(kind, action, timeout),
        on_timeout=OnTimeout.CONTINUE,
        on_error=OnTimeout.CONTINUE,
        undo=None,
        after=place,
    )


def read_duration(kind: type, value: object) -> object:
    """Decode a :class:`Duration`, the one type here that msgspec does not know."""
    if kind is Duration:
        return Duration.read(value)
    raise NotImplementedError(kind)
