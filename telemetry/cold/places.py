"""Where the files of the cold tier lie: a directory, or a bucket of an object store.

:mod:`headroom.places` holds what can be done there; here is how Polars reads from it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from django.conf import settings

from headroom import places
from headroom.disk import Found
from headroom.places import Unreachable

__all__ = ["SUFFIX", "Bucket", "Directory", "Place", "Unreachable", "place", "reason"]

SUFFIX = ".parquet"


class Place(places.Place):
    """A place for files of the cold tier, which Polars reads part by part."""

    def listed(self) -> Iterator[Found]:
        """Yield each file of the cold tier, finished or not."""
        return (found for found in self.files() if found.path.endswith(SUFFIX))

    @abstractmethod
    def uri(self, path: str) -> str:
        """Return the address by which Polars reads the file."""

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """Return what Polars needs besides to read files here."""


class Directory(places.Directory, Place):
    """A folder of this machine, or one that several mount."""

    def uri(self, path: str) -> str:
        return str(self.root / path)

    def options(self) -> dict[str, Any]:
        return {}


class Bucket(places.Bucket, Place):
    """A prefix in a bucket of an S3-compatible store: ``s3://bucket/prefix``."""

    def __init__(self, url: str) -> None:
        super().__init__(
            url,
            region=settings.COLD_REGION,
            endpoint=settings.COLD_ENDPOINT_URL,
            called=_called(),
        )

    def uri(self, path: str) -> str:
        return f"{self.url}/{path}"

    def options(self) -> dict[str, Any]:
        wanted: dict[str, Any] = {
            "aws_region": settings.COLD_REGION,
            "max_retries": places.RETRIES,
        }
        if settings.COLD_ENDPOINT_URL:
            is_plain = urlsplit(settings.COLD_ENDPOINT_URL).scheme == "http"
            wanted["aws_endpoint_url"] = settings.COLD_ENDPOINT_URL
            wanted["aws_allow_http"] = str(is_plain).lower()
        return wanted


def _called() -> str:
    return f"the cold tier, {settings.TELEMETRY_COLD_URL or 'in the state folder'},"


def reason(error: Exception) -> str:
    """Return in one line what is wrong with the cold tier, and where to look."""
    return f"{_called()} cannot be used: {places.told(error)}"


def place() -> Place:
    """Return where this installation keeps the cold tier."""
    return _place(settings.TELEMETRY_COLD_URL or str(settings.STATE_DIR / "cold"))


@cache
def _place(url: str) -> Place:
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        return Directory(Path(unquote(parts.path)).absolute())
    return Bucket(url)
