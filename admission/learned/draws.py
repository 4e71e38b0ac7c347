"""The measured draw of running attempts, and of a project's image once they end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from admission.allocation import open_attempts
from admission.core.allocation import joint, reservation
from admission.core.allocation.allocations import Allocations, OpenAttempt, at_work_w
from admission.core.allocation.reservation import BIN_EDGES_W, Floats
from admission.core.slices import in_parts
from admission.jobs.models import Attempt
from admission.learned import profiles, throughput
from admission.learned.models import Draw
from admission.policy.catalog import policy_in_force
from fleet import snapshot
from fleet.locks import only_one
from fleet.slicing import holdable
from fleet.snapshot import FleetArrays
from policies import current
from policies.headroom import live

__all__ = ["EVERY_S", "observe"]

#: Attempts are looked at so often, s.
EVERY_S = 20.0
#: Of a longer silence no more is known than this, s.
_MOST_S = 60.0
_LOCK = 0x44524157
_AT_ONCE = 2_000
_BINS = len(BIN_EDGES_W)


@dataclass(frozen=True)
class _Kept:
    """The draw of an attempt so far. ``labels`` are project, image and model."""

    labels: tuple[int, str, str]
    seconds: Floats
    seen_at: float


def observe(now: float) -> int:
    """Note the draw of attempts at ``now`` (Unix s), and learn from those that have ended.

    Returns how many attempts were looked at. Of two calls at once one does nothing.
    """
    with only_one(_LOCK) as mine:
        if not mine:
            return 0
        fleet = snapshot.current()
        held = open_attempts.fresh(fleet)
        noted = _note(held, now)
        throughput.note(held, now, EVERY_S)
        profiles.learn(datetime.fromtimestamp(now, UTC))
        return noted


def _note(held: Allocations, now: float) -> int:
    """Add the present draw to each attempt. Four queries, and one for each 2,000 attempts."""
    measured = live.measured(now, limits=current.limits(now))
    # What is paused keeps what it was seen to draw: it is to have as much when it goes on.
    rows_of = {each.id: rows for each, rows in held.each() if each.is_running}
    begun = [each for each in held.attempts if each.id in rows_of]
    if holdable(measured.fleet) is not held.fleet or not begun:
        return 0
    measured = in_parts(measured, held.gpus)
    kept = _kept(begun, held.fleet, now)
    before, for_s = np.zeros((len(held.arrays), _BINS)), np.zeros(len(held.arrays))
    for each in begun:
        if (known := kept.get(each.id)) is not None:
            mine = rows_of[each.id]
            before[mine] = known.seconds[each.drawn]
            for_s[mine] = min(max(now - known.seen_at, 0.0), _MOST_S)
    seen = reservation.drawn(held.arrays, held.fleet, measured.summary)
    per_gpu_w = seen.watts / np.maximum(held.arrays.gpus, 1)
    rules = policy_in_force().reserve
    after = reservation.noted(before, per_gpu_w, seen.read & (for_s > 0), for_s, rules)
    works_w = at_work_w(held, measured)
    at = datetime.fromtimestamp(now, UTC)
    like = profiles.known({kept[each.id].labels for each in begun if each.id in kept})
    rows = [
        _row(each, kept[each.id], after[mine], works_w[mine], like, rules, at)
        for each, mine in ((each, rows_of[each.id]) for each in begun if each.id in kept)
    ]
    Draw.objects.bulk_create(
        rows,
        batch_size=_AT_ONCE,
        update_conflicts=True,
        unique_fields=["attempt"],
        update_fields=[
            "seconds",
            "p99_w",
            "read_s",
            "mean_w",
            "high_w",
            "deviation_w",
            "samples",
            "seen_at",
        ],
    )
    return len(rows)


def _kept(attempts: Sequence[OpenAttempt], fleet: FleetArrays, now: float) -> dict[int, _Kept]:
    """Return the draw of attempts so far: blank for new ones, which count from their start."""
    rows = Draw.objects.filter(attempt__in=[each.id for each in attempts]).values_list(
        "attempt", "project", "image", "model", "seconds", "seen_at"
    )
    found = {
        pk: _Kept((project, image, model), profiles.unpacked(seconds), at.timestamp())
        for pk, project, image, model, seconds, at in rows
    }
    new = [each for each in attempts if each.id not in found]
    images = _images([each.id for each in new])
    for each in new:
        if each.id in images:
            labels = (each.project_id, images[each.id], _model(each, fleet))
            blank = np.zeros((each.drawn_of, _BINS))
            found[each.id] = _Kept(labels, blank, max(each.started_at or now, now - EVERY_S))
    return found


def _images(ids: Sequence[int]) -> dict[int, str]:
    if not ids:
        return {}
    rows = Attempt.objects.filter(pk__in=ids).values_list("pk", "phase__index", "phase__job__spec")
    return {pk: _image(spec["phases"][index]) for pk, index, spec in rows}


def _image(phase: Mapping[str, Any]) -> str:
    return str((phase.get("artifacts") or {}).get("image") or "")[:200]


def _model(attempt: OpenAttempt, fleet: FleetArrays) -> str:
    gpus = attempt.placement.gpus
    return str(fleet.models.names[fleet.gpus.model[gpus[0]]]) if gpus else ""


def _row(
    attempt: OpenAttempt,
    kept: _Kept,
    after: Floats,
    works_w: Floats,
    like: Mapping[profiles.Labels, profiles.Known],
    rules: reservation.Rules,
    at: datetime,
) -> Draw:
    # A node that is gone from the inventory keeps what was read of it.
    seconds = kept.seconds.copy()
    seconds[attempt.drawn] = after
    from_w = np.full(len(seconds), np.inf)
    from_w[attempt.drawn] = works_w
    project, image, model = kept.labels
    of_others = like.get(kept.labels, profiles.UNKNOWN)
    learned = joint.learned(
        seconds,
        np.broadcast_to(of_others.seconds, seconds.shape),
        np.full(len(seconds), of_others.samples),
        at_work_w=from_w,
        edges_w=BIN_EDGES_W,
    )
    return Draw(
        attempt_id=attempt.id,
        project_id=project,
        image=image,
        model=model,
        seconds=profiles.packed(seconds),
        p99_w=reservation.quantile_w(seconds, rules.quantile).tolist(),
        read_s=reservation.read_for_s(seconds).tolist(),
        mean_w=learned.mean_w.tolist(),
        high_w=learned.high_w.tolist(),
        deviation_w=learned.deviation_w.tolist(),
        samples=learned.samples.tolist(),
        seen_at=at,
    )
