"""What there is of a kind, kept by watching: one list, then only what happens.

A watch goes on from where it was after each break. Where the server does not remember so far back
(410), all is listed once more, and what is gone meanwhile is seen by what is not there.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from headroom.errors import HeadroomError
from headroom.kueue.api import Api, Document, Expired

__all__ = ["Key", "Store", "Watcher", "key_of"]

logger = logging.getLogger(__name__)

Key = tuple[str, str]
#: Between attempts to reach a server that does not answer, s: from, to.
_PAUSE_S = (0.2, 10.0)


def key_of(document: Document) -> Key:
    """Return namespace (empty: it has none) and name of an object."""
    metadata = document["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


@dataclass
class Store:
    """Objects of one kind, and those that have changed since somebody last asked.

    ``wake`` is called after each change.
    """

    wake: Callable[[], None] = lambda: None
    is_listed: bool = False
    _objects: dict[Key, Document] = field(default_factory=dict)
    _changed: set[Key] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, document: Document) -> None:
        """Take an object as it is now, unless a newer state of it is known."""
        key = key_of(document)
        with self._lock:
            known = self._objects.get(key)
            if known is not None and _is_older(document, known):
                return
            self._objects[key] = document
            self._changed.add(key)
        self.wake()

    def drop(self, key: Key) -> None:
        """Take an object for gone."""
        with self._lock:
            if self._objects.pop(key, None) is not None:
                self._changed.add(key)
        self.wake()

    def replace(self, documents: list[Document]) -> None:
        """Take these for all there is."""
        new = {key_of(each): each for each in documents}
        with self._lock:
            self._changed |= {
                key
                for key in new.keys() | self._objects.keys()
                if _version(new.get(key)) != _version(self._objects.get(key))
            }
            self._objects = new
            self.is_listed = True
        self.wake()

    def changed(self) -> set[Key]:
        """Return the keys of what has changed since the last call."""
        with self._lock:
            found, self._changed = self._changed, set()
            return found

    def get(self, key: Key) -> Document | None:
        """Return an object; None: it is gone."""
        with self._lock:
            return self._objects.get(key)

    def all(self) -> list[Document]:
        """Return all objects."""
        with self._lock:
            return list(self._objects.values())


def _version(document: Document | None) -> str | None:
    return None if document is None else document["metadata"].get("resourceVersion")


def _is_older(document: Document, known: Document) -> bool:
    """Compare versions of one object, as etcd counts them; ours come back before a watch does."""
    if document["metadata"].get("uid") != known["metadata"].get("uid"):
        return False
    new, old = _version(document) or "", _version(known) or ""
    return new.isdecimal() and old.isdecimal() and int(new) < int(old)


class Watcher:
    """Keeps the store of one kind, in a thread of its own."""

    def __init__(self, api: Api, kind: str, store: Store, *, fields: str = "") -> None:
        self._api, self._kind, self._store, self._fields = api, kind, store, fields
        self._version = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch-{kind}", daemon=True)
        #: how often all was listed
        self.lists = 0

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Watch no more; the thread ends with the next word of the server."""
        self._stop.set()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread to end."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        pause_s = _PAUSE_S[0]
        while not self._stop.is_set():
            try:
                if not self._version:
                    self._list()
                self._follow()
                pause_s = _PAUSE_S[0]
            except Expired:
                logger.info("%s: the watch came too late, and all is listed anew", self._kind)
                self._version = ""
            except HeadroomError as error:
                if not self._stop.is_set():
                    logger.warning("%s cannot be watched: %s", self._kind, error)
                # Many watch the same server: they do not all come back at once.
                self._stop.wait(pause_s * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
                pause_s = min(2 * pause_s, _PAUSE_S[1])

    def _list(self) -> None:
        documents, self._version = self._api.list(self._kind, fields=self._fields)
        self.lists += 1
        self._store.replace(documents)

    def _follow(self) -> None:
        for kind, document in self._api.watch(self._kind, self._version, fields=self._fields):
            if self._stop.is_set():
                return
            self._version = document["metadata"]["resourceVersion"]
            if kind == "DELETED":
                self._store.drop(key_of(document))
            elif kind != "BOOKMARK":
                self._store.put(document)
