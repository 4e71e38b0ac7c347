"""Draw profiles of the images of projects, and the share of their walltime that they run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

import numpy as np
from django.db import transaction

from admission.core.allocation import reservation
from admission.core.allocation.joint import PROFILE_KEEPS, remembered
from admission.core.allocation.reservation import BIN_EDGES_W, Floats
from admission.jobs.models import Attempt
from admission.learned.models import Draw, DrawProfile

__all__ = [
    "UNKNOWN",
    "Known",
    "Labels",
    "known",
    "learn",
    "middle",
    "packed",
    "quantile_w",
    "run_shares",
    "unpacked",
]

#: Attempts whose length a profile remembers.
_MOST_SHARES = 50
#: Ended attempts that one call learns from; the next one goes on.
_AT_ONCE = 500
_BINS = len(BIN_EDGES_W)


#: Project, image and model of GPU.
Labels: TypeAlias = tuple[int, str, str]


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of attempts that have ended: seconds by bin, and how many it comes from."""

    seconds: Floats
    samples: float


UNKNOWN = Known(np.zeros(_BINS), 0.0)


def packed(seconds: Floats) -> bytes:
    """Return seconds by bin as the database keeps them."""
    return seconds.astype(np.float32).tobytes()


def unpacked(seconds: bytes | memoryview) -> Floats:
    """Return seconds by bin from :func:`packed`: rows by bins."""
    return np.frombuffer(seconds, dtype=np.float32).reshape(-1, _BINS).astype(np.float64)


@transaction.atomic
def learn(at: datetime) -> int:
    """Add the draws of attempts that have ended to the profiles, once; return how many."""
    over = Draw.objects.filter(attempt__state=Attempt.State.ENDED).select_related("attempt__phase")
    ended = list(over.select_for_update(of=("self",), skip_locked=True)[:_AT_ONCE])
    if not ended:
        return 0
    by_key: dict[tuple[int, str, str], list[Draw]] = {}
    for draw in ended:
        by_key.setdefault((draw.project_id, draw.image, draw.model), []).append(draw)
    for key in sorted(by_key):
        _add(key, by_key[key], at)
    Draw.objects.filter(pk__in=[draw.pk for draw in ended]).delete()
    return len(ended)


def known(labels: Collection[Labels]) -> dict[Labels, Known]:
    """Return what is known of projects, images and models; unknown ones are left out. One query."""
    projects, images = {each[0] for each in labels}, {each[1] for each in labels}
    rows = DrawProfile.objects.filter(project__in=projects, image__in=images).order_by()
    return {
        (project, image, model): Known(unpacked(seconds)[0], remembered(attempts))
        for project, image, model, seconds, attempts in rows.values_list(
            "project", "image", "model", "seconds", "attempts"
        )
        if (project, image, model) in labels
    }


def _add(key: tuple[int, str, str], draws: Sequence[Draw], at: datetime) -> None:
    project, image, model = key
    profile, _ = DrawProfile.objects.select_for_update().get_or_create(
        project_id=project,
        image=image,
        model=model,
        defaults={"seconds": packed(np.zeros((1, _BINS))), "updated_at": at},
    )
    seconds = unpacked(profile.seconds)
    for draw in draws:
        seconds = PROFILE_KEEPS * seconds + unpacked(draw.seconds).sum(axis=0, keepdims=True)
    shares = [share for draw in draws if (share := _run_share(draw.attempt)) is not None]
    profile.seconds = packed(seconds)
    profile.run_shares = [*profile.run_shares, *shares][-_MOST_SHARES:]
    profile.attempts += len(draws)
    profile.updated_at = at
    profile.save()


def _run_share(attempt: Attempt) -> float | None:
    """Return for which share of its walltime an attempt ran; None: it did not come to its end."""
    if attempt.outcome != Attempt.Outcome.SUCCEEDED or not (
        attempt.started_at and attempt.ended_at
    ):
        return None
    ran_s = (attempt.ended_at - attempt.started_at).total_seconds()
    return max(ran_s, 0.0) / float(attempt.phase.request["walltime_s"])


def quantile_w(profile: DrawProfile, share: float) -> float | None:
    """Return the quantile ``share`` of the draw of attempts over time, W for each GPU.

    None: nothing was read, or it is over all bounds.
    """
    found = float(reservation.quantile_w(unpacked(profile.seconds), share)[0])
    return found if np.isfinite(found) else None


def middle(shares: Sequence[float]) -> float | None:
    """Return the median; None where nothing is known."""
    return float(np.median(shares)) if shares else None


def run_shares() -> dict[str, float]:
    """Return for each project the share of its walltime that half of its attempts run for.

    One query. Projects of which nothing is known are left out.
    """
    found: dict[str, list[float]] = {}
    rows = DrawProfile.objects.exclude(run_shares=[]).order_by()
    for project, shares in rows.values_list("project__name", "run_shares"):
        found.setdefault(project, []).extend(shares)
    return {project: float(np.median(shares)) for project, shares in found.items()}
