"""The quick ways to ask whether there is a place say the same as the one that tells why not."""

from __future__ import annotations

import random

from admission.core.placement.place import place, placed
from admission.core.placement.refusals import may_have_room
from admission.core.request import Refusal
from tests.builders.promises import JOBS, WORLDS, RandomQueue


def _asked(seed: int) -> tuple[int, int]:
    """Ask on the fleet of a random world; return how many had a place, and how many had no room."""
    dice, queue, found, hopeless = random.Random(seed), RandomQueue(), 0, 0
    queue.begin(**{name: dice.choice(each) for name, each in WORLDS.items()})
    for _ in range(4):
        some = [{name: dice.choice(each) for name, each in JOBS.items()} for _ in range(4)]
        queue.submit(some)
        requests = [each.request for each in queue.world.pending.values()]
        queue.world.cycle()
        for request in requests:
            cluster = queue.world.cluster
            told = place(cluster.copy(), request)
            has_place = not isinstance(told, Refusal)
            assert placed(cluster.copy(), request) == (told if has_place else None)
            has_room = may_have_room(cluster, request)
            assert has_room or not has_place
            found, hopeless = found + has_place, hopeless + (not has_room)
    return found, hopeless


def test_they_agree_on_the_fleets_of_random_worlds() -> None:
    found, hopeless = zip(*map(_asked, range(8)), strict=True)
    assert sum(found) > 10
    assert sum(hopeless) > 10
