"""The REST API that every kind of document has: drafts, checks, versions, differences, steps.

A kind brings its list and what its versions say besides; :func:`routes` the rest, under
``/api/v1/``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec
from django.http import Http404
from django.urls import URLPattern, path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import serializers, status
from rest_framework.exceptions import ParseError, ValidationError
from rest_framework.parsers import BaseParser
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.edge.parameters import whole_number
from accounts.edge.parsers import JSONParser
from accounts.permissions import ViewsFleet, ViewsFleetOrEditsPolicies
from fleet.api.actors import actor_of
from headroom.contracts import FieldError
from headroom.documents import DocumentError
from headroom.documents.yaml_text import MOST_CHARACTERS
from policies.documents import diff, life
from policies.documents.life import Kind
from policies.documents.models import States, Version

__all__ = [
    "VERSION_FIELDS",
    "CheckedSerializer",
    "DraftSerializer",
    "VersionSummarySerializer",
    "YamlParser",
    "checked",
    "drafted",
    "routes",
    "summary_of",
]

#: What every version says of itself, besides its text.
VERSION_FIELDS = (
    "name",
    "number",
    "state",
    "share",
    "note",
    "author",
    "reviewer",
    "created_at",
    "changed_at",
    "activated_at",
)


class YamlParser(BaseParser):
    """Takes ``application/yaml`` as text: the kind's reader parses it, and locates its faults."""

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


# --- In JSON -------------------------------------------------------------------------------------


class DraftSerializer(serializers.Serializer[Any]):
    """A document's YAML."""

    text = serializers.CharField(
        max_length=MOST_CHARACTERS, trim_whitespace=False, help_text="The document, in YAML"
    )
    note = serializers.CharField(max_length=500, required=False, default="", allow_blank=True)


class PromoteSerializer(serializers.Serializer[Any]):
    to = serializers.ChoiceField([States.SHADOW, States.CANARY, States.ACTIVE])
    share = serializers.FloatField(
        required=False, default=None, allow_null=True, help_text="Of a canary: 0 to 1 of the racks"
    )


class RetireSerializer(serializers.Serializer[Any]):
    why = serializers.CharField(max_length=500)


class ProblemSerializer(serializers.Serializer[Any]):
    """A fault in a document. Lines and columns count from 1; 0: none."""

    message = serializers.CharField()
    line = serializers.IntegerField()
    column = serializers.IntegerField()
    field = serializers.CharField()
    hint = serializers.CharField()


class CheckedSerializer(serializers.Serializer[Any]):
    """Whether a text is a valid document. Kinds add fields of its content."""

    problems = ProblemSerializer(many=True, help_text="None where it is one")


class VersionSummarySerializer(serializers.Serializer[Any]):
    """A version without its text."""

    name = serializers.CharField()
    number = serializers.IntegerField()
    state = serializers.ChoiceField(States.choices)
    share = serializers.FloatField(allow_null=True)
    note = serializers.CharField()
    author = serializers.CharField()
    reviewer = serializers.CharField()
    created_at = serializers.DateTimeField()
    changed_at = serializers.DateTimeField()
    activated_at = serializers.DateTimeField(allow_null=True)


class ChangeSerializer(serializers.Serializer[Any]):
    path = serializers.CharField()
    old = serializers.JSONField()
    new = serializers.JSONField()


class DiffSerializer(serializers.Serializer[Any]):
    text = serializers.CharField(help_text="A unified diff")
    changes = ChangeSerializer(many=True, help_text="Fields that say something else")


def summary_of(version: Version) -> dict[str, Any]:
    return dict(VersionSummarySerializer(version).data)


# --- What kinds use ------------------------------------------------------------------------------


