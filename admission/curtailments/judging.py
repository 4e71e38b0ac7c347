"""What was kept of curtailments that are over: by meters, and what jobs lost meanwhile."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Q

from admission.core.curtailment import Kept, kept
from admission.core.directives.book import Kind
from admission.core.placement.elastic import draw_of
from admission.core.request import placement_from_json
from admission.curtailments import metered
from admission.curtailments.models import Curtailment
from admission.directives.models import Directive
from admission.jobs import resolution
from fleet import snapshot
from fleet.snapshot import FleetArrays

__all__ = ["judge_due"]

#: Readings are stored by then.
_SETTLED = timedelta(seconds=30)
#: Nothing older is taken up: its samples are rolled up by then.
_MOST_BACK = timedelta(hours=12)
_AT_ONCE = 20
_LOSING = (Kind.PAUSE, Kind.SET_BATCH_SCALE, Kind.SET_POWER_CAP)


def judge_due(now: datetime) -> int:
    """Judge the curtailments that are over; return how many there were."""
    due = Curtailment.objects.unjudged(now - _SETTLED).order_by("ends_at")[:_AT_ONCE]
    fleet, count = snapshot.current(), 0
    for row in due:
        row.result, row.judged_at = _result(row, fleet, now), now
        # Of two that judge at once the first counts.
        count += Curtailment.objects.filter(pk=row.pk, judged_at=None).update(
            result=row.result, judged_at=now
        )
    return count


def _result(row: Curtailment, fleet: FleetArrays, now: datetime) -> dict[str, object]:
    found, meters, of = Kept.unread((row.ends_at - row.starts_at).total_seconds()), 0, ""
    if row.site in fleet.sites.index_by_name and row.ends_at > now - _MOST_BACK:
        start, end = row.starts_at.timestamp(), row.ends_at.timestamp()
        load = metered.read(fleet, row.site, start, end)
        meters, of = load.meters, load.of
        found = kept(
            load.times, load.watts, target_w=row.target_w, baseline_w=row.baseline_w,
            start=start, end=end, every_s=metered.EVERY_S,
        )  # fmt: skip
    return {
        **found.as_data(),
        "meters": meters,
        "metered": of,
        "lost_gpu_h": round(_lost_gpu_h(row, fleet), 3),
    }


def _lost_gpu_h(row: Curtailment, fleet: FleetArrays) -> float:
    """Return the work that jobs lost by being told to draw less at its time, GPU h. One query.

    By what directives told them, whoever gave those: pauses whole, batches by their scale, caps by
    the law of power and speed.
    """
    told = Directive.objects.filter(kind__in=_LOSING, issued_at__lt=row.ends_at)
    told = told.exclude(ended_at__lte=row.starts_at).exclude(
        Q(ended_at=None) & Q(expires_at__lte=row.starts_at)
    )
    lost_gpu_s: dict[int, float] = {}
    for each in told.select_related("attempt__phase__job"):
        begin = max(each.issued_at, row.starts_at)
        end = min(each.ended_at or each.expires_at, row.ends_at)
        seconds = (end - begin).total_seconds()
        gpus, share = _share_lost(each, row.site, fleet)
        # One that pauses as a smaller one loses what it would have done as such no more than once.
        lost = lost_gpu_s.get(each.attempt_id, 0.0)
        lost_gpu_s[each.attempt_id] = max(lost, gpus * share * max(seconds, 0.0))
    return sum(lost_gpu_s.values()) / 3600.0


def _share_lost(each: Directive, site: str, fleet: FleetArrays) -> tuple[int, float]:
    """Return the GPUs that an attempt has at a site, and the share of its speed that it loses."""
    placement = placement_from_json(each.attempt.placement, fleet)
    gpus = [g for g in placement.gpus if _site_of(fleet, g) == site]
    if not gpus:
        return 0, 0.0
    if each.kind == Kind.PAUSE:
        return len(gpus), 1.0
    if each.value is None:
        return len(gpus), 0.0
    if each.kind == Kind.SET_BATCH_SCALE:
        return len(gpus), 1.0 - each.value
    request = resolution.request_of(each.attempt.phase)
    draw = draw_of(fleet, int(fleet.gpus.model[gpus[0]]), 0, request)
    return len(gpus), 1.0 - draw.speed(each.value)


def _site_of(fleet: FleetArrays, gpu: int) -> str:
    rack = fleet.nodes.rack[fleet.gpus.node[gpu]]
    return str(fleet.sites.names[fleet.racks.site[rack]])
