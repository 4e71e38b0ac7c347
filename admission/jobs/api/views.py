"""``/api/v1/jobs``, ``/queue``, ``/projects``, ``/classes``: for people and pipelines."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, cast

import django_filters
from django.db.models import Prefetch, QuerySet
from django.http import Http404
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics, mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.cost import dear
from accounts.edge.parameters import check_names, whole_number
from accounts.edge.parsers import JSONParser
from accounts.models import User
from accounts.permissions import (
    ViewsFleet,
    ViewsFleetOrEditsPolicies,
    ViewsFleetOrSubmitsJobs,
)
from accounts.roles import Capability
from accounts.visibility import Visibility
from admission.core.per_user import PerUser
from admission.core.sharing import Stated
from admission.cycle import live
from admission.jobs import actions, catalog, classes, elements, projects, submission, unlocking
from admission.jobs.api import answers
from admission.jobs.api.errors import refusal
from admission.jobs.api.serializers import (
    CancelElementsSerializer,
    ClassVersionSerializer,
    DryRunAnswerSerializer,
    ExplanationSerializer,
    HoldJobSerializer,
    JobAmendmentSerializer,
    JobDetailSerializer,
    JobEventSerializer,
    JobPrioritySerializer,
    JobSerializer,
    PhaseSerializer,
    ProjectSerializer,
    QueueSerializer,
    SchedulingClassSerializer,
    UserLimitsSerializer,
)
from admission.jobs.catalog import CLASSES
from admission.jobs.classes import SchedulingClass
from admission.jobs.models import (
    ClassVersion,
    Dependency,
    Job,
    JobEvent,
    Phase,
    Project,
    UserLimits,
)
from admission.jobs.projects import Use
from admission.jobs.submission import Conflict, OverLimit
from admission.learned import shares, throughput
from admission.learned.shares import Standing
from admission.policy.catalog import policy_in_force
from admission.queue import queue_status
from fleet.api.actors import SeeingView, actor_of
from headroom.jobs import reading
from headroom.jobs.reading import JSON, MOST_BYTES, YAML
from headroom.jobs.schema import job_spec_schema
from policies.documents.api import DraftSerializer, YamlParser, drafted

_SLUG = "[a-z0-9][a-z0-9._-]{0,199}"
#: One page of the queue.
_MOST_QUEUED = 1_000
_SPEC_BODY = {
    "application/json": {"$ref": "#/components/schemas/JobSpecJobSpec"},
    "application/yaml": {"$ref": "#/components/schemas/JobSpecJobSpec"},
}


class JobFilter(django_filters.FilterSet):  # type: ignore[misc]
    """``waiting_for``: the token of a dominant reason. ``open``: 1 for jobs that are not over."""

    state = django_filters.ChoiceFilter(choices=Job.State.choices)
    job_class = django_filters.CharFilter("job_class")
    project = django_filters.CharFilter("project__name")
    submitted_by = django_filters.CharFilter("submitted_by")
    open = django_filters.ChoiceFilter(choices=[("1", "not over")], method="filter_open")
    waiting_for = django_filters.CharFilter(method="filter_reason", help_text="Token of a reason")

    class Meta:
        model = Job
        fields: list[str] = []

    def filter_open(self, rows: Any, name: str, value: str) -> QuerySet[Job]:
        found: QuerySet[Job] = rows.open()
        return found

    def filter_reason(self, rows: Any, name: str, value: str) -> QuerySet[Job]:
        waiting = Phase.objects.pending().filter(reason=value)
        found: QuerySet[Job] = rows.filter(pk__in=waiting.values("job_id"))
        return found


# --- Bodies that are specifications -------------------------------------------------------------


class RawBody(TypedDict):
    """A body as it was sent: the contract reads it."""

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


# --- Jobs ----------------------------------------------------------------------------------------


class JobViewSet(
    SeeingView, mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Job]
):
    """Jobs, the newest first. Who submits jobs sees those of the own projects."""

    queryset = Job.objects.all()
    serializer_class = JobSerializer
    permission_classes = (ViewsFleetOrSubmitsJobs,)
    filterset_class = JobFilter
    lookup_field = "name"
    lookup_value_regex = _SLUG
    # Many are submitted at one instant, so time alone would not tell them apart.
    cursor_ordering = ("-submitted_at", "-id")

    def get_queryset(self) -> QuerySet[Job]:
        """The jobs that the user may see."""
        if getattr(self, "swagger_fake_view", False):  # nobody asks while the schema is made
            return Job.objects.none()
        rows = Job.objects.visible_to(actor_of(self.request)).select_related("project")
        if self.action != "list":
            return rows
        # An array may have ten thousand elements: in lists it is told in numbers alone.
        return rows.prefetch_related(Prefetch("phases", Phase.objects.filter(element=None)))

    def paginate_queryset(self, queryset: Any) -> list[Any] | None:
        """Return a page of jobs, and count the elements of those that are arrays."""
        page: list[Any] | None = super().paginate_queryset(queryset)
        self._counts = elements.counts_of(page or ())
        return page

    def get_serializer_context(self) -> dict[str, Any]:
        """With the elements of arrays in numbers."""
        return {**super().get_serializer_context(), "counts": getattr(self, "_counts", {})}

    def get_throttles(self) -> list[Any]:
        """Return the throttles: submissions have limits of their own."""
        return [] if self.action == "create" else cast(list[Any], super().get_throttles())

    def get_parsers(self) -> list[Any]:
        """Return the parsers: specifications have their own, all else is JSON."""
        if getattr(self, "action_map", {}).get("post") == "create":
            return [parser() for parser in PARSERS]
        return cast(list[Any], super().get_parsers())

    @extend_schema(
        parameters=[
            OpenApiParameter("dry_run", OpenApiTypes.STR, enum=["1"],
                             description="1: say what would become of it, and take nothing"),
            OpenApiParameter("Idempotency-Key", OpenApiTypes.STR, OpenApiParameter.HEADER,
                             description="The same key answers with the same job"),
        ],
        request=_SPEC_BODY,
        responses={200: DryRunAnswerSerializer, 201: JobSerializer},
    )  # fmt: skip
    def create(self, request: Request) -> Response:
        """Submit a job: 201, or 200 where the same submission came before."""
        try:
            return self._submitted(request)
        except (Conflict, OverLimit) as error:
            return refusal(error)

    def _submitted(self, request: Request) -> Response:
        # No parser is asked where there is no body.
        sent = cast(RawBody, request.data or {"body": b"", "content_type": reading.JSON})
        spec = reading.read(sent["body"], sent["content_type"])
        now, user = timezone.now(), actor_of(request)
        if request.query_params.get("dry_run", "") not in ("", "0"):
            return Response(_dry_run(submission.try_out(spec, user, now), self.visibility))
        key = request.headers.get("Idempotency-Key", "")[:200]
        done = submission.submit(spec, user, now=now, idempotency_key=key)
        code = status.HTTP_201_CREATED if done.created else status.HTTP_200_OK
        return Response(answers.job(done.job, done.phases), status=code)

    @extend_schema(responses=JobDetailSerializer)
    def retrieve(self, request: Request, name: str) -> Response:
        """Show a job with its phases and attempts."""
        job = self.get_object()
        return self._shown(job)

    def _shown(self, job: Job) -> Response:
        phases = Prefetch("phases", elements.phases_shown(job).prefetch_related("attempts"))
        # Those of single elements may be ten thousand: explanations tell them.
        of_all = Prefetch("dependencies", Dependency.objects.filter(element=None))
        rows = Job.objects.select_related("project").prefetch_related(phases, of_all)
        is_whole = Job.objects.whole_for(actor_of(self.request)).filter(pk=job.pk).exists()
        found = rows.get(pk=job.pk)
        context = {
            "is_whole": is_whole,
            "visibility": self.visibility,
            "counts": elements.counts_of([found]),
        }
        return Response(JobDetailSerializer(found, context=context).data)

    @extend_schema(request=CancelElementsSerializer, responses=JobDetailSerializer)
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, name: str) -> Response:
        """End a job, or elements of an array. Running phases are told to stop."""
        given = _checked(CancelElementsSerializer, request)
        return self._done(actions.cancel, name, why=given["why"], only=given["elements"])

    @extend_schema(request=HoldJobSerializer, responses=JobDetailSerializer)
    @action(detail=True, methods=["post"])
    def hold(self, request: Request, name: str) -> Response:
        """Let none of its phases begin. Running ones go on."""
        return self._done(actions.hold, name, why=_checked(HoldJobSerializer, request)["why"])

    @extend_schema(request=None, responses=JobDetailSerializer)
    @action(detail=True, methods=["post"])
    def release(self, request: Request, name: str) -> Response:
        """Let its phases begin again."""
        return self._done(actions.release, name)

    @extend_schema(request=HoldJobSerializer, responses=JobDetailSerializer)
    @action(detail=True, methods=["post"])
    def waive(self, request: Request, name: str) -> Response:
        """Let it begin without what it waits for of other jobs."""
        why = _checked(HoldJobSerializer, request)["why"]
        return self._done(unlocking.waive, name, why=why)

    @extend_schema(request=JobPrioritySerializer, responses=JobDetailSerializer)
    @action(detail=True, methods=["post"])
    def priority(self, request: Request, name: str) -> Response:
        """Give it another priority. Raising it above 0 takes an operator."""
        priority = _checked(JobPrioritySerializer, request)["priority"]
        return self._done(actions.set_priority, name, priority=priority)

    @extend_schema(request=JobAmendmentSerializer, responses=JobDetailSerializer)
    @action(detail=True, methods=["post"])
    def amend(self, request: Request, name: str) -> Response:
        """Change the request of a waiting phase, such as a counterfactual says."""
        change = _checked(JobAmendmentSerializer, request)
        phase = change.pop("phase")
        return self._done(actions.amend, name, phase=phase, change=change)

    def _done(self, act: Callable[..., Job], name: str, **given: Any) -> Response:
        user = actor_of(self.request)
        visible = Job.objects.visible_to(user).filter(name=name)
        job = (visible & Job.objects.changeable_by(user)).first()
        if job is None:
            raise Http404
        try:
            changed = act(job, user=user, now=timezone.now(), **given)
        except Conflict as error:
            return refusal(error)
        return self._shown(changed)

    @extend_schema(responses=ExplanationSerializer)
    @action(detail=True)
    @dear("it to jobs with fewer phases that wait")
    def explain(self, request: Request, name: str) -> Response:
        """Say why it does not run, and under which changes it would start now."""
        job = self.get_object()
        keys = {f"{job.name}/{phase.name}": phase for phase in _waiting(job)}
        pending_statuses = queue_status.pending_statuses(list(keys))
        like_it = _elements_like_it(job, keys)
        found = [
            {
                **explained,
                **(
                    answers.told(pending_statuses[key], self.visibility)
                    if key in pending_statuses
                    else {}
                ),
            }
            for key, phase in keys.items()
            if (explained := _explained(key, phase, self.visibility, like_it[key])) is not None
        ]
        answer = {
            "job": job.name,
            "state": job.state,
            "at": timezone.now(),
            "phases": found,
            "stays": _stays(job),
            "scaling": _scaling(job),
        }
        return Response(ExplanationSerializer(answer).data)


class PhaseFilter(django_filters.FilterSet):  # type: ignore[misc]
    """``element``: of one element of an array, by its index."""

    state = django_filters.ChoiceFilter(choices=Phase.State.choices)
    element = django_filters.NumberFilter("element")

    class Meta:
        model = Phase
        fields: list[str] = []


class JobPhasesView(SeeingView, generics.ListAPIView[Phase]):
    """All phases of a job: of an array, element by element."""

    queryset = Phase.objects.all()
    serializer_class = PhaseSerializer
    permission_classes = (ViewsFleet,)
    filterset_class = PhaseFilter
    cursor_ordering = ("element", "index")

    def get_queryset(self) -> QuerySet[Phase]:
        """The phases of a job that the user may see."""
        if getattr(self, "swagger_fake_view", False):  # nobody asks while the schema is made
            return Phase.objects.none()
        visible = Job.objects.visible_to(actor_of(self.request))
        return get_object_or_404(visible, name=self.kwargs["name"]).phases.all()


class JobEventsView(SeeingView, generics.ListAPIView[JobEvent]):
    """The events of a job, the newest first."""

    queryset = JobEvent.objects.all()
    serializer_class = JobEventSerializer
    permission_classes = (ViewsFleet,)
    cursor_ordering = ("-at", "-id")
    veiled_fields = ("text", "data")

    def get_queryset(self) -> QuerySet[JobEvent]:
        """The events of a job that the user may see."""
        if getattr(self, "swagger_fake_view", False):  # nobody asks while the schema is made
            return JobEvent.objects.none()
        visible = Job.objects.visible_to(actor_of(self.request))
        job = get_object_or_404(visible, name=self.kwargs["name"])
        return job.events.all()


def _dry_run(prepared: submission.Prepared, visibility: Visibility) -> dict[str, Any]:
    answer = {
        "dry_run": True,
        "project": prepared.project.name,
        "job_class": prepared.resolved.spec.job_class,
        "at": timezone.now(),
        "phases": answers.dry_run(prepared, visibility),
    }
    return dict(DryRunAnswerSerializer(answer).data)


def _waiting(job: Job) -> list[Phase]:
    """Return the phases that wait; of an array the first of each that its elements have."""
    waiting = job.phases.pending()
    if job.elements is None:
        return list(waiting.order_by("index"))
    keys = {row.key: row for row in waiting.select_related("job").order_by("index", "element")}
    found: dict[int, Phase] = {}
    for key, told in queue_status.pending_statuses(list(keys)).items():
        # What the queue is listed with comes before those that it stands for.
        if told.elements > 1 or keys[key].index not in found:
            found[keys[key].index] = keys[key]
    return list(found.values())


def _stays(job: Job) -> list[dict[str, str]]:
    """Return why phases that run do not grow. Of an array its elements are too many to tell."""
    if job.elements is not None:
        return []
    names = job.phases.filter(state=Phase.State.RUNNING).order_by("index").values_list("name")
    keys = {f"{job.name}/{name}": name for (name,) in names}
    told = queue_status.stays(list(keys))
    return [{"phase": keys[key], "sentence": sentence} for key, sentence in told.items()]


def _scaling(job: Job) -> list[dict[str, Any]]:
    """Return what elastic phases did at each size. Of an array there are too many to tell."""
    if job.elements is not None:
        return []
    rows = job.phases.exclude(state__in=Phase.OVER).order_by("index").values_list("pk", "name")
    names = dict(rows)
    return [
        {
            "phase": names[pk], "unit": curve.unit, "sizes": curve.points,
            "sentence": curve.told(),
        }
        for pk, curve in throughput.curves_of_phases(names).items()
    ]  # fmt: skip


def _elements_like_it(job: Job, keys: Mapping[str, Phase]) -> dict[str, int]:
    """Return how many elements wait for the same as each phase."""
    if job.elements is None:
        return dict.fromkeys(keys, 1)
    left = elements.counts_of([job])[job.pk]["left"]
    waiting = Counter(job.phases.pending().values_list("index", flat=True))
    return {key: waiting[row.index] + left for key, row in keys.items()}


def _explained(
    key: str, phase: Phase, visibility: Visibility, like_it: int
) -> dict[str, Any] | None:
    try:
        return answers.explained(phase, live.explain(key), visibility, elements=like_it)
    except KeyError:  # it has begun, or came after the last look at the queue
        return None


class QueueView(APIView):
    """The phases that wait, in order."""

    permission_classes = (ViewsFleet,)

    @extend_schema(
        parameters=[
            OpenApiParameter("first", OpenApiTypes.INT, description="Position, from 1"),
            OpenApiParameter("count", OpenApiTypes.INT, description="At most 1000; 100 by default"),
        ],
        responses=QueueSerializer,
        operation_id="queue_retrieve",
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        """Show the queue as the last cycle left it. Jobs of other projects have no names."""
        check_names(request.query_params, ("first", "count", "format"))
        first, count = _window(request)
        last = queue_status.read()
        keys = queue_status.order(first - 1, count)
        answer = {
            "at": answers.at(last.at) if last else None,
            "waiting": last.waiting if last else 0,
            "running": last.running if last else 0,
            "counts": last.counts if last else (),
            "queue": _lines(keys, first, Visibility(actor_of(request))),
        }
        return Response(QueueSerializer(answer).data)


def _window(request: Request) -> tuple[int, int]:
    found = []
    for name, usual, most in (("first", 1, 10**9), ("count", 100, _MOST_QUEUED)):
        text = request.query_params.get(name, str(usual))
        number = whole_number(text, least=1, most=most)
        if number is None:
            raise serializers.ValidationError({name: f"Give a whole number from 1 to {most}."})
        found.append(number)
    return found[0], found[1]


def _lines(keys: list[str], first: int, visibility: Visibility) -> list[dict[str, Any]]:
    names = {key.rpartition("/")[0] for key in keys}
    rows = Phase.objects.pending().filter(job__name__in=names).select_related("job__project")
    by_key = {row.key: row for row in rows}
    visibility.seen(keys)
    pending_statuses = queue_status.pending_statuses(keys)
    visibility.read(
        each.sentence for found in pending_statuses.values() for each in found.reasons[:1]
    )
    return [
        answers.queued(position, row, pending_statuses.get(key), visibility)
        for position, key in enumerate(keys, first)
        if (row := by_key.get(key)) is not None
    ]


class ProjectViewSet(
    mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Project]
):
    """Projects with members, quota, share and present use. Those that one may see."""

    queryset = Project.objects.prefetch_related("members")
    serializer_class = ProjectSerializer
    permission_classes = (ViewsFleetOrEditsPolicies,)
    lookup_field = "name"
    lookup_value_regex = _SLUG
    cursor_ordering = ("name",)

    def get_queryset(self) -> QuerySet[Project]:
        """The projects that the user may know of."""
        if getattr(self, "swagger_fake_view", False):  # nobody asks while the schema is made
            return Project.objects.none()
        visible = Project.objects.visible_to(actor_of(self.request))
        return visible.prefetch_related("members")

    def get_serializer_context(self) -> dict[str, Any]:
        """With use and share of each project: three queries, when they are first asked for."""
        found = super().get_serializer_context()
        return {
            **found,
            "uses": _Uses(),
            "standings": _Standings(),
            "per_user": _PerUser(),
        }

    @extend_schema(responses={201: ProjectSerializer})
    def create(self, request: Request) -> Response:
        """Add a project."""
        project = self._saved(request)
        return Response(self.get_serializer(project).data, status=status.HTTP_201_CREATED)

    def partial_update(self, request: Request, name: str) -> Response:
        """Change quota, share, members or description."""
        self._saved(request, instance=self.get_object(), partial=True)
        return self.retrieve(request)

    def _saved(self, request: Request, **given: Any) -> Project:
        body = self.get_serializer(data=request.data, **given)
        body.is_valid(raise_exception=True)
        saved: Project = body.save(actor=actor_of(request))
        return saved


class UserLimitsView(APIView):
    """The limits of one user on waiting and submitted jobs, over all projects."""

    permission_classes = (ViewsFleetOrEditsPolicies,)

    @extend_schema(responses=UserLimitsSerializer, operation_id="user_limits_retrieve")
    def get(self, request: Request, username: str) -> Response:
        """Show a user's limits, and their present use. Operators see everybody's."""
        asks = actor_of(request)
        if username != asks.get_username() and not asks.can(Capability.EDIT_POLICIES):
            raise Http404
        return Response(UserLimitsSerializer(_limits_of(username)).data)

    @extend_schema(
        request=UserLimitsSerializer,
        responses=UserLimitsSerializer,
        operation_id="user_limits_partial_update",
    )
    def patch(self, request: Request, username: str) -> Response:
        """Change a user's limits. null: as is usual."""
        row = _limits_of(username)
        body = UserLimitsSerializer(row, data=request.data, partial=True)
        body.is_valid(raise_exception=True)
        projects.limit_user(actor_of(request), row, **body.validated_data)
        return Response(UserLimitsSerializer(row).data)


