"""Changes of a job that may let it start: what the solver finds for one that accepts more."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from admission.core.cycle.change import Change
from admission.core.request import Locality, Placement, Request
from admission.core.snapshot import ClassRules
from fleet.partitions import larger_than

__all__ = ["Tries"]

#: Caps are told in whole steps of this, W, rounded down: what fits under more fits under less.
_CAP_STEP_W = 5.0
#: Slowdown that a change allows is told in whole steps of this.
_SLOWDOWN_STEP = 0.01
_NO_CLASSES: dict[str, ClassRules] = {}


class Tries:
    """Changes of ``request``, to be tried. ``placed`` says where a request would start, if it does.

    None of them leaves it less than ``least_speed`` of the speed that it has with all of its GPUs.
    """

    def __init__(
        self,
        request: Request,
        placed: Callable[[Request], Placement | None],
        least_speed: float,
    ) -> None:
        self._request, self._placed = request, placed
        self._least_speed = least_speed

    def single(self) -> Iterator[Change]:
        """Yield a cap, fewer GPUs, other sites, and more distance, where one is enough."""
        request = self._request
        if request.slice:
            yield from self._larger_slice()
        elif not request.cores:
            yield from self._found(self._willing_to_be_capped(request))
        if request.gpus > 1 and not request.cores:
            yield from self._found(self._willing_to_shrink(request))
        if request.sites:
            yield from self._found(replace(request, sites=()))
        if request.required is not Locality.FLEET:
            yield from self._looser()

    def double(self, walltimes_s: Sequence[float] = ()) -> Iterator[Change]:
        """Yield a cap together with fewer GPUs, and both with other sites or a shorter run."""
        request = self._request
        bases = [request]
        if request.sites:
            bases.append(replace(request, sites=()))
        bases += [replace(request, walltime_s=each) for each in walltimes_s]
        for base in bases:
            for change in self._found(self._willing_to_be_capped(self._willing_to_shrink(base))):
                is_shorter = base.walltime_s < request.walltime_s
                yield replace(change, walltime_s=base.walltime_s if is_shorter else None)

    def _larger_slice(self) -> Iterator[Change]:
        """Yield the smallest slice that has all that its own has, and is free."""
        request = self._request
        for name in larger_than(request.slice, request.models):
            change = Change(slice=name)
            if self._placed(change.apply(request, _NO_CLASSES)) is not None:
                yield change
                return

    def _looser(self) -> Iterator[Change]:
        request = self._request
        found = self._placed(replace(request, required=Locality.FLEET))
        if found is not None and found.locality > request.required:
            yield Change(locality=found.locality)

    def _willing_to_be_capped(self, request: Request) -> Request:
        if request.slice or request.cores:
            return request  # a cap is of a GPU as a whole
        most = max(1.0 - self._least_speed, request.max_slowdown)
        return replace(request, lowest_cap_w=0.0, max_slowdown=most)

    def _willing_to_shrink(self, request: Request) -> Request:
        if request.cores:
            return request
        least = max(math.ceil(self._least_speed * request.gpus), 1)
        return replace(request, min_gpus=min(least, request.min_gpus))

    def _found(self, request: Request) -> Iterator[Change]:
        """Yield the least change of the request that allows what the solver finds."""
        old, found = self._request, self._placed(request)
        if found is None:
            return
        sites: tuple[str, ...] | None = None
        if old.sites and not set(found.sites) <= set(old.sites):
            sites = tuple(sorted({*old.sites, *found.sites}))
        gpus = len(found.gpus) if len(found.gpus) < old.min_gpus else None
        cap_w = found.power_cap_w
        if cap_w is None:
            yield Change(gpus=gpus, sites=sites)
        else:
            cap_w = _CAP_STEP_W * math.floor(cap_w / _CAP_STEP_W)
            yield self._promised(Change(lowest_cap_w=cap_w, gpus=gpus, sites=sites), found.slowdown)

    def _promised(self, change: Change, slowdown: float) -> Change:
        """Return a change with the least ``max_slowdown`` that allows its cap.

        That is more than the ``slowdown`` which is expected of it: a promise has a margin.
        """

        def allowing(step: int) -> Change:
            return replace(change, max_slowdown=_SLOWDOWN_STEP * step)

        least = 1 + math.ceil(slowdown / _SLOWDOWN_STEP)
        most = max(math.floor((1.0 - self._least_speed) / _SLOWDOWN_STEP), least)
        steps = range(least, most)
        at = bisect_left(
            steps,
            True,
            key=lambda step: (
                self._placed(allowing(step).apply(self._request, _NO_CLASSES)) is not None
            ),
        )
        return allowing(steps[at] if at < len(steps) else most)
