"""From windows to findings. Pure.

One window proves nothing: of 100,000 healthy GPUs some stand out in any of them, and over a day
many do once. So a GPU is judged by its mean score over many windows, in which what passes cancels
and what is its own stays. Mean scores become p values, and those q values over all GPUs of the
fleet (Benjamini and Hochberg), so that the share of false findings is bounded however many there
are.
"""

from __future__ import annotations

# SciPy is imported in a function: it takes longer to load than this module takes to run.
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from telemetry.lemons import rules
from telemetry.lemons.find import AMONG, Array, Scores
from telemetry.lemons.rules import Metric


@dataclass(frozen=True)
class Finding:
    """The evidence against one GPU. Times are Unix s; ``ended_at``: it no longer holds."""

    gpu_id: int
    metric: Metric
    since: float
    seen_at: float
    score: float
    own: float
    peers_median: float
    peers: int
    among: str
    ended_at: float | None = None

    @property
    def key(self) -> tuple[int, Metric]:
        return (self.gpu_id, self.metric)


@dataclass
class Memory:
    """The mean score of each GPU in one metric, by database id, and of how many windows it is."""

    windows: Array = field(default_factory=lambda: np.zeros(0, "i4"))
    score: Array = field(default_factory=lambda: np.zeros(0, "f4"))

    def take(self, scores: Scores) -> None:
        """Take in a window. A GPU that was not compared in it keeps its score."""
        missing = int(scores.gpu_id.max(initial=0)) + 1 - len(self.windows)
        if missing > 0:
            self.windows = np.append(self.windows, np.zeros(missing, "i4"))
            self.score = np.append(self.score, np.zeros(missing, "f4"))
        here = scores.gpu_id
        windows = np.minimum(self.windows[here] + 1, rules.MEMORY)
        bounded = np.clip(scores.score, -rules.MOST_SCORE, rules.MOST_SCORE)
        self.score[here] += (bounded - self.score[here]) / windows
        self.windows[here] = windows


def weigh(
    open_: list[Finding], metric: Metric, scores: Scores, memory: Memory, start: float, end: float
) -> list[Finding]:
    """Return the findings that the window from ``start`` to ``end`` made, changed or ended.

    ``memory`` has taken in ``scores``. A GPU that could not be compared (idle, silent, without
    peers) is neither better nor worse: its findings stay as they are.
    """
    mean = memory.score[scores.gpu_id]
    judged = memory.windows[scores.gpu_id] >= rules.LEAST_WINDOWS
    found = np.zeros(len(mean), dtype=np.bool_)
    found[judged] = discoveries(mean[judged])
    known = {finding.gpu_id: finding for finding in open_ if finding.metric == metric}
    row_of = {gpu: row for row, gpu in enumerate(scores.gpu_id.tolist())} if known else {}
    changed = []
    for gpu, finding in known.items():
        row = row_of.get(gpu)
        if row is None:
            continue
        after = replace(finding, score=float(mean[row]))
        if scores.matters[row]:
            after = replace(after, seen_at=end, **_figures(scores, row))
        over = judged[row] and mean[row] < rules.END_BELOW
        changed.append(replace(after, ended_at=end) if over else after)
    for row in np.flatnonzero(found & scores.matters).tolist():
        gpu = int(scores.gpu_id[row])
        if gpu not in known:
            score, figures = float(mean[row]), _figures(scores, row)
            changed.append(Finding(gpu, metric, start, seen_at=end, score=score, **figures))
    return changed


def discoveries(score: Array) -> Array:
    """Return which scores are discoveries by Benjamini and Hochberg, by one-sided p values."""
    from scipy.special import log_ndtr

    order = np.argsort(-score)
    rank = np.arange(1, len(score) + 1)
    passes = log_ndtr(-score[order].astype("f8")) <= np.log(
        rules.FALSE_DISCOVERY * rank / max(len(score), 1)
    )
    found = np.zeros(len(score), dtype=np.bool_)
    found[order[: int(rank[passes].max(initial=0))]] = True
    return found


def _figures(scores: Scores, row: int) -> dict[str, Any]:
    return {
        "own": float(scores.own[row]),
        "peers_median": float(scores.peers_median[row]),
        "peers": int(scores.peers[row]),
        "among": AMONG[int(scores.among[row])],
    }
