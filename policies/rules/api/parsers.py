"""Bodies that are the text of a rule or a playbook."""

from __future__ import annotations

from typing import Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from policies.rules.yaml_marks import MOST_CHARACTERS


class YamlParser(BaseParser):
    """Takes ``application/yaml`` as it is: what is in it is read, and told wrong, with places."""

    media_type = "application/yaml"

    def parse(
        self, stream: Any, media_type: str | None = None, parser_context: Any = None
    ) -> dict[str, str]:
        """Return the body as the field ``text``."""
        # A character takes at most four bytes; one more byte tells that there is too much.
        body = stream.read(4 * MOST_CHARACTERS + 1)
        try:
            return {"text": body.decode()}
        except UnicodeDecodeError as error:
            raise ParseError("The body is not UTF-8.") from error
