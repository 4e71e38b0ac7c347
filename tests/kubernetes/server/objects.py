"""The objects of a cluster, their versions, and the events by which watches follow them."""

from __future__ import annotations

import copy
import datetime
import secrets
import string
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.kubernetes.server import errors, fields, patches
from tests.kubernetes.server.schemas import (
    Resource,
    core_resources,
    custom_resource,
)
from tests.kubernetes.server.selectors import Selection
from tests.kubernetes.server.strategies import begin, check_kind
from tests.kubernetes.server.validation import (
    check,
    check_metadata,
    fill_defaults,
    prune,
    without_nulls,
)

Document = dict[str, Any]
Key = tuple[str, str]

#: How many events are remembered. Whoever resumes before them is told to list again.
HISTORY = 200_000
_LETTERS = string.ascii_lowercase + string.digits
#: Fields of metadata that the server alone writes.
_SERVERS = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
)


@dataclass(frozen=True)
class Write:
    """How something is written: by whom, to which part, and how strictly it is read."""

    manager: str = "unknown"
    subresource: str = ""
    #: what happens with fields that no schema knows: Strict, Warn or Ignore
    validation: str = "Strict"
    dry_run: bool = False
    force: bool = False
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Event:
    """One change of one object. ``before`` is the object before it, None where it was made."""

    version: int
    resource: Resource
    document: Document
    before: Document | None
    deleted: bool = False

    def seen_by(self, selection: Selection) -> str:
        """Return the type of event that a watch of this selection sees, "" for none."""
        was = self.before is not None and selection.holds(self.before)
        is_now = not self.deleted and selection.holds(self.document)
        if is_now:
            return "MODIFIED" if was else "ADDED"
        return "DELETED" if was else ""


@dataclass(frozen=True)
class Page:
    """A part of a list, with what is needed to go on: a token, and how many are left."""

    items: list[Document]
    version: int
    token: str = ""
    left: int = 0


