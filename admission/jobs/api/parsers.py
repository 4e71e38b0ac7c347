"""Bodies that are job specifications, passed on unread: the contract reads them."""

from __future__ import annotations

from typing import Any, TypedDict

from rest_framework.parsers import BaseParser

from headroom.jobs.reading import JSON, MOST_BYTES, YAML

__all__ = ["PARSERS", "RawBody"]


class RawBody(TypedDict):
    body: bytes
    content_type: str


class _RawParser(BaseParser):
    def parse(
        self, stream: Any, media_type: str | None = None, parser_context: Any = None
    ) -> dict[str, Any]:
        """Return the body unread. One byte more than is taken tells that there is too much."""
        return {"body": stream.read(MOST_BYTES + 1), "content_type": self.media_type}


class RawJsonParser(_RawParser):
    media_type = JSON


class RawYamlParser(_RawParser):
    media_type = YAML


class RawOldYamlParser(_RawParser):
    """The media type of YAML before it had one of its own."""

    media_type = "application/x-yaml"


class RawTextYamlParser(_RawParser):
    media_type = "text/yaml"


PARSERS = [RawJsonParser, RawYamlParser, RawOldYamlParser, RawTextYamlParser]
