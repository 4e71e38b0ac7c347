"""What the server does for each verb, and the object that it answers with."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from email.message import Message
from typing import Any

import yaml

from tests.kubernetes.server import errors
from tests.kubernetes.server.objects import Page, Store, Write, now
from tests.kubernetes.server.requests import Request
from tests.kubernetes.server.schemas import Resource
from tests.kubernetes.server.selectors import Selection

Document = dict[str, Any]

_PATCHES = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}
_BODIES = ("application/json", "application/yaml")


class Answers:
    """Does what a request asks of the store."""

    def __init__(self, store: Store, headers: Message, warn: Callable[[str], None]) -> None:
        self._store = store
        self._headers = headers
        self._warn = warn

    def of(self, request: Request, body: bytes) -> tuple[int, Document]:
        """Return the code and the object of the answer."""
        verbs = {
            "get": self._get,
            "list": self._list,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_many,
        }
        return verbs[request.verb](request, body)

    def _get(self, request: Request, body: bytes) -> tuple[int, Document]:
        return 200, self._store.get(request.resource, request.namespace, request.name)

    def _list(self, request: Request, body: bytes) -> tuple[int, Document]:
        query = request.query
        wanted = int(query.get("resourceVersion") or 0)
        if wanted > self._store.version:
            raise errors.too_large_resource_version(wanted, self._store.version)
        if query.get("resourceVersionMatch") == "Exact" and wanted != self._store.version:
            raise errors.expired("The resourceVersion for the provided list is too old.")
        page = self._store.page(
            request.resource,
            request.selection(),
            limit=int(query.get("limit") or 0),
            token=query.get("continue", ""),
        )
        return 200, _list(request.resource, page)

    def _create(self, request: Request, body: bytes) -> tuple[int, Document]:
        given = self._body(body)
        if request.subresource == "eviction":
            return self._evict(request, given)
        if request.subresource == "binding":
            return self._bind(request, given)
        if request.name:
            raise errors.method_not_allowed()
        write = request.write(self._headers.get("User-Agent", ""))
        made = self._store.create(request.resource, request.namespace, given, write)
        return 201, self._warned(made, write)

    def _update(self, request: Request, body: bytes) -> tuple[int, Document]:
        write = request.write(self._headers.get("User-Agent", ""))
        given = self._body(body)
        found = self._store.update(request.resource, request.namespace, request.name, given, write)
        return 200, self._warned(found, write)

    def _patch(self, request: Request, body: bytes) -> tuple[int, Document]:
        sent = self._headers.get("Content-Type", "").partition(";")[0]
        kind = _PATCHES.get(sent)
        if kind is None or (kind == "strategic" and request.resource.origin == "custom"):
            taken = [k for k, v in _PATCHES.items() if v != "strategic"]
            raise errors.unsupported_media_type(sent, taken)
        write = request.write(self._headers.get("User-Agent", ""))
        where = (request.resource, request.namespace, request.name)
        patch = _decoded(body)
        if kind != "apply":
            return 200, self._warned(self._store.patch(*where, kind, patch, write), write)
        if not request.query.get("fieldManager"):
            raise errors.bad_request("fieldManager is required for apply patch")
        found, is_new = self._store.apply(*where, patch, write)
        return 201 if is_new else 200, self._warned(found, write)

    def _delete(self, request: Request, body: bytes) -> tuple[int, Document]:
        options = _options(request, body)
        where = (request.resource, request.namespace, request.name)
        found = self._store.delete(*where, options)
        if found["metadata"].get("deletionTimestamp"):
            return 200, found
        return 200, _success(request)

    def _delete_many(self, request: Request, body: bytes) -> tuple[int, Document]:
        options = _options(request, body)
        page = self._store.page(request.resource, request.selection(), limit=0, token="")
        for item in page.items:
            metadata = item["metadata"]
            self._store.delete(
                request.resource, metadata.get("namespace", ""), metadata["name"], options
            )
        return 200, _list(request.resource, page)

    def _evict(self, request: Request, given: Document) -> tuple[int, Document]:
        """Delete a pod unless a disruption budget that covers it allows none."""
        where = (request.resource, request.namespace, request.name)
        pod = self._store.get(*where)
        budgets = self._store.resource("policy", "poddisruptionbudgets")
        every = self._store.page(budgets, Selection(request.namespace), limit=0, token="")
        for budget in every.items:
            if _covers(budget, pod) and budget.get("status", {}).get("disruptionsAllowed", 0) < 1:
                raise errors.too_many_requests(
                    "Cannot evict pod as it would violate the pod's disruption budget.",
                    {
                        "causes": [
                            {
                                "reason": "DisruptionBudget",
                                "message": f"The disruption budget {budget['metadata']['name']}"
                                " does not allow evicting pods currently",
                            }
                        ]
                    },
                )
        target = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastTransitionTime": now(),
        }
        write = replace(request.write("kube-apiserver"), subresource="status")
        if not write.dry_run:
            self._store.patch(*where, "strategic", {"status": {"conditions": [target]}}, write)
            self._store.delete(*where, given.get("deleteOptions", {}))
        return 201, _success(request)

    def _bind(self, request: Request, given: Document) -> tuple[int, Document]:
        """Put a pod on a node, as the scheduler does."""
        where = (request.resource, request.namespace, request.name)
        self._store.bind(*where, given.get("target", {}).get("name", ""))
        return 201, _success(request)

    def _body(self, body: bytes) -> Document:
        sent = self._headers.get("Content-Type", "application/json").partition(";")[0]
        if sent not in _BODIES:
            raise errors.unsupported_media_type(sent, _BODIES)
        found = _decoded(body)
        if not isinstance(found, dict):
            raise errors.bad_request("the body of the request is no object")
        return found

    def _warned(self, document: Document, write: Write) -> Document:
        for warning in write.warnings:
            self._warn(warning.replace('"', '\\"'))
        return document


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        pass
    try:
        return yaml.safe_load(body)
    except yaml.YAMLError as error:
        raise errors.bad_request(f"error decoding the body: {error}") from None


def _options(request: Request, body: bytes) -> Document:
    found = dict(_decoded(body) or {}) if body else {}
    if "gracePeriodSeconds" in request.query:
        found["gracePeriodSeconds"] = int(request.query["gracePeriodSeconds"])
    if request.query.get("dryRun"):
        found["dryRun"] = ["All"]
    return found


def _success(request: Request) -> Document:
    resource = request.resource
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": request.name, "group": resource.group, "kind": resource.plural},
    }


def _list(resource: Resource, page: Page) -> Document:
    metadata: Document = {"resourceVersion": str(page.version)}
    if page.token:
        metadata |= {"continue": page.token, "remainingItemCount": page.left}
    return {
        "kind": f"{resource.kind}List",
        "apiVersion": resource.api_version,
        "metadata": metadata,
        "items": page.items,
    }


def _covers(budget: Document, pod: Document) -> bool:
    wanted = budget["spec"].get("selector", {}).get("matchLabels", {})
    labels = pod["metadata"].get("labels", {})
    return all(labels.get(name) == value for name, value in wanted.items())