class Store:
    """All objects, under one lock. Documents that come out must not be changed."""

    def __init__(self, *, history: int = HISTORY) -> None:
        self._history = history
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._version = 1
        self._events: list[Event] = []
        self._forgotten = 1
        self._pages: dict[str, tuple[int, list[Document]]] = {}
        self._objects: dict[Resource, dict[Key, Document]] = {r: {} for r in core_resources()}
        for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
            self.create(self.resource("", "namespaces"), "", {"metadata": {"name": name}}, Write())

    @property
    def version(self) -> int:
        """The version of the last change."""
        return self._version

    @property
    def resources(self) -> list[Resource]:
        with self._lock:
            return list(self._objects)

    def resource(self, group: str, plural: str) -> Resource:
        """Return a resource.

        Raises:
            ApiError: 404, where there is none.
        """
        with self._lock:
            for found in self._objects:
                if (found.group, found.plural) == (group, plural):
                    return found
        raise errors.no_such_page()

    # Reading

    def get(self, resource: Resource, namespace: str, name: str) -> Document:
        """Return an object.

        Raises:
            ApiError: 404, where there is none.
        """
        with self._lock:
            found = self._objects.get(resource, {}).get((namespace, name))
        if found is None:
            raise errors.not_found(resource, name)
        return found

    def page(self, resource: Resource, selection: Selection, *, limit: int, token: str) -> Page:
        """Return objects by name, and a token where more are left of the same version.

        Raises:
            ApiError: 410, where what the token stands for was forgotten.
        """
        with self._lock:
            if token:
                if token not in self._pages:
                    raise errors.expired(
                        "The provided continue parameter is too old to display a consistent list"
                        " result. You can start a new list without the continue parameter."
                    )
                version, items = self._pages.pop(token)
            else:
                version = self._version
                every = self._objects.get(resource, {})
                items = [d for _, d in sorted(every.items()) if selection.holds(d)]
            if not limit or len(items) <= limit:
                return Page(items, version)
            more = secrets.token_urlsafe(12)
            self._pages[more] = (version, items[limit:])
            return Page(items[:limit], version, more, len(items) - limit)

    def events_after(self, version: int, *, timeout_s: float) -> list[Event]:
        """Return what happened after a version, waiting for the first of it.

        Raises:
            ApiError: 410, where some of it was forgotten.
        """
        with self._changed:
            if self._version <= version:
                self._changed.wait(timeout_s)
            if version < self._forgotten:
                raise errors.expired(f"too old resource version: {version} ({self._forgotten})")
            return self._events[version - self._forgotten :]

    def wake(self) -> None:
        """Let whoever waits for events look again."""
        with self._changed:
            self._changed.notify_all()

    def compact(self) -> int:
        """Forget all events and pages up to now, and return the version that is now the oldest."""
        with self._changed:
            self._events.clear()
            self._pages.clear()
            self._forgotten = self._version
            self._changed.notify_all()
            return self._forgotten

    # Writing

    def create(self, resource: Resource, namespace: str, given: Document, write: Write) -> Document:
        """Store a new object and return it.

        Raises:
            ApiError: 409, where there is one of that name; 404 without its namespace; 422, 400.
        """
        document = self._read(resource, given, write)
        metadata = document["metadata"]
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + _random(5)
        if metadata.get("resourceVersion"):
            raise errors.bad_request("resourceVersion should not be set on objects to be created")
        name = metadata.get("name", "")
        with self._changed:
            self._check_namespace(resource, namespace, metadata, creating=True)
            if (namespace, name) in self._objects[resource]:
                raise errors.already_exists(resource, name)
            begin(resource, document)
            self._number(resource, namespace, document)
            owned: fields.Owned = {}
            return self._save(resource, None, document, owned, write)

    def _number(self, resource: Resource, namespace: str, document: Document) -> None:
        metadata = document["metadata"]
        for name in _SERVERS:
            metadata.pop(name, None)
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = now()
        if resource.generation:
            metadata["generation"] = 1
        if namespace:
            metadata["namespace"] = namespace

    def _check_namespace(
        self, resource: Resource, namespace: str, metadata: Document, *, creating: bool = False
    ) -> None:
        given = metadata.get("namespace", "")
        if given and given != namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the"
                " request"
            )
        if resource.namespaced and creating:
            self.get(self.resource("", "namespaces"), "", namespace)

    def update(
        self, resource: Resource, namespace: str, name: str, given: Document, write: Write
    ) -> Document:
        """Replace an object, or its status, and return it.

        Raises:
            ApiError: 409, where ``given`` was made of another version; 404, 422, 400.
        """
        document = self._read(resource, given, write)
        if document["metadata"].get("name", name) != name:
            raise errors.bad_request("the name of the object does not match the name on the URL")
        with self._changed:
            self._check_namespace(resource, namespace, document["metadata"])
            old = self.get(resource, namespace, name)
            return self._replace(resource, old, document, write)

    def patch(
        self, resource: Resource, namespace: str, name: str, kind: str, patch: Any, write: Write
    ) -> Document:
        """Change an object by a patch of a kind (merge, json or strategic), and return it."""
        with self._changed:
            old = self.get(resource, namespace, name)
            if kind == "json":
                new = patches.json_patch(old, patch)
            elif kind == "strategic":
                new = patches.strategic(resource.schema, old, patch)
            else:
                new = patches.merge(old, patch)
            return self._replace(resource, old, self._read(resource, new, write), write)

    def _replace(self, resource: Resource, old: Document, new: Document, write: Write) -> Document:
        name = old["metadata"]["name"]
        version = new["metadata"].get("resourceVersion", "")
        if version and version != old["metadata"]["resourceVersion"]:
            raise errors.conflict(resource, name)
        uid = new["metadata"].get("uid", "")
        if uid and uid != old["metadata"]["uid"]:
            raise errors.conflict(
                resource,
                name,
                f"Precondition failed: UID in precondition: {uid}, UID in object meta:"
                f" {old['metadata']['uid']}",
            )
        owned = fields.decode(old["metadata"].get("managedFields", ()))
        return self._save(resource, old, _parts(resource, old, new, write), owned, write)

    def bind(self, resource: Resource, namespace: str, name: str, node: str) -> Document:
        """Put a pod on a node, as the scheduler alone does.

        Raises:
            ApiError: 409, where it is on one or held by gates; 404.
        """
        with self._changed:
            old = self.get(resource, namespace, name)
            if old["spec"].get("nodeName") or old["spec"].get("schedulingGates"):
                raise errors.conflict(resource, name, "pod is already assigned to a node or gated")
            scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now()}
            others = [
                condition
                for condition in old["status"].get("conditions", ())
                if condition["type"] != "PodScheduled"
            ]
            new = _copy(old)
            new["spec"] = {**old["spec"], "nodeName": node}
            new["status"] = {**old["status"], "conditions": [*others, scheduled]}
            return self._put(resource, old, new)

    def apply(
        self, resource: Resource, namespace: str, name: str, given: Document, write: Write
    ) -> tuple[Document, bool]:
        """Apply fields as their owner, and return the object and whether it is new.

        Raises:
            ApiError: 409 with a cause for each field that another owns; 404, 422, 400.
        """
        if given.get("metadata", {}).get("managedFields"):
            raise errors.bad_request("metadata.managedFields must be nil")
        config = self._read(resource, {**given, "metadata": {**given.get("metadata", {})}}, write)
        config["metadata"].setdefault("name", name)
        with self._changed:
            old = self._objects[resource].get((namespace, name))
            if old is None:
                return self._create_applied(resource, namespace, name, config, write), True
            self._check_version(resource, old, config)
            merged, owned = self._merge(resource, old, config, write)
            new = _parts(resource, old, merged, write)
            return self._save(resource, old, new, owned, write, is_apply=True), False

    def _check_version(self, resource: Resource, old: Document, config: Document) -> None:
        version = config["metadata"].pop("resourceVersion", "")
        if version and version != old["metadata"]["resourceVersion"]:
            raise errors.conflict(resource, old["metadata"]["name"])

    def _create_applied(
        self, resource: Resource, namespace: str, name: str, config: Document, write: Write
    ) -> Document:
        if write.subresource:
            raise errors.not_found(resource, name)
        self._check_namespace(resource, namespace, config["metadata"], creating=True)
        wanted = _wanted(resource, config, write)
        owner = _owner(resource, write, "Apply")
        owned = {owner: fields.paths(resource.schema, wanted)}
        document = copy.deepcopy(config)
        begin(resource, document)
        self._number(resource, namespace, document)
        return self._save(resource, None, document, owned, write, is_apply=True)

    def _merge(
        self, resource: Resource, old: Document, config: Document, write: Write
    ) -> tuple[Document, fields.Owned]:
        owned = fields.decode(old["metadata"].get("managedFields", ()))
        owner = _owner(resource, write, "Apply")
        wanted = _wanted(resource, config, write)
        try:
            return fields.applied(owned, owner, resource.schema, old, wanted, force=write.force)
        except fields.Conflicts as conflicts:
            raise errors.apply_conflict(
                [(str(other), fields.dotted(path)) for other, path in conflicts.found]
            ) from None

    def _save(
        self,
        resource: Resource,
        old: Document | None,
        new: Document,
        owned: fields.Owned,
        write: Write,
        *,
        is_apply: bool = False,
    ) -> Document:
        fill_defaults(resource.schema, new)
        self._check(resource, old, new)
        metadata = new["metadata"]
        before = fields.decode(old["metadata"].get("managedFields", ())) if old else {}
        if not is_apply:
            owner = _owner(resource, write, "Update")
            owned = fields.updated(owned, owner, resource.schema, old or {}, new)
        metadata["managedFields"] = fields.encode(owned, before, now())
        if old is not None and new == old:
            return old
        if old is not None and resource.generation and _wants(old) != _wants(new):
            metadata["generation"] = old["metadata"].get("generation", 1) + 1
        if write.dry_run:
            return new
        if old is not None and _is_let_go(metadata):
            return self._drop(resource, new)
        return self._put(resource, old, new)

    def _check(self, resource: Resource, old: Document | None, new: Document) -> None:
        metadata = new["metadata"]
        causes = [
            *check_metadata(metadata),
            *check(resource.schema, new, old),
            *check_kind(resource, new, old),
        ]
        if old is not None and old["metadata"].get("deletionTimestamp"):
            more = set(metadata.get("finalizers", ())) - set(old["metadata"].get("finalizers", ()))
            if more:
                causes.append(
                    errors.Cause(
                        "FieldValueForbidden",
                        "metadata.finalizers",
                        "Forbidden: no new finalizers can be added if the object is being deleted,"
                        f" found new finalizers {sorted(more)}",
                    )
                )
        if causes:
            raise errors.invalid(resource, metadata.get("name", ""), causes)

    def _put(self, resource: Resource, old: Document | None, new: Document) -> Document:
        metadata = new["metadata"]
        self._emit(resource, new, old)
        self._objects[resource][(metadata.get("namespace", ""), metadata["name"])] = new
        if resource.plural == "customresourcedefinitions":
            self._register(new)
        return new

    def _drop(self, resource: Resource, document: Document) -> Document:
        metadata = document["metadata"]
        old = self._objects[resource].pop((metadata.get("namespace", ""), metadata["name"]))
        self._emit(resource, document, old, deleted=True)
        if resource.plural == "namespaces":
            self._empty(metadata["name"])
        if resource.plural == "customresourcedefinitions":
            self._objects.pop(
                self.resource(document["spec"]["group"], document["spec"]["names"]["plural"])
            )
        return document

    def _empty(self, namespace: str) -> None:
        for resource, found in list(self._objects.items()):
            for key in [key for key in found if key[0] == namespace]:
                self.delete(resource, *key, {"gracePeriodSeconds": 0})

    def _emit(
        self, resource: Resource, document: Document, old: Document | None, *, deleted: bool = False
    ) -> None:
        self._version += 1
        document["metadata"]["resourceVersion"] = str(self._version)
        self._events.append(Event(self._version, resource, document, old, deleted))
        if len(self._events) > 2 * self._history:
            gone = len(self._events) - self._history
            self._forgotten = self._events[gone - 1].version
            del self._events[:gone]
        self._changed.notify_all()

    def _register(self, definition: Document) -> None:
        new = custom_resource(definition)
        kept: dict[Key, Document] = {}
        for old in list(self._objects):
            if (old.group, old.plural) == (new.group, new.plural):
                kept = self._objects.pop(old)
        self._objects[new] = kept

    # Deleting

    def delete(
        self, resource: Resource, namespace: str, name: str, options: Mapping[str, Any]
    ) -> Document:
        """Delete an object, or mark it as deleted while finalizers or its grace hold it.

        Returns: the object as it is then, or as it was last.

        Raises:
            ApiError: 404; 409, where a precondition does not hold.
        """
        with self._changed:
            old = self.get(resource, namespace, name)
            _check_preconditions(resource, old, options.get("preconditions", {}))
            new = _copy(old)
            grace_s = _grace_s(resource, old, options)
            held = bool(old["metadata"].get("finalizers"))
            if options.get("dryRun"):
                return old
            if not held and not grace_s:
                return self._drop(resource, new)
            metadata = new["metadata"]
            if (
                metadata.get("deletionTimestamp")
                and metadata["deletionGracePeriodSeconds"] <= grace_s
            ):
                return old
            metadata.setdefault("deletionTimestamp", now(grace_s))
            metadata["deletionGracePeriodSeconds"] = grace_s
            if resource.generation:
                metadata["generation"] = metadata.get("generation", 1) + 1
            return self._put(resource, old, new)

    # Reading what was sent

    def _read(self, resource: Resource, given: Document, write: Write) -> Document:
        if not isinstance(given, dict):
            raise errors.bad_request("the body of the request is no object")
        document: Document = without_nulls(copy.deepcopy(given))
        for name, value in (("apiVersion", resource.api_version), ("kind", resource.kind)):
            if document.setdefault(name, value) != value:
                raise errors.bad_request(
                    f"{name} in the data ({document[name]}) does not match the expected {name}"
                    f" ({value})"
                )
        document.setdefault("metadata", {})
        unknown = prune(resource.schema, document)
        said = [f'unknown field "{place}"' for place in unknown]
        if said and write.validation == "Strict":
            raise errors.bad_request(
                f'{resource.kind} in version "{resource.version}" cannot be handled as a'
                f" {resource.kind}: strict decoding error: {', '.join(said)}"
            )
        if write.validation == "Warn":
            write.warnings.extend(said)
        return document


