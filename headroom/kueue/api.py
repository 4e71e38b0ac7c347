"""The API server of a cluster: lists, watches and changes of the kinds that the bridge needs.

Through lightkube, which knows how a cluster is reached (kubeconfig, service account, certificates)
and where a kind lives. Objects are plain dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2
import msgspec
from lightkube.config.client_adapter import ConnectionParams
from lightkube.config.kubeconfig import KubeConfig
from lightkube.core.exceptions import ConfigError
from lightkube.core.generic_client import GenericSyncClient
from lightkube.generic_resource import create_global_resource, create_namespaced_resource

from headroom.errors import HeadroomError
from headroom.kueue import parameters
from headroom.kueue.names import FIELD_MANAGER, GROUP, KUEUE, VERSION

__all__ = ["Api", "ApiError", "Conflict", "Document", "Expired", "Missing"]

Document = dict[str, Any]

_KINDS: dict[str, Any] = {
    "Node": create_global_resource("", "v1", "Node", "nodes"),
    "Pod": create_namespaced_resource("", "v1", "Pod", "pods"),
    "Lease": create_namespaced_resource("coordination.k8s.io", "v1", "Lease", "leases"),
    "Workload": create_namespaced_resource(KUEUE, "v1beta2", "Workload", "workloads"),
    "AdmissionCheck": create_global_resource(KUEUE, "v1beta2", "AdmissionCheck", "admissionchecks"),
    "ResourceFlavor": create_global_resource(KUEUE, "v1beta2", "ResourceFlavor", "resourceflavors"),
    parameters.KIND: create_global_resource(GROUP, VERSION, parameters.KIND, "headroomchecks"),
}
_NAMESPACED = frozenset({"Pod", "Lease", "Workload"})
#: Objects of one page of a list.
_PAGE = 500
#: A watch ends after this time, s, and is asked for again.
_WATCH_S = 300
#: Bookmarks come about once a minute: without a word for so long, s, a connection is dead.
_SILENT_S = 150.0
_TIMEOUT_S = 10.0
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"


class ApiError(HeadroomError):
    """The API server cannot be reached, or refuses."""


class Conflict(ApiError):
    """The object has changed since it was read."""


class Expired(ApiError):
    """A watch begins too early for what the server remembers: list anew."""


class Missing(ApiError):
    """There is no such object, or no such kind."""


_BY_CODE = {404: Missing, 409: Conflict, 410: Expired}


class Api:
    """One API server. May be used by many threads."""

    def __init__(self, kubeconfig: str | None = None, context: str | None = None) -> None:
        """Without ``kubeconfig``: what ``KUBECONFIG``, or else the pod's service account, says.

        Raises:
            ApiError: neither says how a cluster is reached.
        """
        try:
            found = KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_env()
            config = found.get(context)
            if config is None:
                raise ApiError("no context of the kubeconfig is the current one")
            timeout = httpx2.Timeout(_TIMEOUT_S)
            self._client = GenericSyncClient(ConnectionParams(timeout=timeout), config=config)
        except (ConfigError, OSError, ValueError) as error:
            raise ApiError(f"it is not known how the cluster is reached: {error}") from error

    def close(self) -> None:
        """Close the connections."""
        self._client.close()  # type: ignore[no-untyped-call]

    def list(self, kind: str, *, fields: str = "") -> tuple[list[Document], str]:
        """Return all objects of a kind, page by page, and the version that they are of."""
        found: list[Document] = []
        more = ""
        while True:
            asked = {"limit": str(_PAGE), "continue": more or None, "fieldSelector": fields or None}
            page = self._call("list", kind, namespace=_all(kind), params=asked)
            found += page.get("items") or []
            metadata = page.get("metadata") or {}
            more = metadata.get("continue") or ""
            if not more:
                return found, str(metadata.get("resourceVersion") or "")

    def watch(self, kind: str, version: str, *, fields: str = "") -> Iterator[tuple[str, Document]]:
        """Yield what happens to objects of a kind after ``version``, bookmarks too.

        Raises:
            Expired: the server does not remember so far back.
        """
        asked = {
            "resourceVersion": version, "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_S), "fieldSelector": fields or None,
        }  # fmt: skip
        client = self._client
        request = client.prepare_request(
            "list", _KINDS[kind], namespace=_all(kind), watch=True, params=asked
        )
        request.timeout = httpx2.Timeout(_TIMEOUT_S, read=_SILENT_S)
        with _translated(kind):
            answer = client.send(client.build_adapter_request(request), stream=True)
            try:
                if answer.is_error:
                    answer.read()
                    raise _refusal(kind, answer)
                for line in answer.iter_lines():
                    event = msgspec.json.decode(line)
                    if event["type"] == "ERROR":
                        raise _error(kind, event["object"])
                    yield event["type"], event["object"]
            finally:
                answer.close()

    def get(self, kind: str, name: str, namespace: str = "") -> Document:
        """Return one object. Raises :class:`Missing`."""
        return self._call("get", kind, name=name, namespace=namespace)

    def create(self, document: Document) -> Document:
        """Make an object. Raises :class:`Conflict` where there is one of its name."""
        return self._write("post", document)

    def replace(self, document: Document) -> Document:
        """Write an object whole. Raises :class:`Conflict` where it has changed meanwhile."""
        return self._write("put", document)

    def apply(self, document: Document, *, status: bool = False) -> Document:
        """Have the fields of ``document`` be so, as ours (server-side apply).

        With ``metadata.resourceVersion``: only where it has not changed. Raises :class:`Conflict`.
        """
        return self._patch(document, document["kind"], document["metadata"], _APPLY, status)

    def merge(self, kind: str, patch: Document, name: str, namespace: str = "") -> Document:
        """Change fields of an object; null drops one."""
        return self._patch(patch, kind, {"name": name, "namespace": namespace}, _MERGE, False)

    # --- Calls ------------------------------------------------------------------------------------

    def _patch(
        self, body: Document, kind: str, at: Mapping[str, Any], form: str, status: bool
    ) -> Document:
        asked = {"fieldManager": FIELD_MANAGER, "force": "true" if form == _APPLY else None}
        return self._call(
            "patch", kind, body=body, name=at["name"], namespace=at.get("namespace") or "",
            params=asked, headers={"Content-Type": form}, status=status,
        )  # fmt: skip

    def _write(self, method: str, document: Document) -> Document:
        metadata = document["metadata"]
        return self._call(
            method, document["kind"], body=_KINDS[document["kind"]](document),
            name=metadata["name"] if method == "put" else None,
            namespace=metadata.get("namespace") or "", params={"fieldManager": FIELD_MANAGER},
        )  # fmt: skip

    def _call(
        self,
        method: str,
        kind: str,
        *,
        body: Document | None = None,
        name: str | None = None,
        namespace: str = "",
        params: Mapping[str, str | None] | None = None,
        headers: Mapping[str, str] | None = None,
        status: bool = False,
    ) -> Document:
        client, resource = self._client, _KINDS[kind]
        request = client.prepare_request(
            method,
            resource.Status if status else resource,
            obj=body,
            name=name,
            namespace=namespace or None,
            params=dict(params or {}),
            headers=dict(headers or {}),
        )
        with _translated(kind):
            answer = client.send(client.build_adapter_request(request))
            if answer.is_error:
                raise _refusal(kind, answer)
            found: Document = msgspec.json.decode(answer.content)
            return found


def _all(kind: str) -> str:
    return "*" if kind in _NAMESPACED else ""


@contextmanager
def _translated(kind: str) -> Iterator[None]:
    try:
        yield
    except httpx2.HTTPError as error:
        raise ApiError(f"{kind}: {type(error).__name__}: {error}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError) as error:
        raise ApiError(f"{kind}: the API server answers in no form of its own: {error}") from error
    except ConfigError as error:
        raise ApiError(f"{kind}: {error}") from error


def _refusal(kind: str, answer: httpx2.Response) -> ApiError:
    try:
        status = msgspec.json.decode(answer.content, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        status = {}
    return _error(kind, {"code": answer.status_code, "message": answer.reason_phrase, **status})


def _error(kind: str, status: Mapping[str, Any]) -> ApiError:
    sort = _BY_CODE.get(int(status.get("code") or 0), ApiError)
    return sort(f"{kind}: {status.get('code')} {status.get('message')}")
