"""Requests and the servers that they wait for: Little, Erlang, and percentiles of the wait.

A queue that gets more work than its servers do (utilization of 1 or more) has no steady state. Its
waits grow without end, and are given as infinite rather than refused, so that a sweep over many
configurations can cross that limit.
"""

from __future__ import annotations

# SciPy is imported in functions: it takes longer to load than all laws that do without it.
import dataclasses

import numpy as np

from physics._bounds import PartShare
from physics._search import smallest_whole
from physics.law import Array, Count, Flags, NonNegative, Positive, Values, law

__all__ = [
    "QueueState",
    "erlang_b",
    "erlang_c",
    "little_arrival_per_s",
    "little_requests",
    "little_time_s",
    "mean_wait_s",
    "queue",
    "servers_for_wait",
    "utilization",
    "wait_longer_share",
    "wait_percentile_s",
]

#: Under this, the Poisson tail in the quotient for Erlang B has lost digits or is 0.
_SMALL_TAIL = 1e-250


@law
def little_requests(*, arrival_per_s: NonNegative, time_s: NonNegative) -> Values:
    """Return the mean number of requests in a system: ``L = λ W``.

    Holds for any system that is stable, whatever the distributions and the order of service, as
    long as the three are means over the same system: the queue alone (W is the wait), the servers
    alone (W is the service time, L the busy servers), or both. Source: Little 1961.
    """
    return arrival_per_s * time_s


@law
def little_time_s(*, requests: NonNegative, arrival_per_s: Positive) -> Values:
    """Return the mean time that a request spends in a system, s: ``W = L / λ``.

    See :func:`little_requests`.
    """
    return requests / arrival_per_s


@law
def little_arrival_per_s(*, requests: NonNegative, time_s: Positive) -> Values:
    """Return the rate at which requests pass through a system, 1/s: ``λ = L / W``.

    See :func:`little_requests`. With L the most requests that may be in the system, it is the most
    that the system can take.
    """
    return requests / time_s


@law
def utilization(*, arrival_per_s: NonNegative, service_s: Positive, servers: Count = 1.0) -> Values:
    """Return the share of time that servers are busy: ``u = λ S / c``; 1 or more is too much work.

    ``service_s`` (S) is the mean time that a server spends on a request, without waiting.
    """
    return arrival_per_s * service_s / servers


@law
def erlang_b(*, servers: Count, offered_load: NonNegative) -> Values:
    """Return the share of requests turned away where none can wait: ``(aᶜ/c!) / Σ aᵏ/k!``, k ≤ c.

    ``offered_load`` (a, in erlangs) is the arrival rate times the mean service time. Arrivals are
    Poisson; service times may have any distribution (M/G/c/c). Also valid for a > c. Computed as
    a quotient of gamma functions: relative error under 1e-9 up to 100,000 servers. Source:
    Erlang 1917.
    """
    from scipy.special import gammaincc, gammaln, hyperu, xlogy

    # Poisson with mean a: P(exactly c) / P(at most c).
    tail = gammaincc(servers + 1.0, offered_load)
    log_exactly = xlogy(servers, offered_load) - offered_load - gammaln(servers + 1.0)
    # Far beyond capacity both underflow: there the same by Tricomi's function, which is slower (its
    # time grows with c) and therefore asked for one server everywhere else.
    far = tail < _SMALL_TAIL
    overload = np.where(far, offered_load, 1.0)
    beyond = 1.0 / (overload * hyperu(1.0, np.where(far, servers, 1.0) + 2.0, overload))
    near: Array = np.exp(log_exactly) / np.maximum(tail, _SMALL_TAIL)
    return np.where(far, beyond, near)


@law
def erlang_c(*, servers: Count, offered_load: NonNegative) -> Values:
    """Return the share of requests that wait (M/M/c): ``B / (1 - u (1 - B))``, B by Erlang B.

    ``offered_load`` (a, in erlangs) is the arrival rate times the mean service time, u = a/c.
    Exactly 1 where u ≥ 1; u itself with one server. Poisson arrivals, exponential service times,
    first come first served, nobody gives up. Source: Erlang 1917; Cooper 1981.
    """
    load = offered_load / servers
    stable = load < 1.0
    blocked: Array = erlang_b(servers=servers, offered_load=np.where(stable, offered_load, 0.0))
    # 1 - u + uB rather than 1 - u (1 - B): close to u = 1 nothing cancels.
    return np.where(stable, blocked / np.where(stable, 1.0 - load + load * blocked, 1.0), 1.0)


@law
def mean_wait_s(
    *,
    arrival_per_s: NonNegative,
    service_s: Positive,
    servers: Count = 1.0,
    arrival_scv: NonNegative = 1.0,
    service_scv: NonNegative = 1.0,
) -> Values:
    """Return the mean wait before service, s: ``C · S / (c (1 - u)) · (c_a² + c_s²) / 2``.

    C is Erlang C. ``arrival_scv`` and ``service_scv`` are squared coefficients of variation,
    (standard deviation / mean)², of the times between arrivals and of service: 1 for exponential
    (the default: M/M/c, exact; M/M/1 with one server), 0 for constant. With ``service_scv`` other
    than 1 it is exact for one server (Pollaczek-Khinchine) and else the approximation of Allen and
    Cunneen: at u ≥ 0.8 and Poisson arrivals within 5 % for c_s² ≤ 1 and up to 30 % too long at
    c_s² = 4; at light load only an order of magnitude. Infinite where u ≥ 1. Source: Allen 1990.
    """
    queued = _Waiting.of(arrival_per_s, service_s, servers, arrival_scv, service_scv)
    return queued.probability * queued.mean_of_those_s


