"""Panels: parts of a page that htmx polls for.

A panel's template names ``poll_url`` in its ``hx-get``. The URL carries a digest of what is shown,
so that the answer is 204, and nothing is swapped, as long as the same would be shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.http import urlencode
from django.utils.safestring import SafeString, mark_safe

from dashboard import conditional, exports

_PLACE = "panel-version"


def draw(
    request: HttpRequest, template: str, url: str, query: Mapping[str, str], context: dict[str, Any]
) -> tuple[SafeString, str]:
    """Return a panel with its version. ``url`` and ``query`` are those that return it again."""
    poll_url = f"{url}?{urlencode([*query.items(), *exports.hides(), ('v', _PLACE)])}"
    html = render_to_string(template, {**context, "poll_url": poll_url}, request)
    version = hashlib.blake2b(html.encode(), digest_size=8).hexdigest()
    return mark_safe(html.replace(_PLACE, version)), version  # noqa: S308 - a rendered template


def answer(
    request: HttpRequest, template: str, url: str, query: Mapping[str, str], context: dict[str, Any]
) -> HttpResponse:
    """Answer a poll for a panel: the panel, or 204 when the client has it."""
    html, version = draw(request, template, url, query, context)
    return conditional.unchanged(request, version) or HttpResponse(html)
