"""The fields of each resource. The models' ``clean()`` and constraints hold on every write."""

from __future__ import annotations

import copy
from typing import Any, TypeVar, cast

from django.core.exceptions import NON_FIELD_ERRORS
from django.core.exceptions import ValidationError as ModelValidationError
from django.db.models import Model
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.fields import get_error_detail
from rest_framework.settings import api_settings

from fleet.api.fields import KeyField
from fleet.models import (
    CoolingZone,
    Gpu,
    HardwareModel,
    Link,
    Meter,
    Node,
    PowerDomain,
    Rack,
    Site,
    StorageEndpoint,
)

_Row = TypeVar("_Row", bound=Model)


# A comment, since a docstring would be the description of each of them in OpenAPI.
# A row with its relations by key; ``key`` is what others call it.
class _RowSerializer(serializers.ModelSerializer[_Row]):
    key = serializers.SerializerMethodField(help_text="What relations to it are given by")

    serializer_related_field = KeyField

    @extend_schema_field(str)
    def get_key(self, row: Model) -> str:
        return str(row)

    def get_validators(self) -> list[Any]:
        # full_clean() checks what is unique together, and says it in the model's words.
        return []

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check the whole row by its model. The view has locked the rest."""
        model: Any = self.Meta.model
        row = model() if self.instance is None else copy.copy(self.instance)
        for name, value in attrs.items():
            setattr(row, name, value)
        try:
            row.full_clean()
        except ModelValidationError as error:
            raise serializers.ValidationError(_by_field(error)) from error
        return attrs


def _by_field(error: ModelValidationError) -> dict[str, Any]:
    """Return the messages by field; of the row as a whole under the REST framework's name."""
    detail = cast("dict[str, Any]", get_error_detail(error))
    whole = detail.pop(NON_FIELD_ERRORS, None)
    return detail if whole is None else {**detail, api_settings.NON_FIELD_ERRORS_KEY: whole}


class SiteSerializer(_RowSerializer[Site]):
    class Meta:
        model = Site
        fields = ["id", "key", "name", "budget_w", "time_zone"]


class PowerDomainSerializer(_RowSerializer[PowerDomain]):
    usable_w = serializers.FloatField(read_only=True, help_text="Derated capacity, W")

    class Meta:
        model = PowerDomain
        fields = [
            "id",
            "key",
            "site",
            "name",
            "kind",
            "parent",
            "capacity_w",
            "derating",
            "usable_w",
            "pair",
            "side",
        ]


class CoolingZoneSerializer(_RowSerializer[CoolingZone]):
    class Meta:
        model = CoolingZone
        fields = ["id", "key", "site", "name", "kind", "capacity_w", "supply_c"]


class StorageEndpointSerializer(_RowSerializer[StorageEndpoint]):
    class Meta:
        model = StorageEndpoint
        fields = ["id", "key", "site", "name", "capacity_bytes_per_s"]


class RackSerializer(_RowSerializer[Rack]):
    class Meta:
        model = Rack
        fields = [
            "id",
            "key",
            "site",
            "name",
            "row",
            "position",
            "height_u",
            "budget_w",
            "feed_a",
            "feed_b",
            "cooling_zone",
        ]


class NodeSerializer(_RowSerializer[Node]):
    labels = serializers.DictField(child=serializers.CharField(allow_blank=True), required=False)

    class Meta:
        model = Node
        fields = [
            "id",
            "key",
            "name",
            "rack",
            "position_u",
            "height_u",
            "model",
            "switch_domain",
            "storage_endpoint",
            "labels",
        ]


class GpuSerializer(_RowSerializer[Gpu]):
    slices = serializers.ListField(
        child=serializers.CharField(max_length=20),
        required=False,
        help_text="MIG profiles that it is split into, in the order of NVML; empty: it is whole",
    )

    class Meta:
        model = Gpu
        fields = ["id", "key", "node", "index", "model", "uuid", "slices"]


class LinkSerializer(_RowSerializer[Link]):
    class Meta:
        model = Link
        fields = [
            "id",
            "key",
            "name",
            "kind",
            "site",
            "rack",
            "node",
            "peer_site",
            "capacity_bits_per_s",
            "latency_s",
            "control_share",
        ]


class MeterSerializer(_RowSerializer[Meter]):
    class Meta:
        model = Meter
        fields = ["id", "key", "name", "kind", "power_domain", "cooling_zone", "rack", "node"]


class HardwareModelSerializer(_RowSerializer[HardwareModel]):
    class Meta:
        model = HardwareModel
        fields = [
            "id",
            "key",
            "name",
            "kind",
            "vendor",
            "rated_w",
            "idle_w",
            "slowdown_c",
            "slowdown_mem_c",
            "shutdown_c",
            "sm_max_mhz",
            "mem_bytes",
            "cores",
        ]
