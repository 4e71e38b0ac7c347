"""Rollouts: the YAML format, its meaning, and its faults.

:func:`read` is the only way in. It finds every fault that it can, each with line, column and a way
out.
"""

from __future__ import annotations

import enum
import itertools
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct

from headroom import documents
from headroom.contracts import FieldError
from headroom.documents import Document, DocumentError
from policies.rollouts.evidence import METRICS
from policies.rollouts.judging import Guard
from policies.rules import durations

__all__ = ["May", "Plan", "Step", "What", "read", "schema"]

_Word: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]
_Duration: TypeAlias = str | int | float
_Rate: TypeAlias = Annotated[float, Meta(gt=0, le=0.5)]

NAME = r"^[a-z][a-z0-9-]{0,99}$"
_LEAST_BLOCK_S, _LONGEST_BLOCK_S = 60.0, 3600.0
#: Bounds of means need some blocks, whatever they say.
_LEAST_BLOCKS = 5
_LONGEST_SOAK_S = 7 * 86_400.0
_LONGEST_CHANGE_S = 86_400.0


class What(enum.StrEnum):
    """What a rollout changes."""

    DRIVER = "driver"
    FIRMWARE = "firmware"
    NIC_FIRMWARE = "nic_firmware"
    IMAGE = "image"
    NCCL = "nccl"
    FABRIC_DRIVER = "fabric_driver"
    POWER_PROFILE = "power_profile"
    COOLING_SET_POINT = "cooling_set_point"
    PLACEMENT_POLICY = "placement_policy"
    ADMISSION_POLICY = "admission_policy"


#: By what agents report of nodes: the field that holds the version. Of the rest they report none.
REPORTED = {
    What.DRIVER: "driver",
    What.FIRMWARE: "vbios",
    What.NIC_FIRMWARE: "nic_firmware",
    What.IMAGE: "image",
    What.NCCL: "nccl",
    What.FABRIC_DRIVER: "fabric_driver",
}


class May(enum.StrEnum):
    """What a rollout may do without a person. Holding it always may."""

    PROMOTE = "promote"
    ROLL_BACK = "roll_back"


# --- As written ----------------------------------------------------------------------------------


class _Change(Struct, forbid_unknown_fields=True):
    kind: What
    version: Annotated[str, Meta(min_length=1, max_length=300)]


class _Step(Struct, forbid_unknown_fields=True):
    racks: Annotated[list[_Word], Meta(max_length=1000)] = []
    site: Annotated[str, Meta(max_length=200)] = ""
    share: Annotated[float, Meta(gt=0, le=1)] | None = None
    soak: _Duration = "20m"
    longest: _Duration = "2h"


class _Guard(Struct, forbid_unknown_fields=True):
    metric: _Word
    matters: Annotated[float, Meta(gt=0)] | None = None


class _Document(Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(pattern=NAME)]
    change: _Change
    playbook: _Word
    steps: Annotated[list[_Step], Meta(min_length=1, max_length=20)]
    guards: Annotated[list[_Guard], Meta(min_length=1, max_length=20)]
    description: Annotated[str, Meta(max_length=4000)] = ""
    sites: Annotated[list[_Word], Meta(max_length=100)] = []
    models: Annotated[list[_Word], Meta(max_length=100)] = []
    alpha: _Rate = 0.05
    beta: _Rate = 0.05
    block: _Duration = "2m"
    changed_within: _Duration = "1h"
    by_itself: Annotated[list[May], Meta(max_length=2)] = []


def schema() -> dict[str, Any]:
    """Return the JSON schema of a rollout's document."""
    return msgspec.json.schema(_Document)


# --- As used -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """The racks that a step brings to the change, with those of the steps before it.

    One of the three is given: racks by their paths, all racks of a site, or a share of the GPUs.
    """

    racks: tuple[str, ...]
    site: str
    share: float | None
    #: how long it is looked at before it may be promoted, and at most
    soak_s: float
    longest_s: float

    @property
    def is_all(self) -> bool:
        """Whether nothing is left to compare with after it."""
        return self.share == 1.0

    @property
    def sentence(self) -> str:
        """What it changes, in words."""
        if self.racks:
            return f"racks {', '.join(self.racks)}"
        if self.site:
            return f"site {self.site}"
        return "all that is left" if self.is_all else f"{100 * (self.share or 0):g} % of the GPUs"


@dataclass(frozen=True)
class Plan:
    """A rollout, checked."""

    name: str
    description: str
    what: What
    version: str
    #: brings one rack to the change; its undo is the way back
    playbook: str
    steps: tuple[Step, ...]
    guards: tuple[Guard, ...]
    #: that it is about; empty: all
    sites: frozenset[str]
    models: frozenset[str]
    alpha: float
    beta: float
    block_s: float
    #: the racks of a step have to report the change within so long
    changed_within_s: float
    by_itself: frozenset[May]

    @property
    def field(self) -> str | None:
        """The field of a node's versions that tells of the change; None: agents report none."""
        return REPORTED.get(self.what)

    @property
    def judged_steps(self) -> int:
        """How many steps leave something to compare with."""
        return sum(not step.is_all for step in self.steps)

    @property
    def before_s(self) -> float:
        """The time before the change that is compared with: as long as any step may soak."""
        return max(step.longest_s for step in self.steps)

    @property
    def sentence(self) -> str:
        """What it does, in words."""
        return f"{self.what.replace('_', ' ')} {self.version}: " + ", then ".join(
            step.sentence for step in self.steps
        )


