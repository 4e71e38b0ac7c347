"""Copies of all objects of some kinds, kept by list and watch, through restarts and compactions."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable
from typing import Any

import urllib3

from tests.kubernetes.client import Client, Refused

Document = dict[str, Any]
Key = tuple[str, str]


class Informers:
    """Objects by kind, namespace and name, and a queue of those that changed."""

    def __init__(self, client: Client, kinds: Iterable[str]) -> None:
        self._client = client
        self._kinds = tuple(kinds)
        self._stopping = threading.Event()
        self._objects: dict[str, dict[Key, Document]] = {kind: {} for kind in self._kinds}
        #: Versions at which objects were deleted, so that late news does not bring them back.
        self._deleted: dict[tuple[str, Key], int] = {}
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.changed: queue.SimpleQueue[tuple[str, Key]] = queue.SimpleQueue()

    def start(self) -> None:
        for kind in self._kinds:
            thread = threading.Thread(target=self._follow, args=(kind,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(timeout=10)

    def all(self, kind: str) -> list[Document]:
        with self._lock:
            return list(self._objects[kind].values())

    def get(self, kind: str, name: str, namespace: str = "") -> Document | None:
        with self._lock:
            return self._objects[kind].get((namespace, name))

    def saw(self, document: Document) -> None:
        """Take over an object that was just written, before the watch tells of it."""
        self._take(document["kind"], document)

    def _follow(self, kind: str) -> None:
        while not self._stopping.is_set():
            try:
                since = self._list(kind)
                while not self._stopping.is_set():
                    since = self._watch(kind, since)
            except (Refused, urllib3.exceptions.HTTPError, OSError):
                time.sleep(0.05)

    def _list(self, kind: str) -> str:
        found = self._client.list(kind)
        current = {_key(item): item for item in found["items"]}
        with self._lock:
            gone = self._objects[kind].keys() - current.keys()
            for key in gone:
                del self._objects[kind][key]
        for key in gone:
            self.changed.put((kind, key))
        resource = found["kind"].removesuffix("List")
        for item in current.values():
            self._take(kind, {"kind": resource, "apiVersion": found["apiVersion"], **item})
        return str(found["metadata"]["resourceVersion"])

    def _watch(self, kind: str, since: str) -> str:
        """Follow events until the stream ends, and return where to go on."""
        events = self._client.watch(
            kind, resourceVersion=since, allowWatchBookmarks="true", timeoutSeconds=1
        )
        for event in events:
            document = event["object"]
            if event["type"] == "ERROR":
                raise Refused(document)
            since = document["metadata"]["resourceVersion"]
            if event["type"] == "DELETED":
                with self._lock:
                    self._objects[kind].pop(_key(document), None)
                    self._deleted[(kind, _key(document))] = _version(document)
                self.changed.put((kind, _key(document)))
            elif event["type"] != "BOOKMARK":
                self._take(kind, document)
        return since

    def _take(self, kind: str, document: Document) -> None:
        key = _key(document)
        with self._lock:
            before = self._objects[kind].get(key)
            known = _version(before) if before else self._deleted.get((kind, key), 0)
            if known >= _version(document):
                return
            self._objects[kind][key] = document
        self.changed.put((kind, key))


def _key(document: Document) -> Key:
    metadata = document["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _version(document: Document) -> int:
    return int(document["metadata"]["resourceVersion"])
