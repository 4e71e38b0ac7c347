"""The facts of a login that its session keeps."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

_KEY = "login"


class Way(StrEnum):
    """The ways to log in."""

    PASSWORD = "password"  # noqa: S105 - a word, not one
    SIGN_ON = "sign_on"

    @property
    def phrase(self) -> str:
        """The way in words, after "by"."""
        return {Way.PASSWORD: "password", Way.SIGN_ON: "single sign-on"}[self]


@dataclass(frozen=True)
class Facts:
    """Time, address, browser and way of a login; empty before it."""

    started_at: datetime | None = None
    address: str | None = None
    agent: str = ""
    way: Way = Way.PASSWORD
    #: whether a second factor was shown, here or to the provider
    second_factor: bool = False

    @classmethod
    def of(cls, session: Mapping[str, Any]) -> Facts:
        """Read them from the data of a session."""
        kept = session.get(_KEY)
        if kept is None:
            return cls()
        started_at, way = datetime.fromisoformat(kept["started_at"]), Way(kept["way"])
        return cls(**{**kept, "started_at": started_at, "way": way})

    def write(self, session: MutableMapping[str, Any]) -> None:
        """Store the facts in the data of a session."""
        started_at = self.started_at.isoformat() if self.started_at else None
        session[_KEY] = {**vars(self), "started_at": started_at}

    def with_second_factor(self) -> Facts:
        """Return the facts after the second factor was shown."""
        return replace(self, second_factor=True)
