"""A specification that somebody writes on a page: its text, and what is wrong with it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b

import msgspec
import yaml

from accounts.models import User
from admission.jobs import catalog
from admission.jobs.models import Job, Project
from admission.jobs.submission import Conflict, OverLimit, SpecError
from headroom import documents
from headroom.contracts import FieldError
from headroom.documents import DocumentError
from headroom.jobs import reading
from headroom.jobs.spec import JobSpec

__all__ = ["REFUSALS", "Draft", "again", "first"]

#: What a submission, a dry run and a check are refused by.
REFUSALS = (SpecError, Conflict, OverLimit)
#: It asks for little, and pins nothing: it can be submitted as it is.
_FIRST = """\
project: {project}
class: {job_class}
phases:
  - name: train
    gang: {{gpus: 1}}
    walltime_s: 3600
    command: [python, train.py]
"""
_CLASS = "low-power-experimentation"


@dataclass(frozen=True, slots=True)
class Draft:
    """A text in YAML or JSON. ``form``: which form it was written in; each has a number."""

    text: str
    form: str

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Draft:
        """Return what a form sent: its lines end in CR and LF."""
        return cls(given.get("text", "").replace("\r\n", "\n"), given.get("form", ""))

    @classmethod
    def new(cls, text: str) -> Draft:
        """Return a text in a form of its own."""
        return cls(text, secrets.token_hex(8))

    @property
    def key(self) -> str:
        """The same for the same text in the same form: a button that is pressed twice submits once.

        A text that was changed after it was submitted is another job.
        """
        digest = blake2b(self.text.encode(), digest_size=16).hexdigest()
        return f"page:{self.form[:40]}:{digest}"

    def spec(self) -> JobSpec:
        """Return the specification. Raises SpecError."""
        is_json = self.text.lstrip().startswith("{")
        return reading.read(self.text.encode(), reading.JSON if is_json else reading.YAML)

    def problems(self, error: SpecError | Conflict | OverLimit) -> Sequence[FieldError]:
        """Return why it was refused, each with its place in the text where that has one."""
        if not isinstance(error, SpecError):
            return [FieldError(code=error.code, message=str(error), hint=error.hint)]
        with suppress(DocumentError):
            document = documents.read(self.text, most_characters=reading.MOST_BYTES)
            return [document.placed(each) if each.field else each for each in error.problems]
        return error.problems


def first(user: User) -> str:
    """Return a specification to start from, for a project of ``user``. Two queries."""
    project = Project.objects.open_to(user).values_list("name", flat=True).first()
    if project is None:
        return _FIRST.format(project="PROJECT", job_class=_CLASS)
    allowed = catalog.for_submission(user, project).allowed
    job_class = _CLASS if _CLASS in allowed else min(allowed, default=_CLASS)
    return _FIRST.format(project=project, job_class=job_class)


def again(job: Job) -> str:
    """Return the specification of a job for another one: without its name, which is taken."""
    spec = msgspec.structs.replace(reading.convert(job.spec), name=None)
    return yaml.safe_dump(reading.as_json(spec), sort_keys=False, allow_unicode=True)
