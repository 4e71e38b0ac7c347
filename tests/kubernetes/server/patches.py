"""The kinds of PATCH that are not apply: merge patch, JSON patch, and strategic merge patch."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from tests.kubernetes.server.errors import ApiError, bad_request
from tests.kubernetes.server.schemas import Node

Document = dict[str, Any]


def merge(target: Any, patch: Any) -> Any:
    """Return the target after a merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    found = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merge(found.get(name), value)
    return found


def json_patch(target: Document, operations: Any) -> Document:
    """Return the target after a JSON patch (RFC 6902).

    Raises:
        ApiError: 400 for what is no patch, 422 where a test fails or a path leads nowhere.
    """
    if not isinstance(operations, list):
        raise bad_request("error decoding patch: json: cannot unmarshal object into a patch")
    found: Document = copy.deepcopy(target)
    for operation in operations:
        _operate(found, operation)
    return found


def _operate(root: Document, operation: Mapping[str, Any]) -> None:
    verb = operation.get("op")
    path = str(operation.get("path", ""))
    if verb in ("move", "copy"):
        value = copy.deepcopy(_get(root, str(operation.get("from", ""))))
        if verb == "move":
            _remove(root, str(operation["from"]))
        _add(root, path, value)
    elif verb == "add":
        _add(root, path, operation.get("value"))
    elif verb == "remove":
        _remove(root, path)
    elif verb == "replace":
        _get(root, path)
        _remove(root, path)
        _add(root, path, operation.get("value"))
    elif verb == "test":
        if _get(root, path) != operation.get("value"):
            raise _impossible(f"testing value {path} failed")
    else:
        raise bad_request(f"error decoding patch: unexpected kind of operation: {verb}")


def _impossible(why: str) -> ApiError:
    return ApiError(422, "Invalid", f"the server rejected our request due to an error: {why}")


def _parts(path: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _get(root: Any, path: str) -> Any:
    at = root
    for part in _parts(path):
        try:
            at = at[int(part)] if isinstance(at, list) else at[part]
        except (KeyError, IndexError, ValueError, TypeError):
            raise _impossible(f"the path {path} does not exist") from None
    return at


def _holder(root: Document, path: str) -> tuple[Any, str]:
    above, _, _ = path.rpartition("/")
    return _get(root, above), _parts(path)[-1]


def _add(root: Document, path: str, value: Any) -> None:
    holder, last = _holder(root, path)
    if not isinstance(holder, list):
        holder[last] = copy.deepcopy(value)
    elif last == "-":
        holder.append(copy.deepcopy(value))
    else:
        holder.insert(int(last), copy.deepcopy(value))


def _remove(root: Document, path: str) -> None:
    _get(root, path)
    holder, last = _holder(root, path)
    del holder[int(last) if isinstance(holder, list) else last]


def strategic(node: Node, target: Any, patch: Any) -> Any:
    """Return the target after a strategic merge patch: lists merge by the keys of the schema."""
    if isinstance(patch, list):
        return _strategic_list(node, target if isinstance(target, list) else [], patch)
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    if patch.get("$patch") == "replace":
        return {name: copy.deepcopy(v) for name, v in patch.items() if name != "$patch"}
    if patch.get("$patch") == "delete":
        return {}
    found = dict(target) if isinstance(target, dict) else {}
    if "$retainKeys" in patch:
        found = {name: v for name, v in found.items() if name in patch["$retainKeys"]}
    for name, value in patch.items():
        if name.startswith("$deleteFromPrimitiveList/"):
            field = name.partition("/")[2]
            found[field] = [item for item in found.get(field, []) if item not in value]
        elif name.startswith("$"):
            continue  # orders of lists are kept as they are
        elif value is None:
            found.pop(name, None)
        else:
            found[name] = strategic(node.field(name), found.get(name), value)
    return found


def _strategic_list(node: Node, target: list[Any], patch: list[Any]) -> list[Any]:
    if "merge" not in str(node.raw.get("x-kubernetes-patch-strategy", "")):
        return copy.deepcopy(patch)
    key = node.raw.get("x-kubernetes-patch-merge-key")
    if key is None:
        return [*target, *(item for item in patch if item not in target)]
    found = {item.get(key): item for item in target}
    for item in patch:
        if item.get("$patch") == "delete":
            found.pop(item.get(key), None)
        elif item.get("$patch") == "replace":
            found = {other[key]: other for other in patch if "$patch" not in other}
            break
        else:
            found[item.get(key)] = strategic(node.item, found.get(item.get(key)), item)
    return list(found.values())
