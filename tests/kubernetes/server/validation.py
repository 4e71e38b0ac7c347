"""What makes an object valid: pruning, defaults, limits, keys of lists, and rules in CEL.

The order is the API server's: fields that nobody declared are found first, defaults come next, then
everything that is wrong is told at once.
"""

from __future__ import annotations

import datetime
import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cel_expr_python import cel  # type: ignore[import-untyped]

from tests.kubernetes.server.errors import Cause
from tests.kubernetes.server.schemas import Node

Document = dict[str, Any]

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_LABEL_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
)
_QUANTITY = re.compile(
    r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(([KMGTPE]i)|[numkMGTPE]|([eE][+-]?[0-9]+))?"
)
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
}
_BITS = {"int32": 31, "int64": 63}


def prune(node: Node, value: Any, path: str = "") -> list[str]:
    """Take out, in place, what no schema declares. Return the places where that was."""
    if isinstance(value, list):
        return [
            place
            for number, item in enumerate(value)
            for place in prune(node.item, item, f"{path}[{number}]")
        ]
    if not isinstance(value, dict) or node.keeps_unknown:
        return []
    gone: list[str] = []
    for name in list(value):
        place = f"{path}.{name}" if path else name
        if not node.declares(name) and "additionalProperties" not in node.raw:
            gone.append(place)
            del value[name]
        else:
            gone += prune(node.field(name), value[name], place)
    return gone


def without_nulls(value: Any) -> Any:
    """Return the value without members that are null: to the API server they are not there."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def fill_defaults(node: Node, value: Any) -> None:
    """Set, in place, what has a default and is not given."""
    if isinstance(value, list):
        for item in value:
            fill_defaults(node.item, item)
    if not isinstance(value, dict):
        return
    for name in node.fields():
        default = node.field(name).raw.get("default")
        if name not in value and default is not None:
            value[name] = json.loads(json.dumps(default))
    for name, item in value.items():
        fill_defaults(node.field(name), item)


def check(node: Node, value: Any, old: Any = None, path: str = "") -> Iterator[Cause]:
    """Find all that is wrong with a value. ``old`` is what stood there before, for rules of CEL."""
    wrong_type = _check_type(node.raw, value, path)
    if wrong_type:
        yield wrong_type
        return
    yield from _check_limits(node.raw, value, path)
    if isinstance(value, dict):
        yield from _check_members(node, value, old, path)
    if isinstance(value, list):
        yield from _check_items(node, value, old, path)
    yield from _check_rules(node.raw, value, old, path)


def _check_members(node: Node, value: Document, old: Any, path: str) -> Iterator[Cause]:
    for name in node.raw.get("required", ()):
        if name not in value:
            yield Cause("FieldValueRequired", _below(path, name), "Required value")
    before = old if isinstance(old, dict) else {}
    for name, item in value.items():
        yield from check(node.field(name), item, before.get(name), _below(path, name))


def _check_items(node: Node, value: list[Any], old: Any, path: str) -> Iterator[Cause]:
    before: dict[str, Any] = {}
    if node.is_map_list and isinstance(old, list):
        before = {_identity(node, item): item for item in old}
    seen: set[str] = set()
    for number, item in enumerate(value):
        place = f"{path}[{number}]"
        identity = _identity(node, item)
        if identity and identity in seen:
            yield Cause("FieldValueDuplicate", place, f"Duplicate value: {identity}")
        seen.add(identity)
        yield from check(node.item, item, before.get(identity), place)


def _identity(node: Node, item: Any) -> str:
    if node.is_map_list and isinstance(item, dict):
        return json.dumps(node.keys_of(item), separators=(",", ":"))
    return json.dumps(item) if node.is_set else ""


def _below(path: str, name: str) -> str:
    if re.fullmatch(r"[\w-]+", name):
        return f"{path}.{name}" if path else name
    return f"{path}[{name}]"


def _check_type(raw: Mapping[str, Any], value: Any, path: str) -> Cause | None:
    if raw.get("x-kubernetes-int-or-string") or "oneOf" in raw:
        wanted = ["integer", "string"] if "oneOf" not in raw else ["number", "string"]
    else:
        declared = raw.get("type", [])
        wanted = [declared] if isinstance(declared, str) else list(declared)
    wanted = [name for name in wanted if name != "null"]
    if not wanted or any(_is_a(value, name) for name in wanted):
        return None
    said = json.dumps(_kind(value))
    message = f"Invalid value: {said}: {path} in body must be of type {wanted[0]}: {said}"
    return Cause("FieldValueTypeInvalid", path, message)


def _is_a(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES[name])


def _kind(value: Any) -> str:
    return next((name for name in _TYPES if _is_a(value, name)), "null")


def _check_limits(raw: Mapping[str, Any], value: Any, path: str) -> Iterator[Cause]:
    if "enum" in raw and value not in raw["enum"]:
        choices = ", ".join(json.dumps(choice) for choice in raw["enum"])
        message = f"Unsupported value: {json.dumps(value)}: supported values: {choices}"
        yield Cause("FieldValueNotSupported", path, message)
    if isinstance(value, str):
        yield from _check_text(raw, value, path)
    elif isinstance(value, list):
        yield from _check_size(raw, len(value), path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _check_number(raw, value, path)


def _check_text(raw: Mapping[str, Any], value: str, path: str) -> Iterator[Cause]:
    most = raw.get("maxLength")
    if most is not None and len(value) > most:
        yield Cause("FieldValueTooLong", path, f"Too long: may not be more than {most} bytes")
    if len(value) < raw.get("minLength", 0):
        least = raw["minLength"]
        said = f"{path} in body should be at least {least} chars long"
        yield Cause("FieldValueInvalid", path, f'Invalid value: "{value}": {said}')
    pattern = raw.get("pattern")
    if pattern is not None and not _pattern(pattern).search(value):
        said = f"{path} in body should match '{pattern}'"
        yield Cause("FieldValueInvalid", path, f'Invalid value: "{value}": {said}')
    if raw.get("format") == "date-time" and not _is_time(value):
        said = f'{path} in body must be of type date-time: "{value}"'
        yield Cause("FieldValueInvalid", path, f'Invalid value: "{value}": {said}')


@functools.cache
def _pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern as Go has it: flags may follow the anchor."""
    if text.startswith("^(?i)"):
        return re.compile("^" + text.removeprefix("^(?i)"), re.IGNORECASE)
    return re.compile(text)


