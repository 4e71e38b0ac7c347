"""Partitioned GPUs of the inventory: what MIG makes of a model, by the catalogue of hardware."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from physics import partitions
from physics.hardware import CURRENT, MigProfile

__all__ = ["known_profiles", "larger_than", "problem_of", "profiles_of", "share_of", "told_in"]


@cache
def profiles_of(model: str) -> Mapping[str, MigProfile]:
    """Return what GPUs of a model can be split into, by profile; empty: nothing, or unknown."""
    return CURRENT.mig_profiles_of(model)


@cache
def known_profiles() -> frozenset[str]:
    """Return the profiles of all models."""
    return frozenset(each.profile for each in CURRENT.mig_profiles.values())


def share_of(profile: str, models: Sequence[str]) -> float:
    """Return which share of a GPU a slice is; of several of ``models`` (none: any) the most.

    1 where nobody knows the profile: no less than it can be.
    """
    known = [
        each.share
        for each in CURRENT.mig_profiles.values()
        if each.profile == profile and _is_of(each, models)
    ]
    return max(known, default=1.0)


def told_in(model: str) -> tuple[str, str]:
    """Return the model and the profile in what a scheduler calls a GPU, or a slice of one.

    As "1g.10gb" and "a100_3g.20gb"; the profile is empty where none of ours is in it.
    """
    for profile in known_profiles():
        before, found, after = model.casefold().partition(profile)
        if found and not after and not before[-1:].isalnum():
            return before.rstrip("_-. "), profile
    return model, ""


@cache
def larger_than(profile: str, models: tuple[str, ...]) -> tuple[str, ...]:
    """Return the slices of ``models`` (none: of any) that have more than ``profile``, the least
    first: no less compute or memory of the same kind of GPU.
    """
    found: dict[str, float] = {}
    for own in CURRENT.mig_profiles.values():
        if own.profile != profile or not _is_of(own, models):
            continue
        for each in CURRENT.mig_profiles.values():
            has_all = (
                each.compute_slices >= own.compute_slices
                and each.memory_slices >= own.memory_slices
            )
            if each.gpu == own.gpu and each is not own and has_all:
                found[each.profile] = max(each.share, found.get(each.profile, 0.0))
    return tuple(sorted(found, key=lambda name: (found[name], name)))


def _is_of(profile: MigProfile, models: Sequence[str]) -> bool:
    """Say whether a profile is one of some models; none are given: of any."""
    return not models or any(profiles_of(model).get(profile.profile) is profile for model in models)


def problem_of(model: str, slices: Sequence[str]) -> str:
    """Return why a GPU of ``model`` cannot be split into ``slices``; empty where it can."""
    if not slices:
        return ""
    known = profiles_of(model)
    if not known:
        return f"{model} cannot be split by MIG, as far as is known"
    for name in slices:
        if name not in known:
            return f"{model} has no slice {name!r}: it has {', '.join(known)}"
    if not partitions.fits([known[name] for name in slices]):
        return f"{', '.join(slices)} do not stand on one {model} together"
    return ""