# --- Reading -------------------------------------------------------------------------------------


def read(text: str) -> Plan:
    """Read and check a rollout. Raises :class:`DocumentError` with all faults found."""
    document = documents.read(text)
    return _Reader(document, document.converted(_Document, "docs/reference/rollouts.md")).plan()


class _Reader:
    """Turns a document into a plan, and gathers its faults on the way."""

    def __init__(self, document: Document, given: _Document) -> None:
        self._document = document
        self._given = given
        self._problems: list[FieldError] = []

    def plan(self) -> Plan:
        given = self._given
        block_s = self._seconds("block", given.block, _LEAST_BLOCK_S, _LONGEST_BLOCK_S)
        steps = tuple(self._step(at, each, block_s) for at, each in enumerate(given.steps))
        self._check_order(steps)
        guards = tuple(self._guard(at, each) for at, each in enumerate(given.guards))
        within_s = self._seconds("changed_within", given.changed_within, 60.0, _LONGEST_CHANGE_S)
        if self._problems:
            raise DocumentError(self._problems)
        return Plan(
            name=given.name,
            description=given.description.strip(),
            what=given.change.kind,
            version=given.change.version,
            playbook=given.playbook,
            steps=steps,
            guards=guards,
            sites=frozenset(given.sites),
            models=frozenset(given.models),
            alpha=given.alpha,
            beta=given.beta,
            block_s=block_s,
            changed_within_s=within_s,
            by_itself=frozenset(given.by_itself),
        )

    def _step(self, at: int, given: _Step, block_s: float) -> Step:
        path = f"steps[{at}]"
        said = [bool(given.racks), bool(given.site), given.share is not None]
        if sum(said) != 1:
            self._fault(path, "give one of racks, site and share")
        soak_s = self._seconds(f"{path}.soak", given.soak, 0.0, _LONGEST_SOAK_S)
        longest_s = self._seconds(f"{path}.longest", given.longest, 0.0, _LONGEST_SOAK_S)
        least_s = max(soak_s, _LEAST_BLOCKS * block_s)
        if given.share != 1.0 and longest_s < least_s:
            hint = f"at least {least_s:g} s: as long as it soaks, and {_LEAST_BLOCKS} blocks"
            self._fault(f"{path}.longest", "too short to show anything", hint)
        return Step(tuple(given.racks), given.site, given.share, soak_s, longest_s)

    def _check_order(self, steps: tuple[Step, ...]) -> None:
        shares = [(at, step.share) for at, step in enumerate(steps) if step.share is not None]
        for (_, before), (at, share) in itertools.pairwise(shares):
            if share <= before:
                self._fault(f"steps[{at}].share", "is no more than the step before has")
        for at, step in enumerate(steps[:-1]):
            if step.is_all:
                self._fault(f"steps[{at}].share", "is all of it, so that nothing is left to do")

    def _guard(self, at: int, given: _Guard) -> Guard:
        if given.metric not in METRICS:
            known = ", ".join(METRICS)
            self._fault(f"guards[{at}].metric", f"{given.metric} is no metric", f"one of {known}")
        elif given.matters is None and not METRICS[given.metric].is_count:
            hint = "in its unit: see docs/reference/rollouts.md"
            self._fault(f"guards[{at}].matters", "say which difference matters", hint)
        if given.metric in [each.metric for each in self._given.guards[:at]]:
            self._fault(f"guards[{at}].metric", f"{given.metric} is guarded twice")
        return Guard(given.metric, given.matters)

    def _seconds(self, path: str, given: _Duration, least: float, most: float) -> float:
        try:
            found = durations.seconds(given)
        except ValueError as error:
            self._fault(path, str(error))
            return least
        if not least <= found <= most:
            self._fault(path, f"{given} is not from {least:g} to {most:g} s")
        return found

    def _fault(self, path: str, message: str, hint: str = "") -> None:
        self._problems.append(self._document.fault(path, message, hint))
