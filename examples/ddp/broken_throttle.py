"""The example with a fault that shows on slow machines: the clock decides how much it computes.

A step that takes much longer than the first ones is cut short to a part of its batch. So the losses
depend on how fast the machine is. The matrix has to catch it under a CPU quota.
"""

from __future__ import annotations

import sys
import time

import train
from torch import Tensor

_LOOKED_AT = 20
_SLOW = 1.5


class Broken(train.Trainer):
    """Takes part of the batch once steps are slow."""

    def batch(self) -> tuple[Tensor, Tensor]:
        """Return this process's rows of the current step, or half of them."""
        inputs, targets = super().batch()
        now_s = time.monotonic()
        times = self.__dict__.setdefault("times", [])
        times.append(now_s)
        if len(times) <= _LOOKED_AT:
            return inputs, targets
        usual_s = (times[_LOOKED_AT - 1] - times[0]) / (_LOOKED_AT - 1)
        recent_s = (times[-1] - times[-_LOOKED_AT]) / (_LOOKED_AT - 1)
        half = len(inputs) // 2 if recent_s > _SLOW * usual_s else len(inputs)
        return inputs[:half], targets[:half]


if __name__ == "__main__":
    sys.exit(train.main(Broken))
