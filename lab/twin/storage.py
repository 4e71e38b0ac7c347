"""The storage endpoints of the twin, one at each site, and how writers share them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lab.fleet import STORAGE_BYTES_PER_S, Fleet
from lab.twin.conditions import Conditions

Array = NDArray[np.float64]
Indexes = NDArray[np.intp]

#: A file is written as parts of this size, each one request; a part that fails is sent again.
PART_BYTES = 64 * 2**20
#: A node has so many requests under way at once.
REQUESTS_AT_ONCE = 16
#: What a request takes beside its bytes.
REQUEST_S = 0.01
#: Of requests that fail, at most so many do: else nothing would ever be written.
_MOST_LOSS = 0.99


class Storage:
    """Storage of ``fleet`` under ``conditions``: by site, in the order of the fleet's."""

    def __init__(self, fleet: Fleet, conditions: Conditions) -> None:
        self._conditions = conditions
        self._endpoint_bytes_per_s = np.full(len(fleet.sites), STORAGE_BYTES_PER_S)
        #: What each endpoint carried at the last call of :meth:`rates`.
        self.used_bytes_per_s: Array = np.zeros(len(fleet.sites))

    @property
    def capacity_bytes_per_s(self) -> Array:
        """The present rate of each endpoint."""
        return self._endpoint_bytes_per_s * self._conditions.storage_share

    @property
    def request_loss(self) -> Array:
        """Share of the requests to each endpoint that fail and are made again."""
        return np.minimum(self._conditions.storage_loss, _MOST_LOSS)

    def rates(self, *, wanted_bytes_per_s: Array, nodes: Array, site: Indexes) -> Array:
        """Return the bytes of files that each writer gets stored each second, by slot.

        Writers want ``wanted_bytes_per_s``, 0 being none of it, from ``nodes`` nodes, on the
        endpoint of ``site``. Latency holds each node to its requests at once; an endpoint that
        cannot take all gives each of its writers the same share of what it sends; and what fails
        takes its share of the rate without being stored.
        """
        conditions = self._conditions
        part_s = REQUEST_S + conditions.storage_latency_s
        reach = nodes * (REQUESTS_AT_ONCE * PART_BYTES / part_s)[site]
        sent = np.minimum(wanted_bytes_per_s, reach)
        load = np.bincount(site, weights=sent, minlength=len(part_s))
        share = np.ones(len(load))
        np.divide(self.capacity_bytes_per_s, load, out=share, where=load > 0.0)
        share = np.minimum(share, 1.0)
        self.used_bytes_per_s = load * share
        stored: Array = sent * (share * (1.0 - self.request_loss))[site]
        return stored

    def retries(self, *, stored_bytes: Array, site: Indexes) -> Array:
        """Return how many requests were made again to store so much: on average, so fractional."""
        loss = self.request_loss
        again: Array = stored_bytes / PART_BYTES * (loss / (1.0 - loss))[site]
        return again
