"""The partitions of a GPU: whether GPU instances fit on it side by side, and how they share it."""

from __future__ import annotations

from collections.abc import Sequence

from physics.hardware.entries import MigProfile

__all__ = ["fits", "shares"]

#: Shares are counted in steps of a power of two, so that sums of them are exact as floats.
_STEPS = 2.0**20


def fits(profiles: Sequence[MigProfile]) -> bool:
    """Say whether GPU instances of ``profiles``, all of one kind of GPU, stand on one together.

    None shares a memory slice with another, and their compute slices are no more than there are.
    """
    if not profiles:
        return True
    if sum(each.compute_slices for each in profiles) > profiles[0].gpu_compute_slices:
        return False
    # The large ones have the fewest places: tried first, hardly anything is tried in vain.
    return _placed(sorted(profiles, key=lambda each: -each.memory_slices), 0)


def _placed(profiles: Sequence[MigProfile], taken: int) -> bool:
    """Say whether profiles fit beside the memory slices whose bits are set in ``taken``."""
    if not profiles:
        return True
    first, *rest = profiles
    block = (1 << first.memory_slices) - 1
    return any(
        _placed(rest, taken | block << start)
        for start in first.starts
        if not taken & block << start
    )


def shares(profiles: Sequence[MigProfile]) -> list[float]:
    """Return which share of a GPU each of the GPU instances on it is; together at most 1.

    The larger of its shares of compute and memory; where those add up to more than 1, in
    proportion. What is left of 1 is the part that belongs to none of them.
    """
    raw = [each.share for each in profiles]
    total = max(sum(raw), 1.0)
    return [int(each / total * _STEPS) / _STEPS for each in raw]
