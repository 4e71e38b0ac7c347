"""CustomResourceDefinitions that a cluster with Kueue has."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import yaml

#: A folder with the CRDs that Kueue publishes. Without it, ``kueue.yaml`` says what they hold.
PUBLISHED = "HEADROOM_TEST_KUEUE_CRDS"
GROUP = "kueue.x-k8s.io"
VERSION = "v1beta2"
#: The release of Kueue whose schemas ``kueue.yaml`` states.
RELEASE = "v0.19.2"

Document = dict[str, Any]


@functools.cache
def kueue() -> list[Document]:
    """Return Kueue's CustomResourceDefinitions: published ones where a folder has them."""
    folder = os.environ.get(PUBLISHED, "")
    return published(Path(folder)) if folder else ours()


def ours() -> list[Document]:
    """Return what ``kueue.yaml`` states, as CustomResourceDefinitions."""
    text = (Path(__file__).parent / "kueue.yaml").read_text()
    return [_definition(kind) for kind in yaml.safe_load(text)["kinds"]]


def _definition(kind: Document) -> Document:
    names = {
        "kind": kind["kind"],
        "listKind": f"{kind['kind']}List",
        "plural": kind["plural"],
        "singular": kind["kind"].lower(),
        "shortNames": kind["shortNames"],
    }
    schema = kind["schema"]
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        **schema["properties"],
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {**schema, "properties": properties}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind['plural']}.{GROUP}"},
        "spec": {"group": GROUP, "names": names, "scope": kind["scope"], "versions": [version]},
    }


def published(folder: Path) -> list[Document]:
    """Return the published files of the kinds that ``kueue.yaml`` states."""
    kinds = {definition["spec"]["names"]["kind"] for definition in ours()}
    # In C: 19,000 lines of a pod's fields would take half a minute.
    found = [
        document
        for path in sorted(folder.glob("*.yaml"))
        for document in yaml.load_all(path.read_text(), yaml.CSafeLoader)
        if document and document["kind"] == "CustomResourceDefinition"
    ]
    return [document for document in found if document["spec"]["names"]["kind"] in kinds]
