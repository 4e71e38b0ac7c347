"""Reading a job specification, from JSON or YAML.

Whatever arrives, one of two things comes of it: a :class:`JobSpec` that keeps to all that can be
told without a fleet, or a :class:`SpecError` that says where, why, and what to do.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from headroom import documents
from headroom.contracts import PLAIN, PLAIN_IN_WORDS, FieldError
from headroom.documents import DocumentError, closest, field_names, refusal
from headroom.jobs import rules, spec
from headroom.jobs.spec import JobSpec

__all__ = [
    "IN_WORDS",
    "JSON",
    "MOST_BYTES",
    "YAML",
    "SpecError",
    "as_json",
    "convert",
    "read",
    "refused_by_decoder",
]

#: The largest specification that is read, bytes.
MOST_BYTES = 256 * 1024

JSON = "application/json"
YAML = "application/yaml"
_YAML_TYPES = (YAML, "application/x-yaml", "text/yaml", "text/x-yaml")

_DOCUMENT = "see docs/reference/job-spec.md"
#: What a pattern asks for, in words.
IN_WORDS = {
    spec.SLUG: "small letters, digits, '.', '_' and '-', a letter or digit first and last",
    spec.PATH: 'the form "site/name"',
    spec.IMAGE: "a digest, such as registry/name@sha256:… with 64 hex digits",
    spec.REVISION: "the whole id of a commit: 40 or 64 hex digits",
    spec.CHECKSUM: "sha256: or sampled-sha256:, and 64 hex digits",
    spec.PLACE: "the whole path of a file or folder, from /",
    spec.VARIABLE: "letters, digits and '_', no digit first",
    spec.ARRAY: "indices such as 0-99:2%10",
    spec.NO_NUL: "no NUL character",
    PLAIN: PLAIN_IN_WORDS,
}
_FIELDS = field_names(spec)


class SpecError(DocumentError):
    """A job specification breaks the contract. ``problems`` says where and why: at least one."""


def read(body: bytes, content_type: str = JSON) -> JobSpec:
    """Return the specification in ``body``. Raises :class:`SpecError`."""
    if len(body) > MOST_BYTES:
        raise _error(
            "too_large",
            f"it has more than {MOST_BYTES} bytes",
            "keep data out of the specification: put it where the command can read it",
        )
    kind = content_type.partition(";")[0].strip().lower()
    if kind in _YAML_TYPES:
        return _from_yaml(body)
    return convert(_from_json(body))


def convert(values: Any) -> JobSpec:
    """Return the specification that plain values are. Raises :class:`SpecError`."""
    try:
        found = msgspec.convert(values, JobSpec)
    except msgspec.ValidationError as error:
        raise refused_by_decoder(error) from error
    problems = rules.problems_of(found)
    if problems:
        raise SpecError(problems)
    return found


def as_json(given: JobSpec) -> dict[str, Any]:
    """Return ``given`` as plain values, without those that are at their defaults."""
    values: dict[str, Any] = msgspec.to_builtins(given)
    return {"version": given.version, **values}


def _from_json(body: bytes) -> Any:
    try:
        values = json.loads(
            body,
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
            parse_float=_finite,
        )
        if b"\\u" in body:
            # Half of a pair of surrogates is no character, and cannot be stored.
            json.dumps(values, ensure_ascii=False).encode()
        return values
    except RecursionError as error:
        raise _error("malformed_body", "it is nested too deeply", _DOCUMENT) from error
    except UnicodeError as error:
        raise _error("malformed_body", "it is not UTF-8", "send UTF-8") from error
    except ValueError as error:
        hint = "send YAML as application/yaml" if _looks_like_yaml(body) else _DOCUMENT
        raise _error("malformed_body", f"this is not JSON: {error}", hint) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r:.80} is given twice")
    return found


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text:.40} is too large a number")
    return value


def _looks_like_yaml(body: bytes) -> bool:
    return bool(re.match(rb"\s*[\w-]+\s*:|\s*#|---", body))


def _from_yaml(body: bytes) -> JobSpec:
    try:
        document = documents.read(body.decode(), most_characters=MOST_BYTES)
    except UnicodeDecodeError as error:
        raise _error("malformed_body", "it is not UTF-8", "send UTF-8") from error
    except DocumentError as error:
        raise SpecError([_malformed(each) for each in error.problems]) from error
    try:
        return convert(document.value)
    except SpecError as error:
        raise SpecError([document.placed(each) for each in error.problems]) from error


def _malformed(problem: FieldError) -> FieldError:
    hint = problem.hint or _DOCUMENT
    return msgspec.structs.replace(problem, code="malformed_body", hint=hint)


def refused_by_decoder(error: msgspec.ValidationError) -> SpecError:
    """Return the error of the decoder, with the path of the field."""
    found = refusal(error, IN_WORDS)
    return _error("invalid_field", found.message, _hint(found.message, found.unknown), found.path)


def _hint(message: str, unknown: str) -> str:
    if unknown:
        close = closest(unknown, _FIELDS)
        return f"do you mean `{close}`?" if close else _DOCUMENT
    if message.startswith("Expected `str`, got"):
        return "put it in quotes"
    return _DOCUMENT


def _error(code: str, message: str, hint: str, field: str = "") -> SpecError:
    return SpecError([FieldError(code=code, message=message, field=field, hint=hint)])
