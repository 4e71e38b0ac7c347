"""The whole inventory as YAML: plan a change, apply it, export it."""

from __future__ import annotations

from collections import defaultdict
from typing import IO, TYPE_CHECKING, Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import APIException, ErrorDetail, ValidationError
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.edge.parameters import check_names
from fleet.api.actors import actor_of
from fleet.inventory import MAX_BYTES, InventoryError, Plan, apply, export, parse, plan, read_state
from fleet.inventory.describe import as_dict
from fleet.writing import writing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rest_framework.request import Request


class TooLongError(APIException):
    status_code = 413
    default_code = "too_long"
    default_detail = f"An inventory has at most {MAX_BYTES // 1024**2} MiB."


class YamlParser(BaseParser):
    """Hands the body on as it is, once its length is within bounds."""

    media_type = "application/yaml"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        body: bytes = stream.read(MAX_BYTES + 1)
        if len(body) > MAX_BYTES:
            raise TooLongError
        return body


class TextYamlParser(YamlParser):
    media_type = "text/yaml"


class OldYamlParser(YamlParser):
    media_type = "application/x-yaml"


class YamlRenderer(BaseRenderer):
    """For content negotiation: the view writes the YAML itself."""

    media_type = "application/yaml"
    format = "yaml"

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> Any:
        # Only errors pass here.
        return JSONRenderer().render(data)


class _KindPlanSerializer(serializers.Serializer[dict[str, Any]]):
    created = serializers.ListField(child=serializers.CharField())
    changed = serializers.DictField(
        child=serializers.DictField(child=serializers.ListField()),
        help_text="Old and new value, by key and field",
    )
    removed = serializers.ListField(child=serializers.CharField())
    truncated = serializers.BooleanField(help_text="The lists are cut off; the counts are not")


class PlanSerializer(serializers.Serializer[dict[str, Any]]):
    sites = serializers.ListField(
        child=serializers.CharField(), help_text="Sites that the inventory speaks for"
    )
    counts = serializers.DictField(child=serializers.DictField(child=serializers.IntegerField()))
    kinds = serializers.DictField(child=_KindPlanSerializer())
    warnings = serializers.ListField(
        child=serializers.CharField(),
        help_text="What is allowed and not wise, such as racks too dense for their cooling",
    )


_PRUNE = OpenApiParameter(
    "prune_sites",
    OpenApiTypes.BOOL,
    description="Remove the sites that the inventory does not name, and unused hardware models",
)
_SCHEMA: Any = {
    "parameters": [_PRUNE],
    "request": {"application/yaml": OpenApiTypes.STR},
    "responses": PlanSerializer,
}


class _InventoryView(APIView):
    parser_classes = [YamlParser, TextYamlParser, OldYamlParser]


class PlanView(_InventoryView):
    """Plan the changes to the fleet for an inventory. Changes nothing."""

    @extend_schema(operation_id="fleet_plan", **_SCHEMA)
    def post(self, request: Request) -> Response:
        return Response(as_dict(_plan(request)))


class ApplyView(_InventoryView):
    """Apply an inventory to the fleet: all of it, or nothing."""

    @extend_schema(operation_id="fleet_apply", **_SCHEMA)
    def post(self, request: Request) -> Response:
        with writing():
            todo = _plan(request)
            apply(todo, actor_of(request))
        return Response(as_dict(todo))


class ExportView(APIView):
    """The whole inventory, as YAML that plans to nothing."""

    renderer_classes = [YamlRenderer, JSONRenderer]

    @extend_schema(
        operation_id="fleet_export",
        responses={(200, "application/yaml"): OpenApiResponse(OpenApiTypes.STR)},
    )
    def get(self, request: Request) -> HttpResponse:
        check_names(request.query_params, ("format",))
        return HttpResponse(
            export(read_state().rows),
            content_type="application/yaml",
            headers={"Content-Disposition": 'attachment; filename="fleet.yaml"'},
        )


def _plan(request: Request) -> Plan:
    prune_sites = serializers.BooleanField().run_validation(
        request.query_params.get("prune_sites", "false")
    )
    # An empty body reaches no parser.
    body = request.data if isinstance(request.data, bytes) else b""
    try:
        return plan(parse(body), read_state(), prune_sites=prune_sites)
    except InventoryError as error:
        raise _refusal(error) from error


def _refusal(error: InventoryError) -> ValidationError:
    fields: dict[str, list[ErrorDetail]] = defaultdict(list)
    for problem in error.problems:
        where = "" if problem.line is None else f"line {problem.line}: "
        detail = ErrorDetail(f"{where}{problem.message}", "invalid_inventory")
        fields[problem.field or "non_field_errors"].append(detail)
    return ValidationError(dict(fields))
