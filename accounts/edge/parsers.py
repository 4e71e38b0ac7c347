"""Bodies of the REST API that are JSON."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

from rest_framework import status
from rest_framework.exceptions import APIException, ParseError, ValidationError
from rest_framework.parsers import BaseParser

from accounts.edge import bodies

if TYPE_CHECKING:
    from collections.abc import Mapping


class TooLong(APIException):
    """A body has more bytes than are read."""

    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_code = "too_long"


class JSONParser(BaseParser):
    """Reads JSON within bounds: see :mod:`accounts.edge.bodies`."""

    media_type = "application/json"
    max_bytes = bodies.MAX_BYTES

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the value in ``stream``."""
        body: bytes = stream.read(self.max_bytes + 1)
        if len(body) > self.max_bytes:
            raise TooLong(f"A body has at most {self.max_bytes // 1024**2} MiB.")
        try:
            return bodies.read_json(body)
        except bodies.BadBody as error:
            if error.field:
                raise ValidationError({error.field: str(error)}) from error
            raise ParseError(str(error)) from error
