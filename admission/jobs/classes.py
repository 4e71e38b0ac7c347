"""Scheduling classes: the operational intent of a job, as data.

A class gives its jobs a priority and limits, and each phase the values that it leaves out.
"""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml
from msgspec import Meta, Struct

from headroom import documents
from headroom.jobs.reading import IN_WORDS
from headroom.jobs.spec import (
    MOST_GPUS,
    Checkpoint,
    ClassName,
    LocalitySpec,
    Network,
    Power,
    Restart,
    Thermal,
    Throttling,
)

__all__ = ["MOST_CHARACTERS", "Defaults", "SchedulingClass", "built_in", "built_in_text", "parse"]

#: Of one class.
MOST_CHARACTERS = 20_000

_FILE = Path(__file__).with_name("classes.yaml")


class Defaults(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Defaults of the class for phases that leave a field out."""

    power: Power = Power()
    thermal: Thermal = Thermal()
    locality: LocalitySpec = LocalitySpec()
    network: Network = Network()
    checkpoint: Checkpoint = Checkpoint()
    restart: Restart = Restart()
    throttling: Throttling = Throttling()


class SchedulingClass(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One class. None: no limit."""

    name: ClassName
    description: Annotated[str, Meta(max_length=500)] = ""
    #: what its jobs do; to one that waits only classes of the same are offered. Empty: none is
    kind_of_work: Annotated[str, Meta(max_length=60)] = ""
    #: added to that of each job
    priority: Annotated[int, Meta(ge=-1000, le=1000)] = 0
    #: its jobs may be stopped so that others can run
    preemptible: bool = False
    #: others may be stopped so that its jobs can run
    preempts: bool = False
    #: phases that run at once
    max_running: Annotated[int, Meta(ge=0)] | None = None
    #: GPUs that they hold at once
    max_gpus: Annotated[int, Meta(ge=0, le=MOST_GPUS)] | None = None
    #: of a phase
    max_walltime_s: Annotated[float, Meta(gt=0)] | None = None
    defaults: Defaults = Defaults()


@cache
def built_in() -> dict[str, SchedulingClass]:
    """Return the classes that Headroom brings, by name, in their order."""
    values = documents.read(_FILE.read_text(encoding="utf-8")).value
    found = msgspec.convert(values, list[SchedulingClass])
    return {each.name: each for each in found}


def built_in_text(name: str) -> str:
    """Return a class that Headroom brings as :func:`parse` takes it. Raises KeyError."""
    values: Any = msgspec.to_builtins(built_in()[name])
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


@lru_cache(maxsize=200)
def parse(text: str) -> SchedulingClass:
    """Return the class that ``text``, in YAML, describes. Raises :class:`DocumentError`."""
    document = documents.read(text, most_characters=MOST_CHARACTERS)
    return document.converted(SchedulingClass, "docs/reference/jobs.md", in_words=IN_WORDS)
