"""Random worlds: whether all that is told of a queue is true, and a repeated cycle does nothing.

Small fleets short of power, with jobs, classes, quotas and restrictions drawn by a seed. After each
cycle the same is decided again; each change that is told of is applied, at once and in the next
cycle; and a job is asked for in a dry run, and submitted. ``python -m bench.promises FIRST LAST``
plays the worlds of these seeds, in as many processes as ``BENCH_PROCESSES`` says.
"""

from __future__ import annotations

# What needs models is imported in functions: Django is set up when there are settings.
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

from bench.django_in import set_up_alone

if TYPE_CHECKING:
    from tests.builders.promises import Tally

#: Seeds that a process plays at a time.
_PART = 50


def main(first: int, last: int) -> int:
    """Play the worlds from seed ``first`` up to ``last``; return 1 where something is broken."""
    set_up_alone()
    began, found, broken = time.monotonic(), dict[str, int](), 0
    parts = [range(at, min(at + _PART, last)) for at in range(first, last, _PART)]
    processes = int(os.environ.get("BENCH_PROCESSES", "1"))
    with ProcessPoolExecutor(processes) as pool:
        for part, tally in zip(parts, pool.map(_played, parts), strict=True):
            for name, count in tally.counts.items():
                found[name] = found.get(name, 0) + count
            broken += len(tally.broken)
            for each in tally.broken:
                print(each, flush=True)
            counts = ", ".join(f"{count} {name}" for name, count in found.items())
            took_s = time.monotonic() - began
            print(f"up to {part.stop}: {counts}; {broken} broken, {took_s:.0f} s", flush=True)
    return 1 if broken else 0


def _played(seeds: range) -> Tally:
    from tests.builders.promises import Tally, play

    tally = Tally()
    for seed in seeds:
        play(seed, tally)
    return tally


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
