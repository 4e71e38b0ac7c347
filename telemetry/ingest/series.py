"""One series of somebody else's metrics, by whatever protocol, and the field that it maps to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headroom.dcgm import Told, field_of
from telemetry.ingest import semconv

__all__ = ["Series", "as_exported", "may_tell", "told_by"]

_EXPORTED = "exported_"
#: Labels of the workload to an exporter of GPUs; of the exporter itself to who scrapes it.
_OF_THE_WORKLOAD = ("pod", "pod_name")


@dataclass(frozen=True, slots=True)
class Series:
    """A metric with its labels, and its samples as (Unix s, value).

    ``told`` is what the metric means here; None where it is none of ours.
    """

    labels: Mapping[str, str]
    told: Told | None
    samples: Sequence[tuple[float, float]]


def may_tell(metric: str) -> bool:
    """Say whether a metric of this name can map to a field."""
    return field_of(metric) is not None or metric in semconv.METRICS


def told_by(metric: str, labels: Mapping[str, str]) -> Told | None:
    """Return the field for ``metric`` in the contract: by DCGM's names, or OpenTelemetry's."""
    return field_of(metric) or semconv.field_of(metric, labels)


def as_exported(labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels as the exporter gave them, before Prometheus put those of its target first.

    It keeps ``pod`` as ``exported_pod`` beside its own. Where there is none, ``pod`` is most likely
    the exporter's own, which has no GPU.
    """
    own = {name: value for name, value in labels.items() if name not in _OF_THE_WORKLOAD}
    for name, value in labels.items():
        if name.startswith(_EXPORTED):
            own[name.removeprefix(_EXPORTED)] = value
    return own