def checked(kind: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    """Return the body of a request as ``kind`` has it. Raises ValidationError."""
    given = kind(data=request.data)
    given.is_valid(raise_exception=True)
    found: dict[str, Any] = given.validated_data
    return found


def drafted(
    kind: Kind[Any], serializer: type[serializers.BaseSerializer[Any]], request: Request
) -> Response:
    """Add a version, as a draft, of the document that the body's text names."""
    body = checked(DraftSerializer, request)
    version = life.draft(kind, actor_of(request), body["text"], note=body["note"])
    return Response(serializer(version).data, status=status.HTTP_201_CREATED)


# --- Views ---------------------------------------------------------------------------------------


class _KindView(APIView):
    kind: ClassVar[Kind[Any]]
    serializer: ClassVar[type[serializers.BaseSerializer[Any]]]
    permission_classes: tuple[type[BasePermission], ...] = (ViewsFleetOrEditsPolicies,)

    def versions_of(self, name: str) -> list[Version]:
        rows = self.kind.rows.filter(name=name).order_by("-number")
        found = list(rows.defer("text"))
        if not found:
            raise Http404(f"there is no {self.kind.noun} {name}")
        return found

    def version(self, name: str, number: int) -> Version:
        found: Version | None = self.kind.rows.filter(name=name, number=number).first()
        if found is None:
            raise Http404(f"{self.kind.noun} {name} has no version {number}")
        return found


class _CheckView(_KindView):
    permission_classes = (ViewsFleet,)
    parser_classes = (JSONParser, YamlParser)
    #: what a text says, by field of the answer; and the same where it cannot be read
    says: ClassVar[Callable[[str], Mapping[str, Any]]]
    nothing: ClassVar[Mapping[str, Any]]

    def post(self, request: Request) -> Response:
        """Check whether a text is such a document; if not, list its faults with their places."""
        text = checked(DraftSerializer, request)["text"]
        try:
            found = type(self).says(text)
        except DocumentError as error:
            return Response({"problems": list(map(_problem, error.problems)), **self.nothing})
        return Response({"problems": [], **found})


def _problem(problem: FieldError) -> dict[str, Any]:
    found = msgspec.structs.asdict(problem)
    return {name: found[name] for name in ("message", "line", "column", "field", "hint")}


class _VersionsView(_KindView):
    def get(self, request: Request, name: str) -> Response:
        """List all versions, the newest first."""
        return Response(VersionSummarySerializer(self.versions_of(name), many=True).data)


class _VersionView(_KindView):
    def get(self, request: Request, name: str, number: int) -> Response:
        """Show a version with its text."""
        return Response(type(self).serializer(self.version(name, number)).data)


class _DiffView(_KindView):
    def get(self, request: Request, name: str) -> Response:
        """Compare two versions: their texts, and their fields."""
        old, new = (self.version(name, _number(request, key)) for key in ("old", "new"))
        text = diff.text_diff(old.text, new.text, old_name=str(old), new_name=str(new))
        changes = [dataclasses.asdict(each) for each in diff.changes(old.text, new.text)]
        return Response(DiffSerializer({"text": text, "changes": changes}).data)


class _PromoteView(_KindView):
    def post(self, request: Request, name: str, number: int) -> Response:
        """Bring a version to shadow, canary or active. Its author cannot have it count."""
        body = checked(PromoteSerializer, request)
        version = life.promote(
            self.kind, actor_of(request), self.version(name, number), body["to"],
            share=body["share"],
        )  # fmt: skip
        return Response(type(self).serializer(version).data)


class _RetireView(_KindView):
    def post(self, request: Request, name: str, number: int) -> Response:
        """Take a version out of use."""
        why = checked(RetireSerializer, request)["why"]
        version = life.retire(self.kind, actor_of(request), self.version(name, number), why=why)
        return Response(type(self).serializer(version).data)


def _number(request: Request, key: str) -> int:
    number = whole_number(request.query_params.get(key, ""), most=10**9)
    if number is None:
        raise ValidationError({key: "Give the number of a version."})
    return number


def routes(
    kind: Kind[Any],
    plural: str,
    serializer: type[serializers.BaseSerializer[Any]],
    *,
    says: Callable[[str], Mapping[str, Any]],
    nothing: Mapping[str, Any],
    says_serializer: type[serializers.Serializer[Any]] = CheckedSerializer,
) -> list[URLPattern]:
    """Return the URLs of a kind, in collection ``plural``. ``says``: see :class:`_CheckView`."""
    numbers = [OpenApiParameter(key, OpenApiTypes.INT, required=True) for key in ("old", "new")]
    slug = kind.noun
    one = f"{plural}/<slug:name>"
    version = f"{one}/versions/<int:number>"

    def view(base: type[_KindView], verb: str, operation: str, **schema: Any) -> Any:
        given = {"kind": kind, "serializer": serializer}
        if base is _CheckView:
            given |= {"says": staticmethod(says), "nothing": nothing}
        made = type(f"{kind.noun.title().replace('-', '')}{base.__name__[1:]}", (base,), given)
        named = f"{plural.replace('-', '_')}_{operation}"
        described = extend_schema(operation_id=named, **schema)
        return extend_schema_view(**{verb: described})(made).as_view()  # type: ignore[attr-defined]

    return [
        path(
            f"{slug}-check",
            view(_CheckView, "post", "check", request=DraftSerializer, responses=says_serializer),
            name=f"{slug}-check",
        ),
        path(
            f"{one}/versions",
            view(_VersionsView, "get", "versions", responses=VersionSummarySerializer(many=True)),
            name=f"{slug}-versions",
        ),
        path(
            f"{one}/diff",
            view(_DiffView, "get", "diff", parameters=numbers, responses=DiffSerializer),
            name=f"{slug}-diff",
        ),
        path(
            version,
            view(_VersionView, "get", "version", responses=serializer),
            name=f"{slug}-version",
        ),
        path(
            f"{version}/promote",
            view(_PromoteView, "post", "promote", request=PromoteSerializer, responses=serializer),
            name=f"{slug}-promote",
        ),
        path(
            f"{version}/retire",
            view(_RetireView, "post", "retire", request=RetireSerializer, responses=serializer),
            name=f"{slug}-retire",
        ),
    ]