def _is_time(value: str) -> bool:
    try:
        return datetime.datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _check_size(raw: Mapping[str, Any], size: int, path: str) -> Iterator[Cause]:
    most = raw.get("maxItems")
    if most is not None and size > most:
        message = f"Too many: {size}: must have at most {most} items"
        yield Cause("FieldValueTooMany", path, message)
    if size < raw.get("minItems", 0):
        said = f"{path} in body should have at least {raw['minItems']} items"
        yield Cause("FieldValueInvalid", path, f"Invalid value: {size}: {said}")


def _check_number(raw: Mapping[str, Any], value: float, path: str) -> Iterator[Cause]:
    least = raw.get("minimum")
    most = raw.get("maximum")
    bits = _BITS.get(raw.get("format", ""))
    if bits and not -(2**bits) <= value < 2**bits:
        said = f"{path} in body must be of type {raw['format']}: {value}"
        yield Cause("FieldValueInvalid", path, f"Invalid value: {value}: {said}")
    if least is not None and value < least:
        said = f"{path} in body should be greater than or equal to {least}"
        yield Cause("FieldValueInvalid", path, f"Invalid value: {value}: {said}")
    if most is not None and value > most:
        said = f"{path} in body should be less than or equal to {most}"
        yield Cause("FieldValueInvalid", path, f"Invalid value: {value}: {said}")


_ENVIRONMENT = cel.NewEnv(variables={"self": cel.Type.DYN, "oldSelf": cel.Type.DYN})


@functools.cache
def _compiled(rule: str) -> Any:
    return _ENVIRONMENT.compile(rule)


def _check_rules(raw: Mapping[str, Any], value: Any, old: Any, path: str) -> Iterator[Cause]:
    for given in raw.get("x-kubernetes-validations", ()):
        rule = given["rule"]
        if "oldSelf" in rule and old is None:
            continue  # a rule about changes, and nothing was there before
        data = {"self": value, "oldSelf": old} if "oldSelf" in rule else {"self": value}
        found = _compiled(rule).eval(data=data)
        if found.type() != cel.Type.BOOL or not found.value():
            message = given.get("message") or f"failed rule: {rule}"
            said = f"Invalid value: {json.dumps(_kind(value))}: {message}"
            yield Cause("FieldValueInvalid", path or "<nil>", said)


def check_metadata(metadata: Document) -> Iterator[Cause]:
    """Find what is wrong with a name, labels or annotations: rules that no schema holds."""
    name = metadata.get("name", "")
    if not _SUBDOMAIN.fullmatch(name) or len(name) > 253:
        said = (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters,"
            " '-' or '.', and must start and end with an alphanumeric character"
        )
        yield Cause("FieldValueInvalid", "metadata.name", f'Invalid value: "{name}": {said}')
    for key, value in metadata.get("labels", {}).items():
        if not _LABEL_KEY.fullmatch(key):
            yield Cause(
                "FieldValueInvalid",
                "metadata.labels",
                f'Invalid value: "{key}": name part must'
                " consist of alphanumeric characters, '-', '_' or '.'",
            )
        if len(value) > 63 or not _LABEL_VALUE.fullmatch(value):
            yield Cause(
                "FieldValueInvalid",
                "metadata.labels",
                f'Invalid value: "{value}": a valid label'
                " must be an empty string or consist of at most 63 alphanumeric characters, '-',"
                " '_' or '.', and must start and end with an alphanumeric character",
            )
    for key in metadata.get("annotations", {}):
        if not _LABEL_KEY.fullmatch(key):
            yield Cause(
                "FieldValueInvalid",
                "metadata.annotations",
                f'Invalid value: "{key}": name part'
                " must consist of alphanumeric characters, '-', '_' or '.'",
            )


def check_quantities(amounts: Mapping[str, Any], path: str) -> Iterator[Cause]:
    """Find amounts that no quantity is: ``1.5.0``, ``8 GPUs``."""
    for name, amount in amounts.items():
        if not _QUANTITY.fullmatch(str(amount)):
            message = f'Invalid value: "{amount}": quantities must match the regular expression'
            yield Cause("FieldValueInvalid", f"{path}.{name}", message)


def said(causes: Sequence[Cause]) -> list[str]:
    """Return the fields that are wrong, for tests."""
    return [cause.field for cause in causes]