def now(later_s: float = 0) -> str:
    """Return the time as metadata has it: to the second, in UTC."""
    moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=later_s)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _random(count: int) -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(count))


def _copy(document: Document) -> Document:
    """Return a copy whose metadata can be changed."""
    return {**document, "metadata": {**document["metadata"]}}


def _wants(document: Document) -> Document:
    return {name: v for name, v in document.items() if name not in ("metadata", "status")}


def _is_let_go(metadata: Document) -> bool:
    """Whether an object that was deleted is held by nothing any more."""
    return (
        "deletionTimestamp" in metadata
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
    )


def _owner(resource: Resource, write: Write, operation: str) -> fields.Owner:
    part = write.subresource if write.subresource == "status" else ""
    return fields.Owner(write.manager, operation, resource.api_version, part)


def _wanted(resource: Resource, config: Document, write: Write) -> Document:
    """Return the part of an applied object that this address takes."""
    if write.subresource == "status":
        return {name: v for name, v in config.items() if name in ("apiVersion", "kind", "status")}
    return {name: v for name, v in config.items() if name != "status" or not resource.status}


def _parts(resource: Resource, old: Document, new: Document, write: Write) -> Document:
    """Return what is stored of a new object: its status or all the rest, and our metadata."""
    if write.subresource == "status":
        kept = {name: v for name, v in old.items() if name not in ("status", "metadata")}
        found = {**kept, "metadata": dict(old["metadata"])}
        if "status" in new:
            found["status"] = new["status"]
        return copy.deepcopy(found)
    metadata = {name: v for name, v in new["metadata"].items() if name not in _SERVERS}
    for name in ("name", "namespace", *_SERVERS):
        if name in old["metadata"]:
            metadata[name] = old["metadata"][name]
    found = {**new, "metadata": metadata}
    if resource.status:
        found.pop("status", None)
        if "status" in old:
            found["status"] = old["status"]
    return copy.deepcopy(found)


def _check_preconditions(resource: Resource, old: Document, wanted: Mapping[str, Any]) -> None:
    for name, said in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if wanted.get(name, old["metadata"][name]) != old["metadata"][name]:
            raise errors.conflict(
                resource,
                old["metadata"]["name"],
                f"Precondition failed: {said} in precondition: {wanted[name]}, {said} in object"
                f" meta: {old['metadata'][name]}",
            )


def _grace_s(resource: Resource, old: Document, options: Mapping[str, Any]) -> int:
    """Return how long a pod that runs somewhere may take to stop. All else has no grace."""
    if resource.plural != "pods" or resource.group:
        return 0
    if not old["spec"].get("nodeName"):
        return 0
    if old.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    default = old["spec"].get("terminationGracePeriodSeconds", 30)
    return int(options.get("gracePeriodSeconds", default))
