"""A client of an API server for tests: JSON over HTTP, by a kubeconfig.

Tests speak through it, so that they hold against the stand-in and against a real API server.
"""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3
import yaml

Document = dict[str, Any]

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

#: Where objects of a kind are reached: prefix and plural.
_PLACES = {
    "Namespace": ("api/v1", "namespaces"),
    "Node": ("api/v1", "nodes"),
    "Pod": ("api/v1", "pods"),
    "Event": ("api/v1", "events"),
    "ConfigMap": ("api/v1", "configmaps"),
    "Secret": ("api/v1", "secrets"),
    "Lease": ("apis/coordination.k8s.io/v1", "leases"),
    "Job": ("apis/batch/v1", "jobs"),
    "PodDisruptionBudget": ("apis/policy/v1", "poddisruptionbudgets"),
    "CustomResourceDefinition": ("apis/apiextensions.k8s.io/v1", "customresourcedefinitions"),
    "AdmissionCheck": ("apis/kueue.x-k8s.io/v1beta2", "admissionchecks"),
    "ResourceFlavor": ("apis/kueue.x-k8s.io/v1beta2", "resourceflavors"),
    "ClusterQueue": ("apis/kueue.x-k8s.io/v1beta2", "clusterqueues"),
    "LocalQueue": ("apis/kueue.x-k8s.io/v1beta2", "localqueues"),
    "Workload": ("apis/kueue.x-k8s.io/v1beta2", "workloads"),
    "HeadroomCheck": ("apis/headroom.dev/v1beta1", "headroomchecks"),
}


class Refused(Exception):
    """An answer that is a Status of failure."""

    def __init__(self, status: Document) -> None:
        super().__init__(status.get("message", ""))
        self.status = status
        self.code = int(status.get("code", 0))
        self.reason = str(status.get("reason", ""))

    @property
    def fields(self) -> list[str]:
        """The fields that are the causes."""
        return [cause["field"] for cause in self.status.get("details", {}).get("causes", ())]


class Client:
    """Calls of one user. ``manager`` is who owns what is written."""

    def __init__(self, kubeconfig: Path, *, manager: str = "tests") -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = _current(config, "cluster")
        user = _current(config, "user")
        self.manager = manager
        self._url = cluster["server"].rstrip("/")
        self._headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
        self._pool = urllib3.PoolManager(
            maxsize=32, ssl_context=_trust(cluster, user, kubeconfig.parent), retries=False
        )

    def call(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", **query: Any
    ) -> Any:
        """Return the object of an answer.

        Raises:
            Refused: The server says no.
        """
        return self.exchange(method, path, body, kind, **query)[1]

    def exchange(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", **query: Any
    ) -> tuple[int, Any]:
        """Return the code and the object of an answer.

        Raises:
            Refused: The server says no.
        """
        answer = self._pool.request(
            method,
            self._address(path, query),
            body=None if body is None else json.dumps(body).encode(),
            headers={**self._headers, "Content-Type": kind, "Accept": "application/json"},
            timeout=30,
        )
        found = answer.json()
        if answer.status >= 400:
            raise Refused(found)
        return answer.status, found

    def _address(self, path: str, query: Document) -> str:
        return f"{self._url}/{path}" + (f"?{urlencode(query)}" if query else "")

    def get(self, kind: str, name: str, namespace: str = "") -> Document:
        found: Document = self.call("GET", path_of(kind, name, namespace))
        return found

    def list(self, kind: str, namespace: str = "", **query: Any) -> Document:
        found: Document = self.call("GET", path_of(kind, "", namespace), **query)
        return found

    def create(self, document: Document, **query: Any) -> Document:
        metadata = document["metadata"]
        path = path_of(document["kind"], "", metadata.get("namespace", ""))
        query.setdefault("fieldManager", self.manager)
        found: Document = self.call("POST", path, document, **query)
        return found

    def update(self, document: Document, subresource: str = "", **query: Any) -> Document:
        query.setdefault("fieldManager", self.manager)
        found: Document = self.call("PUT", _path_to(document, subresource), document, **query)
        return found

    def apply(
        self, document: Document, subresource: str = "", *, force: bool = False, **query: Any
    ) -> Document:
        query.setdefault("fieldManager", self.manager)
        if force:
            query["force"] = "true"
        path = _path_to(document, subresource)
        found: Document = self.call("PATCH", path, document, APPLY, **query)
        return found

    def patch(
        self,
        kind: str,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        form: str = MERGE,
        subresource: str = "",
        **query: Any,
    ) -> Document:
        query.setdefault("fieldManager", self.manager)
        path = path_of(kind, name, namespace, subresource)
        found: Document = self.call("PATCH", path, patch, form, **query)
        return found

    def delete(self, kind: str, name: str, namespace: str = "", **options: Any) -> Document:
        body = options or None
        found: Document = self.call("DELETE", path_of(kind, name, namespace), body)
        return found

    def watch(
        self, kind: str, namespace: str = "", *, timeout_s: float = 30, **query: Any
    ) -> Iterator[Document]:
        """Yield events until the server ends the stream.

        Raises:
            Refused: The server says no at once.
        """
        path = self._address(path_of(kind, "", namespace), {"watch": "true", **query})
        answer = self._pool.request(
            "GET", path, headers=self._headers, preload_content=False, timeout=timeout_s
        )
        try:
            if answer.status >= 400:
                raise Refused(json.loads(answer.read()))
            rest = b""
            for part in answer.stream():
                *lines, rest = (rest + part).split(b"\n")
                yield from (json.loads(line) for line in lines if line)
        finally:
            answer.close()
            answer.release_conn()


def path_of(kind: str, name: str = "", namespace: str = "", subresource: str = "") -> str:
    """Return the address of an object, or of all of a kind."""
    prefix, plural = _PLACES[kind]
    within = f"/namespaces/{namespace}" if namespace else ""
    tail = "".join(f"/{part}" for part in (name, subresource) if part)
    return f"{prefix}{within}/{plural}{tail}"


def _path_to(document: Document, subresource: str) -> str:
    metadata = document["metadata"]
    return path_of(document["kind"], metadata["name"], metadata.get("namespace", ""), subresource)


def _current(config: Document, what: str) -> Document:
    contexts = {context["name"]: context["context"] for context in config["contexts"]}
    name = contexts[config["current-context"]][what]
    found: Document = next(of[what] for of in config[f"{what}s"] if of["name"] == name)
    return found


def _trust(cluster: Document, user: Document, folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if "certificate-authority-data" in cluster:
        text = base64.b64decode(cluster["certificate-authority-data"]).decode()
        context.load_verify_locations(cadata=text)
    elif "certificate-authority" in cluster:
        context.load_verify_locations(cafile=folder / cluster["certificate-authority"])
    if "client-certificate" in user:
        context.load_cert_chain(folder / user["client-certificate"], folder / user["client-key"])
    return context
