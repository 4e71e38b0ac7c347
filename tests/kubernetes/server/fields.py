"""Who owns which field, and server-side apply: what ``structured-merge-diff`` does.

An owned field is a path of elements as FieldsV1 writes them: ``f:name`` for a field, ``k:{…}`` for
an item of a list by its keys, ``v:…`` for a member of a set. A list or map that counts as one value
ends a path.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.kubernetes.server.schemas import Node

Document = dict[str, Any]
Path = tuple[str, ...]

#: What the server keeps itself, and nobody owns.
_NOBODYS: frozenset[Path] = frozenset(
    [
        ("f:apiVersion",),
        ("f:kind",),
        ("f:metadata",),
        *(
            ("f:metadata", f"f:{name}")
            for name in (
                "name",
                "namespace",
                "uid",
                "resourceVersion",
                "generation",
                "generateName",
                "creationTimestamp",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
                "selfLink",
                "managedFields",
            )
        ),
    ]
)


@dataclass(frozen=True)
class Owner:
    """A field manager in one way of writing. Applies and updates are owners apart."""

    manager: str
    operation: str
    api_version: str
    subresource: str = ""
    time: str = field(default="", compare=False)

    def __str__(self) -> str:
        said = json.dumps(self.manager)
        if self.subresource:
            said += f' with subresource "{self.subresource}"'
        if self.operation == "Update":
            said += f" using {self.api_version}"
            said += f" at {self.time}" if self.time else ""
        return said


Owned = dict[Owner, frozenset[Path]]


def is_granular(node: Node, value: Any) -> bool:
    """Whether parts of this value have owners of their own."""
    if isinstance(value, dict):
        return not node.is_atomic_map
    return isinstance(value, list) and (node.is_map_list or node.is_set)


def children(node: Node, value: Any) -> Iterator[tuple[str, Node, Any]]:
    """Yield the parts of a granular value with the elements that name them."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield f"f:{name}", node.field(name), item
    elif node.is_map_list:
        for item in value:
            yield _key(node.keys_of(item)), node.item, item
    else:
        for item in value:
            yield f"v:{_text(item)}", node.item, item


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _key(keys: Document) -> str:
    return f"k:{_text({name: value for name, value in keys.items() if value is not None})}"


def paths(node: Node, value: Any) -> frozenset[Path]:
    """Return all fields that whoever wrote this value owns."""
    return frozenset(found for found in _walk(node, value, ()) if found not in _NOBODYS)


def _walk(node: Node, value: Any, path: Path) -> Iterator[Path]:
    if not is_granular(node, value):
        yield path
        return
    if not value:
        yield path
    for element, part, item in children(node, value):
        below = (*path, element)
        # Items of lists, and keys that no schema names, exist because somebody wrote them.
        if not element.startswith("f:") or not node.declares(element[2:]):
            yield below
        yield from _walk(part, item, below)


