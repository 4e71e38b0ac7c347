"""Our words in the comment of a job: what its owner says that the scheduler has no option for.

``headroom: peak_w=650 cap_w=400 class=checkpoint-heavy responses=shrink-batch,pause signal=USR1``,
anywhere in the comment, up to its end or a semicolon.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headroom.jobs.spec import SLUG, Input, Output, Promotion, Response
from headroom.schedulers import declared
from headroom.schedulers.contract import MOVE_KEY, SCHEDULER_NAME

__all__ = ["Words", "came_by", "is_of_pipeline", "moved_by", "read"]

_OURS = re.compile(r"headroom:\s*([^;]*)", re.IGNORECASE)
#: That a job may ask to be sent: those whose purpose is left to programs.
SIGNALS = ("USR1", "USR2", "HUP")


@dataclass
class Words:
    """What a comment says; ``wrong`` has a sentence for each word that cannot be read."""

    #: of each GPU, W
    peak_w: float | None = None
    cap_w: float | None = None
    job_class: str = ""
    responses: tuple[Response, ...] = ()
    #: the smallest share of its batch
    min_batch_scale: float | None = None
    #: it saves between such, s
    checkpoint_s: float | None = None
    #: that tells it to look at its directives; empty: none, it would end it
    signal: str = ""
    #: schedulers in which it may go on: its checkpoints are on storage of theirs, too
    move_to: tuple[str, ...] = ()
    #: the move by which it came. A bridge says so, no owner
    moved: str = ""
    #: the run that it is a phase of, as which one, and what it takes, makes and promotes there
    pipeline: str = ""
    phase: str = ""
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    promotion: Promotion | None = None
    wrong: list[str] = field(default_factory=list)


def read(comment: str) -> Words:
    """Return what the owner of a job says in its comment. What cannot be read is left out."""
    words, found = Words(), _OURS.search(comment)
    for word in found[1].split() if found else []:
        name, _, value = word.partition("=")
        try:
            field_name, reader = _READERS[name]
            found_here = reader(value)
            if field_name in _SEVERAL:
                found_here = (*getattr(words, field_name), found_here)
            setattr(words, field_name, found_here)
        except KeyError:
            known = ", ".join(_READERS)
            words.wrong.append(f"{name[:40]!r} is none of {known}")
        except ValueError as error:
            words.wrong.append(f"{name} {error}")
    return words


def moved_by(comment: str) -> str:
    """Return the key of the move by which a job came; empty: by none."""
    # Hardly any did: looking costs less than reading.
    return read(comment).moved if "moved=" in comment else ""


def is_of_pipeline(comment: str) -> bool:
    """Say whether a job is a phase of a pipeline, by its owner's word."""
    return "pipeline=" in comment and bool(read(comment).pipeline)


def came_by(key: str, comment: str) -> str:
    """Return the comment of a job that came by the move ``key``, by what it was before."""
    found = _OURS.search(comment)
    if found is None:
        return f"{comment}; headroom: moved={key}" if comment else f"headroom: moved={key}"
    rest = [word for word in found[1].split() if not word.startswith("moved=")]
    ours = " ".join(["headroom:", f"moved={key}", *rest])
    return comment[: found.start()] + ours + comment[found.end() :]


def _number(least: float, most: float) -> Callable[[str], float]:
    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"is a number, not {text[:40]!r}") from None
        if not least < value <= most:
            raise ValueError(f"is above {least:g} and at most {most:g}")
        return value

    return number


def _slug(what: str) -> Callable[[str], str]:
    def name(text: str) -> str:
        if re.match(SLUG, text) is None or len(text) > 60:
            raise ValueError(f"is the name of a {what}")
        return text

    return name


def _responses(text: str) -> tuple[Response, ...]:
    try:
        return tuple(Response(each) for each in text.split(",") if each)
    except ValueError:
        raise ValueError(f"are of {', '.join(Response)}") from None


def _signal(text: str) -> str:
    if text not in SIGNALS:
        raise ValueError(f"is one of {', '.join(SIGNALS)}")
    return text


def _schedulers(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(each for each in text.split(",") if each))
    if not names or any(re.match(SCHEDULER_NAME, each) is None for each in names):
        raise ValueError("are names of schedulers, with commas")
    return names


def _key(text: str) -> str:
    if re.match(MOVE_KEY, text) is None:
        raise ValueError("is written by bridges alone")
    return text


#: What words may say several of, one each.
_SEVERAL = ("inputs", "outputs")
_READERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "peak_w": ("peak_w", _number(0.0, 1e5)),
    "cap_w": ("cap_w", _number(0.0, 1e5)),
    "class": ("job_class", _slug("scheduling class")),
    "responses": ("responses", _responses),
    "min_batch_scale": ("min_batch_scale", _number(0.0, 1.0)),
    "checkpoint_s": ("checkpoint_s", _number(0.0, 3.2e7)),
    "signal": ("signal", _signal),
    "move_to": ("move_to", _schedulers),
    "moved": ("moved", _key),
    "pipeline": ("pipeline", _slug("run of a pipeline")),
    "phase": ("phase", _slug("phase")),
    "input": ("inputs", declared.input_of),
    "output": ("outputs", declared.output_of),
    "promotion": ("promotion", declared.promotion_of),
}
