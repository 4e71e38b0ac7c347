"""What the server says it has: groups, resources, its version, and which parameters they take."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from tests.kubernetes.server.schemas import KUBERNETES, Resource

Document = dict[str, Any]

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_SUBRESOURCE_VERBS = {"status": ["get", "patch", "update"], "eviction": ["create"]}
#: What a client asks for that takes all groups in one answer.
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def answer(resources: Sequence[Resource], path: list[str], *, wants_all: bool) -> Document | None:
    """Return what lies at an address that is about no object, None where it is about objects.

    ``wants_all`` is whether the client takes all groups in one answer.
    """
    match path:
        case ["version"]:
            return version()
        case ["healthz" | "livez" | "readyz"]:
            return {"status": "ok"}
        case ["api" | "apis" as root] if wants_all:
            return aggregated(resources, core=root == "api")
        case ["api"]:
            return core_versions()
        case ["apis"]:
            return groups(resources)
        case ["api", found]:
            return resources_of(resources, "", found)
        case ["apis", group, found]:
            return resources_of(resources, group, found)
        case ["openapi", "v3", *prefix]:
            return openapi(resources, "/".join(prefix)) if prefix else openapi_index(resources)
    return None


def version() -> Document:
    major, minor = KUBERNETES.split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{KUBERNETES}.0",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    }


def core_versions() -> Document:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def _groups(resources: Sequence[Resource]) -> list[tuple[str, list[Resource]]]:
    ordered = sorted(resources, key=lambda resource: resource.group)
    return [(group, list(found)) for group, found in groupby(ordered, lambda r: r.group)]


def groups(resources: Sequence[Resource]) -> Document:
    """Return an APIGroupList."""
    found = [_group(name, of[0].version) for name, of in _groups(resources) if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}


def _group(name: str, version: str) -> Document:
    of = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [of], "preferredVersion": of}


def resources_of(resources: Sequence[Resource], group: str, version: str) -> Document | None:
    """Return an APIResourceList, or None where there is no such group and version."""
    found = [r for r in resources if (r.group, r.version) == (group, version)]
    if not found:
        return None
    listed = []
    for resource in found:
        listed.append(_resource(resource))
        listed += [_subresource(resource, name) for name in resource.subresources]
    name = f"{group}/{version}" if group else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": name,
        "resources": listed,
    }


def _resource(resource: Resource) -> Document:
    found: Document = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": _VERBS,
    }
    if resource.short_names:
        found["shortNames"] = list(resource.short_names)
    return found


def _subresource(resource: Resource, name: str) -> Document:
    found: Document = {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": _SUBRESOURCE_VERBS[name],
    }
    if name == "eviction":
        found |= {"group": "policy", "version": "v1", "kind": "Eviction"}
    return found


def aggregated(resources: Sequence[Resource], *, core: bool) -> Document:
    """Return an APIGroupDiscoveryList: groups, versions and resources in one answer."""
    items = [
        {
            "metadata": {"name": name} if name else {},
            "versions": [_discovered_version(found)],
        }
        for name, found in _groups(resources)
        if (name == "") is core
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _discovered_version(resources: Sequence[Resource]) -> Document:
    return {
        "version": resources[0].version,
        "freshness": "Current",
        "resources": [_discovered(resource) for resource in resources],
    }


def _discovered(resource: Resource) -> Document:
    return {
        "resource": resource.plural,
        "responseKind": _kind(resource.group, resource.version, resource.kind),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": _VERBS,
        "shortNames": list(resource.short_names),
        "subresources": [
            {
                "subresource": name,
                "responseKind": _kind("policy", "v1", "Eviction")
                if name == "eviction"
                else _kind(resource.group, resource.version, resource.kind),
                "verbs": _SUBRESOURCE_VERBS[name],
            }
            for name in resource.subresources
        ],
    }


def _kind(group: str, version: str, kind: str) -> Document:
    return {"group": group, "version": version, "kind": kind}


def openapi_index(resources: Sequence[Resource]) -> Document:
    """Return where the OpenAPI document of each group and version lies."""
    prefixes = {_prefix(resource) for resource in resources}
    return {
        "paths": {
            prefix: {"serverRelativeURL": f"/openapi/v3/{prefix}"} for prefix in sorted(prefixes)
        }
    }


def _prefix(resource: Resource) -> str:
    return f"apis/{resource.api_version}" if resource.group else f"api/{resource.version}"


def openapi(resources: Sequence[Resource], prefix: str) -> Document | None:
    """Return the paths of a group and version, as far as clients look for what PATCH takes.

    Schemas are not part of it: kubectl leaves validation to the server where PATCH takes the
    parameter ``fieldValidation``.
    """
    found = [resource for resource in resources if _prefix(resource) == prefix]
    if not found:
        return None
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": f"v{KUBERNETES}.0"},
        "paths": {
            f"/{prefix}/{_path(resource)}": {"patch": _patch(resource)} for resource in found
        },
        "components": {"schemas": {}},
    }


def _path(resource: Resource) -> str:
    within = "namespaces/{namespace}/" if resource.namespaced else ""
    return f"{within}{resource.plural}/{{name}}"


def _patch(resource: Resource) -> Document:
    names = ("dryRun", "fieldManager", "fieldValidation", "force")
    return {
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": _kind(resource.group, resource.version, resource.kind),
        "parameters": [
            {"name": name, "in": "query", "schema": {"type": "string"}} for name in names
        ],
        "responses": {"200": {"description": "OK"}},
    }