@law
def wait_longer_share(
    *,
    arrival_per_s: NonNegative,
    service_s: Positive,
    wait_s: NonNegative,
    servers: Count = 1.0,
    arrival_scv: NonNegative = 1.0,
    service_scv: NonNegative = 1.0,
) -> Values:
    """Return the share of requests that wait longer than t: ``C · exp(-t / w)``.

    C is Erlang C and w the mean wait of those that wait, ``S / (c (1 - u)) · (c_a² + c_s²) / 2``.
    Exact for M/M/c; else an approximation (see :func:`mean_wait_s`). Exactly 1 where u ≥ 1.
    """
    queued = _Waiting.of(arrival_per_s, service_s, servers, arrival_scv, service_scv)
    some = queued.mean_of_those_s > 0.0
    waits = np.where(some, wait_s / np.where(some, queued.mean_of_those_s, 1.0), np.inf)
    return queued.probability * np.exp(-waits)


@law
def wait_percentile_s(
    *,
    arrival_per_s: NonNegative,
    service_s: Positive,
    percentile: PartShare,
    servers: Count = 1.0,
    arrival_scv: NonNegative = 1.0,
    service_scv: NonNegative = 1.0,
) -> Values:
    """Return the wait that a share p of requests does not exceed, s: ``w · ln(C / (1 - p))``.

    ``percentile`` (p, below 1) is a share: 0.99 for p99. C and w as in :func:`wait_longer_share`.
    Exactly 0 where so few wait that p ≤ 1 - C; infinite where u ≥ 1. It is the wait before
    service, not the time until the answer.
    """
    queued = _Waiting.of(arrival_per_s, service_s, servers, arrival_scv, service_scv)
    return queued.percentile_s(percentile)


@law
def servers_for_wait(
    *,
    arrival_per_s: NonNegative,
    service_s: Positive,
    percentile: PartShare,
    wait_s: NonNegative,
    arrival_scv: NonNegative = 1.0,
    service_scv: NonNegative = 1.0,
) -> Values:
    """Return the fewest servers with which a share p of requests waits no longer than ``wait_s``.

    The smallest whole c with :func:`wait_percentile_s` ≤ ``wait_s``; ``percentile`` is below 1.
    Always more than λ S, without which the queue grows for ever. A wait of 0 asks that a share p
    finds a free server.
    """
    rate, service, share, allowed, arrival, variation = np.broadcast_arrays(
        arrival_per_s, service_s, percentile, wait_s, arrival_scv, service_scv
    )

    def enough(servers: Array) -> Flags:
        queued = _Waiting.of(rate, service, servers, arrival, variation)
        return queued.percentile_s(share) <= allowed

    above = np.floor(rate * service)
    step = np.ones_like(above)
    while not np.all(holds := enough(above + step)):
        step = np.where(holds, step, 2.0 * step)
    return smallest_whole(enough, above=above, up_to=above + step)


@dataclasses.dataclass(frozen=True)
class QueueState:
    """A queue in its steady state: how busy, who waits, for how long, and how many there are."""

    utilization: Values
    wait_probability: Values
    mean_wait_s: Values
    mean_time_s: Values
    waiting: Values
    in_system: Values


@law
def queue(
    *,
    arrival_per_s: NonNegative,
    service_s: Positive,
    servers: Count = 1.0,
    arrival_scv: NonNegative = 1.0,
    service_scv: NonNegative = 1.0,
) -> QueueState:
    """Return the steady state of a queue: M/M/c, or by Allen and Cunneen (:func:`mean_wait_s`).

    Mean time is wait and service, ``W = W_q + S``; the numbers waiting and in the system follow by
    Little's law. All but the utilization and the probability are infinite where u ≥ 1.
    """
    queued = _Waiting.of(arrival_per_s, service_s, servers, arrival_scv, service_scv)
    mean_wait_s = queued.probability * queued.mean_of_those_s
    mean_time_s = mean_wait_s + service_s
    return QueueState(
        utilization=arrival_per_s * service_s / servers,
        wait_probability=queued.probability,
        mean_wait_s=mean_wait_s,
        mean_time_s=mean_time_s,
        waiting=arrival_per_s * mean_wait_s,
        in_system=arrival_per_s * mean_time_s,
    )


@dataclasses.dataclass(frozen=True)
class _Waiting:
    """The wait of a request: 0, or with ``probability`` exponential around ``mean_of_those_s``."""

    probability: Array
    mean_of_those_s: Array

    @classmethod
    def of(
        cls,
        arrival_per_s: Values,
        service_s: Values,
        servers: Values,
        arrival_scv: Values,
        service_scv: Values,
    ) -> _Waiting:
        load = np.asarray(arrival_per_s * service_s / servers)
        stable = load < 1.0
        variability = (arrival_scv + service_scv) / 2.0
        free = servers * np.where(stable, 1.0 - load, 1.0)
        return cls(
            np.asarray(erlang_c(servers=servers, offered_load=arrival_per_s * service_s)),
            np.where(stable, service_s * variability / free, np.inf),
        )

    def percentile_s(self, share: Values) -> Array:
        over = np.maximum(self.probability / (1.0 - share), 1.0)
        endless = np.isinf(self.mean_of_those_s)
        return np.where(
            endless, np.inf, np.where(endless, 0.0, self.mean_of_those_s) * np.log(over)
        )
