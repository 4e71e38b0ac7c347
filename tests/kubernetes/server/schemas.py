"""Which resources there are, and what their objects look like.

Core resources come with the schemas that ``kubernetes-validate`` carries, all others from
CustomResourceDefinitions.
"""

from __future__ import annotations

import functools
import importlib.util
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Document = dict[str, Any]

#: The minor version whose schemas are used, and which the server says it is.
KUBERNETES = "1.34"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


@dataclass(frozen=True, eq=False)
class Node:
    """The schema of one place in an object, or what is deduced where there is none."""

    raw: Mapping[str, Any]

    @property
    def is_map_list(self) -> bool:
        return self.raw.get("x-kubernetes-list-type") == "map"

    @property
    def is_set(self) -> bool:
        return self.raw.get("x-kubernetes-list-type") == "set"

    @property
    def is_atomic_map(self) -> bool:
        return self.raw.get("x-kubernetes-map-type") == "atomic"

    @property
    def keeps_unknown(self) -> bool:
        """Whether fields that nobody declared stay."""
        raw = self.raw
        if raw.get("x-kubernetes-preserve-unknown-fields"):
            return True
        declared = "properties" in raw or "additionalProperties" in raw
        return not declared

    def declares(self, name: str) -> bool:
        return name in self.raw.get("properties", {})

    def field(self, name: str) -> Node:
        """Return the schema of a field: declared, or of any key, or none."""
        properties = self.raw.get("properties", {})
        if name in properties:
            return Node(_resolved(properties[name]))
        extra = self.raw.get("additionalProperties")
        return Node(_resolved(extra)) if isinstance(extra, dict) else UNKNOWN

    def fields(self) -> Iterator[str]:
        yield from self.raw.get("properties", {})

    @property
    def item(self) -> Node:
        return Node(_resolved(self.raw.get("items", {})))

    def keys_of(self, value: Mapping[str, Any]) -> Document:
        """Return the values of an item that tell it from others of its list, with defaults."""
        item = self.item
        found = {}
        for key in self.raw["x-kubernetes-list-map-keys"]:
            default = item.field(key).raw.get("default")
            found[key] = value.get(key, default)
        return found


UNKNOWN = Node({})


@functools.cache
def _definitions() -> Document:
    # Found, not imported: that would take longer than all of a test.
    package = importlib.util.find_spec("kubernetes_validate")
    assert package is not None
    assert package.origin is not None
    folder = Path(package.origin).parent / "kubernetes-json-schema" / f"v{KUBERNETES}.0-local"
    found: Document = json.loads((folder / "_definitions.json").read_text())["$defs"]
    return found


def _resolved(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow a reference. What stands beside it counts as well, as list and map types do."""
    if "$ref" not in raw:
        return raw
    target = _definitions()[str(raw["$ref"]).rpartition("/")[2]]
    return {**target, **{key: value for key, value in raw.items() if key != "$ref"}}


@dataclass(frozen=True, eq=False)
class Resource:
    """A kind of object, and where its objects are reached."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    schema: Node
    #: Whether status has an address of its own, beside which writes to it are dropped.
    status: bool
    #: Whether metadata.generation counts changes of what is wanted.
    generation: bool
    origin: Literal["core", "custom"]
    short_names: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The name in sentences: ``pods``, ``workloads.kueue.x-k8s.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def subresources(self) -> tuple[str, ...]:
        found = ("status",) if self.status else ()
        return (*found, "eviction") if self.plural == "pods" else found


def _core(
    group: str,
    version: str,
    kind: str,
    *,
    namespaced: bool = True,
    status: bool = False,
    generation: bool = False,
    short: str = "",
    plural: str = "",
    definition: str = "",
) -> Resource:
    package = definition or f"io.k8s.api.{group.partition('.')[0] or 'core'}.{version}.{kind}"
    return Resource(
        group=group,
        version=version,
        kind=kind,
        plural=plural or kind.lower() + "s",
        singular=kind.lower(),
        namespaced=namespaced,
        schema=Node(_definitions()[package]),
        status=status,
        generation=generation,
        origin="core",
        short_names=tuple(short.split()),
    )


def core_resources() -> tuple[Resource, ...]:
    """Return the resources that an API server has without any extension, as far as built."""
    crd = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition"
    return (
        _core("", "v1", "Namespace", namespaced=False, status=True, short="ns"),
        _core("", "v1", "Node", namespaced=False, status=True, short="no"),
        _core("", "v1", "Pod", status=True, generation=True, short="po"),
        _core("", "v1", "Event", short="ev"),
        _core("", "v1", "ConfigMap", short="cm"),
        _core("", "v1", "Secret"),
        _core("", "v1", "ServiceAccount", short="sa"),
        _core("coordination.k8s.io", "v1", "Lease"),
        _core("events.k8s.io", "v1", "Event", short="ev"),
        _core("batch", "v1", "Job", status=True, generation=True),
        _core("policy", "v1", "PodDisruptionBudget", status=True, generation=True, short="pdb"),
        _core("rbac.authorization.k8s.io", "v1", "ClusterRole", namespaced=False),
        _core("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", namespaced=False),
        _core("rbac.authorization.k8s.io", "v1", "Role"),
        _core("rbac.authorization.k8s.io", "v1", "RoleBinding"),
        _core(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            namespaced=False,
            status=True,
            generation=True,
            short="crd crds",
            definition=crd,
        ),
    )


def custom_resource(definition: Mapping[str, Any]) -> Resource:
    """Return the resource that a CustomResourceDefinition makes, in the version that is stored."""
    spec = definition["spec"]
    (version,) = (v for v in spec["versions"] if v["storage"])
    names = spec["names"]
    schema = dict(version["schema"]["openAPIV3Schema"])
    properties = dict(schema.get("properties", {}))
    properties["metadata"] = {"$ref": f"#/$defs/{_META}"}
    for name in ("apiVersion", "kind"):
        properties.setdefault(name, {"type": "string"})
    return Resource(
        group=spec["group"],
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        singular=names.get("singular") or names["kind"].lower(),
        namespaced=spec["scope"] == "Namespaced",
        schema=Node({**schema, "properties": properties}),
        status="status" in version.get("subresources", {}),
        generation=True,
        origin="custom",
        short_names=tuple(names.get("shortNames", ())),
    )
