"""A job for the matrix that hears directives by ``headroom.training``, on one rank.

It is told by its arguments what is wrong with it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path

from headroom import training

#: Of the run half is left when it is told to leave: that has to be enough on a busy machine.
STEPS, STEP_S, EVERY = 240, 0.05, 20
WRONG = set(sys.argv[1:])


class Loop:
    """Counts, and multiplies a value that stands for its state."""

    def __init__(self) -> None:
        self.folder = Path(os.environ["HEADROOM_CHECKPOINT_DIR"])
        self.step, self.value = 0, 1.0
        if (self.folder / "state").exists():
            state = json.loads((self.folder / "state").read_bytes())
            self.step, self.value = state["step"], state["value"]

    def save(self, step: int) -> None:
        """Write what it goes on from. One that is forgetful does so once."""
        if "forgetful" in WRONG and step != EVERY:
            return
        body = json.dumps({"step": step, "value": self.value}).encode()
        for name, content in (
            ("state", body),
            ("state.sha256", hashlib.sha256(body).hexdigest().encode()),
        ):
            (self.folder / f"{name}.tmp").write_bytes(content)
            (self.folder / f"{name}.tmp").rename(self.folder / name)

    def run(self) -> None:
        batch = training.Batch(rows=8)
        with training.session(save=self.save, step=self.step, batch=batch) as session:
            while self.step < STEPS:
                time.sleep(STEP_S)
                self.step, self.value = self.step + 1, self.value * 0.99
                with Path(os.environ["HEADROOM_STEP_LOG"]).open("a") as log:
                    facts = {"step": self.step, "loss": self.value, "parts": len(session.parts)}
                    log.write(json.dumps(facts | {"place": str(self.folder)}) + "\n")
                # One that is lazy reads nothing of what it is told.
                if "lazy" not in WRONG:
                    session.step(loss=self.value, samples=8)
                if self.step % EVERY == 0:
                    self.save(self.step)


if __name__ == "__main__":
    Loop().run()
