"""``/api/v1/throttle-events``: spans in which GPUs were throttled, by cause, and the clock lost."""

from __future__ import annotations

from typing import Any

import django_filters
from django.db.models import QuerySet
from django.utils.decorators import method_decorator
from rest_framework import serializers, viewsets

from accounts.cost import dear_unless_quick
from accounts.edge.parameters import MomentFilter
from accounts.permissions import ViewsFleet
from accounts.visibility import Visibility
from fleet.api.actors import SeeingView, actor_of
from headroom.contracts import ThrottleCause
from telemetry.models import ThrottleEvent
from telemetry.throttle.rules import Severity

CAUSES = [(cause.token, cause.token) for cause in ThrottleCause]
#: What makes a list of events shorter.
NARROW = "since and until, or the site, the rack, the node or the GPU"
SEVERITIES = [(severity.token, severity.token) for severity in Severity]


class ThrottleEventSerializer(serializers.ModelSerializer[ThrottleEvent]):
    cause = serializers.ChoiceField(CAUSES, source="cause_token", read_only=True)
    gpu_index = serializers.IntegerField(source="gpu.index", read_only=True)
    node = serializers.CharField(source="gpu.node.name", read_only=True)
    rack = serializers.CharField(source="gpu.node.rack.name", read_only=True)
    rack_id = serializers.IntegerField(source="gpu.node.rack_id", read_only=True)
    site = serializers.CharField(source="gpu.node.rack.site.name", read_only=True)
    severity = serializers.ChoiceField(SEVERITIES, source="severity_token", read_only=True)
    share = serializers.FloatField(
        allow_null=True, read_only=True, help_text="throttled_s / observed_s; null at first"
    )
    lost_s = serializers.FloatField(
        allow_null=True, read_only=True, help_text="lost_mhz_s / usual_mhz"
    )
    job = serializers.SerializerMethodField(
        allow_null=True, help_text="Null: none, or one that the reader may not see"
    )
    xids = serializers.ListField(
        child=serializers.IntegerField(),
        read_only=True,
        help_text="Xid errors of the GPU while it went on, or a minute before or after",
    )

    class Meta:
        model = ThrottleEvent
        fields = (
            "id",
            "gpu",
            "gpu_index",
            "node",
            "rack",
            "rack_id",
            "site",
            "place",
            "cause",
            "class",
            "severity",
            "opened_at",
            "updated_at",
            "closed_at",
            "readings",
            "share",
            "observed_s",
            "throttled_s",
            "capped_s",
            "sampled_s",
            "usual_mhz",
            "lost_mhz_s",
            "lost_s",
            "energy_j",
            "peak_temp_c",
            "peak_temp_mem_c",
            "peak_power_w",
            "min_sm_mhz",
            "job",
            "xids",
        )
        read_only_fields = fields

    def get_job(self, event: ThrottleEvent) -> str | None:
        visibility: Visibility = self.context["visibility"]
        return event.job.name if event.job and visibility.sees(event.job.name) else None

    def get_fields(self) -> dict[str, Any]:
        # "class" is a word of Python: it cannot be an attribute of this class.
        own = serializers.ChoiceField(
            ThrottleEvent.Class.choices, source="class_token", read_only=True
        )
        self._declared_fields = {**self._declared_fields, "class": own}
        fields: dict[str, Any] = super().get_fields()
        return fields


class ThrottleEventFilter(django_filters.FilterSet):  # type: ignore[misc]
    """``since`` and ``until`` choose the events that touch the span between them."""

    cause = django_filters.ChoiceFilter(choices=CAUSES, method="filter_cause")
    severity = django_filters.ChoiceFilter(
        choices=SEVERITIES, method="filter_severity", help_text="So severe, or worse"
    )
    site = django_filters.CharFilter("gpu__node__rack__site__name", help_text="Name of a site")
    rack = django_filters.NumberFilter("gpu__node__rack_id", help_text="Id of a rack")
    node = django_filters.CharFilter("gpu__node__name", help_text="Name of a node")
    gpu = django_filters.NumberFilter("gpu_id", help_text="Id of a GPU")
    job = django_filters.CharFilter(method="filter_job", help_text="Name of a job")
    open = django_filters.ChoiceFilter(
        choices=[("1", "open"), ("0", "closed")], method="filter_open"
    )
    since = MomentFilter(method="filter_since")
    until = MomentFilter("opened_at", "lt")

    class Meta:
        model = ThrottleEvent
        fields: list[str] = []

    @classmethod
    def get_filters(cls) -> dict[str, Any]:
        # As above: no attribute can be called "class".
        own = django_filters.ChoiceFilter(
            field_name="class", choices=ThrottleEvent.Class.choices, method="filter_class"
        )
        return {**super().get_filters(), "class": own}

    def filter_cause(self, events: Any, name: str, value: str) -> QuerySet[ThrottleEvent]:
        found: QuerySet[ThrottleEvent] = events.filter(cause=ThrottleCause[value.upper()])
        return found

    def filter_class(self, events: Any, name: str, value: str) -> QuerySet[ThrottleEvent]:
        found: QuerySet[ThrottleEvent] = events.of_class(ThrottleEvent.Class(value))
        return found

    def filter_severity(self, events: Any, name: str, value: str) -> QuerySet[ThrottleEvent]:
        found: QuerySet[ThrottleEvent] = events.at_least(Severity[value.upper()])
        return found

    def filter_job(self, events: Any, name: str, value: str) -> QuerySet[ThrottleEvent]:
        # What the reader may not see is as what is not there.
        is_seen = Visibility(actor_of(self.request)).sees(value)
        found: QuerySet[ThrottleEvent] = events.filter(job__name=value if is_seen else "")
        return found

    def filter_open(self, events: Any, name: str, value: str) -> QuerySet[ThrottleEvent]:
        found: QuerySet[ThrottleEvent] = events.filter(closed_at__isnull=value == "1")
        return found

    def filter_since(self, events: Any, name: str, value: Any) -> QuerySet[ThrottleEvent]:
        found: QuerySet[ThrottleEvent] = events.touching_since(value)
        return found


@method_decorator(dear_unless_quick(NARROW), name="list")
class ThrottleEventViewSet(SeeingView, viewsets.ReadOnlyModelViewSet[ThrottleEvent]):
    """Spans in which a GPU was throttled for one cause, the newest first."""

    queryset = ThrottleEvent.objects.with_xids().select_related("gpu__node__rack__site", "job")
    serializer_class = ThrottleEventSerializer
    permission_classes = (ViewsFleet,)
    filterset_class = ThrottleEventFilter
    # Many events open at one instant, so time alone would not tell them apart.
    cursor_ordering = ("-opened_at", "-id")

    def paginate_queryset(self, queryset: Any) -> Any:
        """Return the events of a page, once it is known which of their jobs are seen."""
        page = super().paginate_queryset(queryset)
        self.visibility.seen([event.job.name for event in page or () if event.job])
        return page
