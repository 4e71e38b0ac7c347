"""Room that is kept: where it comes from, and what it costs."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.core.placement.cluster import Cluster
from admission.core.placement.place import place
from admission.core.request import Locality, Placement, Request
from tests.builders.arrays import make_arrays
from tests.builders.queue_world import idle_cluster, make_request

FLEET = make_arrays(sites=2, racks=4, nodes=2)

wants = st.lists(
    st.tuples(
        st.integers(1, 20), st.sampled_from([200.0, 350.0, 700.0]), st.sampled_from(Locality)
    ),
    min_size=1,
    max_size=8,
)


def _held(
    cluster: Cluster, some: list[tuple[int, float, Locality]]
) -> list[tuple[Placement, Request]]:
    held = []
    for n, (gpus, peak_w, required) in enumerate(some):
        request = make_request(
            f"j{n}/train", gpus=gpus, gpu_peak_w=peak_w, required=required,
            data_site="s1", cross_site_bits_per_s=1e9, storage="s1/nvme", storage_bytes_per_s=1e9,
        )  # fmt: skip
        found = place(cluster, request)
        if isinstance(found, Placement):
            cluster.allocate(found, request)
            held.append((found, request))
    return held


@given(wants, st.data())
@settings(max_examples=40, deadline=None)
def test_many_that_end_at_once_leave_what_they_would_leave_one_by_one(
    some: list[tuple[int, float, Locality]], data: st.DataObject
) -> None:
    cluster = idle_cluster(FLEET)
    held = _held(cluster, some)
    over = [each for each in held if data.draw(st.booleans())]
    one_by_one, at_once = cluster.copy(), cluster.copy()
    for placement, request in over:
        one_by_one.free(placement, request)
    at_once.free_all(over)
    for name in (
        "gpu_free", "node_free", "gangs", "room_w", "admit_w", "link_room_bits_per_s",
        "storage_room_bytes_per_s",
    ):  # fmt: skip
        np.testing.assert_array_equal(getattr(at_once, name), getattr(one_by_one, name), name)
