"""The cluster as it is known from what watches bring."""

from __future__ import annotations

from headroom.kueue.seen import KINDS, Seen
from headroom.kueue.watching import Store, key_of
from tests.kubernetes.objects import make_node, make_pod


def test_a_pod_that_ends_in_the_moment_in_which_a_node_goes_is_not_counted_on() -> None:
    stores = {kind: Store() for kind in KINDS}
    node, pod = make_node("n0"), make_pod("vision", gpus=4, nodeName="n0")
    for each in (node, make_node("n1")):
        stores["Node"].put(each)
    stores["Pod"].put(pod)
    seen = Seen(stores)
    seen.refresh()
    assert [job.nodes for job in seen.jobs.values()] == [["n0"]]
    stores["Node"].drop(key_of(node))
    stores["Pod"].drop(key_of(pod))
    seen.refresh()
    assert seen.jobs == {}