def _limits_of(username: str) -> UserLimits:
    user = get_object_or_404(User, username=username)
    return UserLimits.objects.filter(user=user).first() or UserLimits(user=user)


class _Uses:
    def __init__(self) -> None:
        self._found: dict[int, Use] | None = None

    def __call__(self, project_id: int) -> Use:
        if self._found is None:
            self._found = projects.uses(Project.objects.values_list("pk", flat=True))
        return self._found.get(project_id, Use())


class _PerUser:
    def __init__(self) -> None:
        self._stated: Mapping[str, Stated] | None = None

    def __call__(self, project: str) -> PerUser:
        if self._stated is None:
            self._stated = policy_in_force().shares.projects
        return self._stated.get(project, Stated()).per_user


class _Standings:
    def __init__(self) -> None:
        self._found: dict[str, Standing] = {}

    def __call__(self, project: str) -> Standing:
        if project not in self._found:
            rows, stated = Project.objects.all(), policy_in_force().shares
            self._found = shares.standings(rows, time.time(), stated)
        return self._found[project]


class SchedulingClassViewSet(viewsets.GenericViewSet[ClassVersion]):
    """The scheduling classes in force."""

    queryset = ClassVersion.objects.all()
    serializer_class = SchedulingClassSerializer
    permission_classes = (ViewsFleetOrEditsPolicies,)
    parser_classes = (JSONParser, YamlParser)
    lookup_field = "name"
    lookup_value_regex = _SLUG
    pagination_class = None
    filter_backends: list[Any] = []

    @extend_schema(responses=SchedulingClassSerializer(many=True))
    def list(self, request: Request) -> Response:
        """List all classes."""
        check_names(request.query_params, ("format",))
        return Response(SchedulingClassSerializer(_classes(), many=True).data)

    def retrieve(self, request: Request, name: str) -> Response:
        """Show a class, with its text."""
        for each in _classes():
            if each["name"] == name:
                return Response(SchedulingClassSerializer(each).data)
        raise Http404

    @extend_schema(request=DraftSerializer, responses={201: ClassVersionSerializer})
    def create(self, request: Request) -> Response:
        """Add a version, as a draft, of the class that the text names.

        The body is ``{"text": …, "note": …}`` or, as ``application/yaml``, the text itself. In
        force, it also is for jobs of the class that wait.
        """
        return drafted(CLASSES, ClassVersionSerializer, request)


