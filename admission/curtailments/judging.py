"""What was kept of curtailments that are over: by meters, and what jobs lost meanwhile."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Max, Q

from admission.core.curtailment import Kept, held_from, kept
from admission.core.curtailment.baseline import LEAST_S, SETTLES_S, WINDOW_S
from admission.core.directives.book import Kind
from admission.core.request import placement_from_json
from admission.curtailments import metered
from admission.curtailments.models import Curtailment
from admission.directives.models import Directive
from admission.goodput.limited import lost_to_limits_s
from fleet import snapshot
from fleet.snapshot import FleetArrays
from telemetry.spans import Span

__all__ = ["judge_due"]

#: Readings are stored by then.
_SETTLED = timedelta(seconds=30)
#: Nothing older is taken up: its samples are rolled up by then.
_MOST_BACK = timedelta(hours=12)
_AT_ONCE = 20


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
    lost_gpu_h = round(_lost_gpu_h(row, fleet), 3)
    return {
        **found.as_data(),
        "meters": meters,
        "metered": of,
        "lost_gpu_h": lost_gpu_h,
        "lost_as_said": _is_as_said(row, lost_gpu_h),
    }


def _is_as_said(row: Curtailment, lost_gpu_h: float) -> bool | None:
    """Say whether the work that was lost lies in the band that was said; None: it cannot be told.

    What ended before its time was answered for a longer one.
    """
    said = row.estimate
    if not said or row.canceled_at is not None:
        return None
    return bool(said["lost_low_gpu_h"] <= lost_gpu_h <= said["lost_high_gpu_h"])


def _lost_gpu_h(row: Curtailment, fleet: FleetArrays) -> float:
    """Return the work that jobs lost while it was held, GPU h, beyond what they lost before.

    By what throttling at power limits and pauses took, whoever had set those, and by smaller
    batches.
    """
    site = fleet.sites.index_by_name.get(row.site)
    if site is None:
        return 0.0
    racks = fleet.racks.site == site
    held = Span(held_from(row.announced_at, row.starts_at).timestamp(), row.ends_at.timestamp())
    lost_s = lost_to_limits_s(held, fleet, racks)
    before = _before(row, held)
    if before.length_s >= LEAST_S:
        lost_s -= lost_to_limits_s(before, fleet, racks) * held.length_s / before.length_s
    return (max(lost_s, 0.0) + _lost_by_batches_s(row, fleet)) / 3600.0


def _before(row: Curtailment, held: Span) -> Span:
    """Return the time before in which nothing was asked, as far as a baseline goes back."""
    earlier = Curtailment.objects.filter(site=row.site, starts_at__lt=row.starts_at)
    last = earlier.aggregate(last=Max("ends_at"))["last"]
    since = held.start - WINDOW_S
    if last is not None:
        since = max(since, last.timestamp() + SETTLES_S)
    return Span(min(since, held.start), held.start)


def _lost_by_batches_s(row: Curtailment, fleet: FleetArrays) -> float:
    """Return the work that jobs lost by smaller batches at its time, GPU·s. One query."""
    told = Directive.objects.filter(kind=Kind.SET_BATCH_SCALE, issued_at__lt=row.ends_at)
    told = told.exclude(ended_at__lte=row.starts_at).exclude(
        Q(ended_at=None) & Q(expires_at__lte=row.starts_at)
    )
    return sum(
        _seconds_of(each, row) * _gpus_at(each, row.site, fleet) * (1.0 - (each.value or 1.0))
        for each in told.select_related("attempt")
    )


def _seconds_of(each: Directive, row: Curtailment) -> float:
    begin = max(each.issued_at, row.starts_at)
    end = min(each.ended_at or each.expires_at, row.ends_at)
    return max((end - begin).total_seconds(), 0.0)


def _gpus_at(each: Directive, site: str, fleet: FleetArrays) -> int:
    """Return how many GPUs an attempt has at a site."""
    placement = placement_from_json(each.attempt.placement, fleet)
    return sum(_site_of(fleet, gpu) == site for gpu in placement.gpus)


def _site_of(fleet: FleetArrays, gpu: int) -> str:
    rack = fleet.nodes.rack[fleet.gpus.node[gpu]]
    return str(fleet.sites.names[fleet.racks.site[rack]])
