"""The example with checkpoints by ``headroom.checkpoints``, so that it goes on at another site.

All ranks write into one folder, and the first one sets it aside: saving it and sending it to the
other site is the keeper's. Started again, here or there, it goes on from the newest that is whole.

    headroom checkpoints keep STORE --to OTHER -- python examples/ddp/kept.py --checkpoints STORE

``--checkpoints`` is the keeper's own store: a folder of this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import train

from headroom.checkpoints import About, NoCheckpoint, Store, restore, stage

_RUN = "ddp"
#: Of a job of Headroom. Who was started later goes before, whatever the earlier one still saves.
_START = int(os.environ.get("HEADROOM_ATTEMPT", "0"))


class Kept(train.Trainer):
    """Stages its checkpoints, and resumes from the store."""

    @property
    def working(self) -> Path:
        """The folder where files are written, beside the store and on the same disk."""
        return self.folder.with_name(f"{self.folder.name}-working")

    def save(self, step: int) -> None:
        """Have all ranks write, and stage what they have written."""
        folder = self.working / f"step-{step}"
        folder.mkdir(parents=True, exist_ok=True)
        if self.rank == 0:
            torch.save(self.state(), folder / "state.pt")
        # What a rank has of its own, such as its place in the data: here that is its step alone.
        (folder / f"rank-{self.rank}.json").write_text(json.dumps({"step": self.step}))
        dist.barrier()
        if self.rank == 0:
            about = About(run=_RUN, step=step, epoch=_START, world_size=train.PROCESSES)
            stage(folder, Store.at(self.folder), about, move=True)
        # Nobody makes the folder of the next one before this one is away.
        dist.barrier()

    def resume(self) -> None:
        """Go on from the newest checkpoint that is whole, if there is one: all from the same."""
        folder = self.working / "resumed"
        if self.rank == 0:
            shutil.rmtree(folder, ignore_errors=True)
            self.working.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(NoCheckpoint):
                restore(Store.at(self.folder), folder, _RUN)
        dist.barrier()
        if folder.exists():
            self.load(torch.load(folder / "state.pt", weights_only=True))


if __name__ == "__main__":
    sys.exit(train.main(Kept))