def _leaves(node: Node, value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if not is_granular(node, value):
        yield path, value
        return
    yield path, None
    for element, part, item in children(node, value):
        yield from _leaves(part, item, (*path, element))


def differing(node: Node, old: Any, new: Any) -> tuple[frozenset[Path], frozenset[Path]]:
    """Return the paths that were set or changed, and those that are gone."""
    before = dict(_leaves(node, old))
    after = dict(_leaves(node, new))
    changed = {path for path, value in after.items() if path not in before or before[path] != value}
    gone = frozenset(before) - frozenset(after)
    return frozenset(changed) - _NOBODYS - {()}, gone - _NOBODYS


def updated(owned: Owned, owner: Owner, node: Node, old: Any, new: Any) -> Owned:
    """Return who owns what after an update or a patch: what it changed is its writer's."""
    changed, gone = differing(node, old, new)
    if not changed and not gone:
        return owned
    found = {other: fields - changed - gone for other, fields in owned.items() if other != owner}
    mine = (owned.get(owner, frozenset()) | changed) - gone
    return {other: fields for other, fields in {**found, owner: mine}.items() if fields}


class Conflicts(Exception):
    """An apply that would change what others own: (who, field) for each."""

    def __init__(self, found: list[tuple[Owner, Path]]) -> None:
        super().__init__(f"{len(found)} conflicts")
        self.found = found


def applied(
    owned: Owned, owner: Owner, node: Node, live: Document, config: Document, *, force: bool
) -> tuple[Document, Owned]:
    """Return the object and its owners after a server-side apply.

    Raises:
        Conflicts: Others own what this would change, and ``force`` is not set.
    """
    mine = paths(node, config)
    values = dict(_leaves(node, config))
    before = dict(_leaves(node, live))
    others = {other: fields for other, fields in owned.items() if other != owner}
    lost: list[tuple[Owner, Path]] = [
        (other, path)
        for other, fields in others.items()
        for path in sorted(fields & mine)
        if before.get(path) != values.get(path)
    ]
    if lost and not force:
        raise Conflicts(lost)
    taken = frozenset(path for _, path in lost)
    others = {other: fields - taken for other, fields in others.items()}
    merged = _merged(node, live, config)
    # From the outside in: an item is not found any more once its keys are gone.
    for path in sorted(owned.get(owner, frozenset()) - mine, key=len):
        if not _is_owned(path, [mine, *others.values()]):
            _remove(node, merged, path)
    kept = {other: fields for other, fields in others.items() if fields}
    return merged, ({**kept, owner: mine} if mine else kept)


def _is_owned(path: Path, owned: Iterable[frozenset[Path]]) -> bool:
    return any(other[: len(path)] == path for fields in owned for other in fields)


def _merged(node: Node, live: Any, config: Any) -> Any:
    if type(live) is not type(config) or not is_granular(node, config):
        return copy.deepcopy(config)
    if isinstance(config, dict):
        return {
            **live,
            **{name: _merged(node.field(name), live.get(name), v) for name, v in config.items()},
        }
    found = {element: item for element, _, item in children(node, live)}
    for element, part, item in children(node, config):
        found[element] = _merged(part, found.get(element), item)
    return list(found.values())


def _remove(node: Node, value: Any, path: Path) -> None:
    """Take out one path, in place, and what it leaves empty."""
    element, rest = path[0], path[1:]
    found = next((part for part in children(node, value) if part[0] == element), None)
    if found is None:
        return
    _, part, item = found
    if rest and is_granular(part, item):
        _remove(part, item, rest)
        if item:
            return
    if isinstance(value, dict):
        del value[element[2:]]
    else:
        value.remove(item)


def decode(entries: Iterable[Mapping[str, Any]]) -> Owned:
    """Read metadata.managedFields."""
    return {
        Owner(
            manager=entry.get("manager", ""),
            operation=entry.get("operation", ""),
            api_version=entry.get("apiVersion", ""),
            subresource=entry.get("subresource", ""),
            time=entry.get("time", ""),
        ): frozenset(_decoded(entry.get("fieldsV1", {}), ()))
        for entry in entries
    }


def _decoded(fields: Mapping[str, Any], path: Path) -> Iterator[Path]:
    if not fields and path:
        yield path
    for element, below in fields.items():
        if element == ".":
            yield path
        else:
            yield from _decoded(below, (*path, element))


def encode(owned: Owned, before: Owned, now: str) -> list[Document]:
    """Write metadata.managedFields. An entry's time is when its fields last changed."""
    found = []
    for owner, fields in owned.items():
        since = next((o.time for o in before if o == owner and before[o] == fields), now)
        found.append((replace(owner, time=since), fields))
    found.sort(key=lambda entry: (entry[0].operation, entry[0].time, entry[0].manager))
    return [_entry(owner, fields) for owner, fields in found]


def _entry(owner: Owner, fields: frozenset[Path]) -> Document:
    entry: Document = {
        "manager": owner.manager,
        "operation": owner.operation,
        "apiVersion": owner.api_version,
        "time": owner.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": _tree(fields),
    }
    if owner.subresource:
        entry["subresource"] = owner.subresource
    return entry


def _tree(fields: frozenset[Path]) -> Document:
    root: Document = {}
    for path in sorted(fields):
        at = root
        for element in path:
            at = at.setdefault(element, {})
    containers = [path for path in fields if _at(root, path)]
    for path in containers:
        _at(root, path)["."] = {}
    return root


def _at(root: Document, path: Path) -> Document:
    for element in path:
        root = root[element]
    return root


def dotted(path: Path) -> str:
    """Return a path as messages show it: ``.status.conditions[type="Ready"].reason``."""
    said = ""
    for element in path:
        kind, _, rest = element.partition(":")
        if kind == "f":
            said += f".{rest}"
        elif kind == "k":
            keys = ",".join(f"{name}={_text(v)}" for name, v in json.loads(rest).items())
            said += f"[{keys}]"
        else:
            said += f"[={rest}]"
    return said
