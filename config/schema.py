"""``/api/v1/schema``: the OpenAPI description of the REST API."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from django.http import HttpResponse
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.views import SpectacularAPIView

if TYPE_CHECKING:
    from rest_framework.request import Request


class SchemaView(SpectacularAPIView):
    """The description in OpenAPI, as YAML or as JSON (``Accept``).

    It is made once in a process: that takes seconds, and it is the same for all.
    """

    def _get_schema_response(self, request: Request) -> HttpResponse:
        name = self._get_filename(request, self.api_version)  # type: ignore[no-untyped-call]
        headers = {"Content-Disposition": f'inline; filename="{name}"'}
        renderer = request.accepted_renderer
        form: Any = type(renderer)
        return HttpResponse(_rendered(form), content_type=renderer.media_type, headers=headers)


@functools.cache
def _rendered(form: Any) -> Any:
    generator: Any = SchemaGenerator
    description = generator().get_schema(request=None, public=True)
    return form().render(description, renderer_context={})
