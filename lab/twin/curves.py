"""The curves of power over clock of a twin's GPUs, read from tables: to raise to powers is slow.

They are those of ``physics.power``, with the figures of the catalogue, as on the server.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from physics.power import gpu_power_w, throughput_under_cap

Array = NDArray[np.float64]
Indexes = NDArray[np.intp]

#: Steps of a table. Between them values lie on a line, within 1e-6 of the curve.
_STEPS = 4096


class Curves:
    """The dynamic share of power at each clock, ``λ · r + (1 - λ) · r^n``, and the way back.

    ``linear_share`` (λ, over 0) and ``exponent`` (n) are by GPU. Clocks and shares are 0 to 1.
    """

    def __init__(self, *, linear_share: Array, exponent: Array) -> None:
        pairs = np.stack([linear_share, exponent], axis=1)
        curves, row = np.unique(pairs, axis=0, return_inverse=True)
        #: Where the table of each GPU begins, all tables being behind each other.
        self._begin: Indexes = (row.reshape(-1) * (_STEPS + 1)).astype(np.intp)
        steps = np.linspace(0.0, 1.0, _STEPS + 1)
        linear, power = curves[:, :1], curves[:, 1:]
        self._shares = _Table(
            gpu_power_w(
                static_w=0.0,
                dynamic_w=1.0,
                relative_throughput=steps,
                exponent=power,
                linear_share=linear,
            )
        )
        self._clocks = _Table(
            throughput_under_cap(
                cap_w=steps, static_w=0.0, dynamic_w=1.0, exponent=power, linear_share=linear
            )
        )

    def share(self, clock: Array, gpus: Indexes) -> Array:
        """Return the share of the dynamic power that ``gpus`` draw at these clocks."""
        return self._shares.read(clock, self._begin.take(gpus))

    def clock(self, share: Array, gpus: Indexes) -> Array:
        """Return the clocks at which ``gpus`` draw that share of their dynamic power."""
        return self._clocks.read(share, self._begin.take(gpus))


class _Table:
    """Values at even steps from 0 to 1, and what they rise by to the next."""

    def __init__(self, values: Array) -> None:
        self._values: Array = np.ascontiguousarray(values).reshape(-1)
        # From the last step of a table on nothing rises.
        rises = np.diff(values, axis=1, append=values[:, -1:])
        self._rises: Array = np.ascontiguousarray(rises).reshape(-1)

    def read(self, at: Array, begin: Indexes) -> Array:
        place = at * _STEPS
        step = place.astype(np.intp)
        place -= step
        step += begin
        place *= self._rises.take(step)
        place += self._values.take(step)
        return place