def says(text: str) -> dict[str, Any]:
    """Return the name in a class's text, for its check."""
    return {"name": classes.parse(text).name}


def _classes() -> list[dict[str, Any]]:
    versions = {row.name: row for row in ClassVersion.objects.active()}
    names = [*classes.built_in(), *sorted(set(versions) - set(classes.built_in()))]
    return [_class(name, versions.get(name)) for name in names]


def _class(name: str, version: ClassVersion | None) -> dict[str, Any]:
    text = version.text if version else classes.built_in_text(name)
    found: SchedulingClass = classes.parse(text)
    return {
        **catalog.as_json(found),
        "text": text,
        "number": version.number if version else 0,
        "author": version.author if version else "",
        "created_at": version.created_at if version else None,
    }


class JobSpecSchemaView(APIView):
    """The JSON schema of a job specification."""

    permission_classes = (ViewsFleet,)

    @extend_schema(responses=OpenApiTypes.OBJECT, operation_id="job_spec_schema_retrieve")
    def get(self, request: Request) -> Response:
        """Return it, in JSON Schema 2020-12."""
        return Response(job_spec_schema(), content_type="application/schema+json")


def _checked(kind: type[serializers.BaseSerializer[Any]], request: Request) -> dict[str, Any]:
    body = kind(data=request.data)
    body.is_valid(raise_exception=True)
    given: dict[str, Any] = body.validated_data
    return given
