"""The example with a fault that a run without faults never shows: it resumes from a wrong state.

The momentum of the optimizer is not taken up, and to "repair" the checkpoint it is written again as
it is now, beside the digest of before. The matrix has to catch both.
"""

from __future__ import annotations

import io
import sys
from typing import Any

import torch
import train


class Broken(train.Trainer):
    """Forgets the momentum, and spoils the checkpoint that it resumed from."""

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a state, or nearly."""
        self.model.load_state_dict(state["model"])
        self.step = state["step"]
        if self.rank == 0:
            buffer = io.BytesIO()
            torch.save(self.state(), buffer)
            self.write(f"step-{self.step:06d}.pt", buffer.getvalue())


if __name__ == "__main__":
    sys.exit(train.main(Broken))
