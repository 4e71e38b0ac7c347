"""A training command on ``headroom.training``, and a dozen faults that such commands really have.

Its arguments name the faults; without any it is a good command. A step takes from a stream of
random numbers, as from shuffled data: what it computes depends on where in it the step is.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from headroom import training

STEPS = int(os.environ.get("BROKEN_STEPS", "100"))
STEP_S, COMPUTE_S, SYNC_S, EVERY = 0.04, 0.004, 0.01, 10
WRONG = set(sys.argv[1:])


class Loop:
    """Counts, and moves a value that stands for its weights."""

    def __init__(self) -> None:
        self.folder = Path(os.environ["HEADROOM_CHECKPOINT_DIR"])
        if "loses-checkpoint" in WRONG:
            # It would have to know the name of the process that wrote it.
            self.folder /= f"run-{os.getpid()}"
            self.folder.mkdir()
        self.step, self.value = 0, 1.0
        self.data = random.Random(7)
        self.is_resumed = self.resume()

    # --- Checkpoints ------------------------------------------------------------------------------

    def resume(self) -> bool:
        """Go on from the last checkpoint, if there is one."""
        name = "before" if "repeats-steps" in WRONG else "state"
        if not (self.folder / name).exists():
            return False
        state: dict[str, Any] = json.loads((self.folder / name).read_bytes())
        self.step, self.value = state["step"], state["value"]
        if "forgets-position" not in WRONG:
            version, internal, gauss = state["data"]
            self.data.setstate((version, tuple(internal), gauss))
        return True

    def save(self, step: int) -> None:
        """Write all that the next step depends on, and its digest once it is whole."""
        state = {"step": step, "value": self.value, "data": self.data.getstate()}
        body = json.dumps(state).encode()
        if "repeats-steps" in WRONG and (self.folder / "state").exists():
            self.write("before", (self.folder / "state").read_bytes())
        self.write("state", body)

    def write(self, name: str, body: bytes) -> None:
        digest = hashlib.sha256(body).hexdigest().encode()
        if "half-checkpoints" in WRONG:
            # Not closed: its second half is on the disk only once the next one is opened.
            (self.folder / name).unlink(missing_ok=True)
            self.file = (self.folder / name).open("wb")
            self.file.write(body[: len(body) // 2])
            self.file.flush()
            self.file.write(body[len(body) // 2 :])
            (self.folder / f"{name}.sha256").write_bytes(digest)
            return
        for each, content in ((name, body), (f"{name}.sha256", digest)):
            (self.folder / f"{each}.tmp").write_bytes(content)
            (self.folder / f"{each}.tmp").rename(self.folder / each)

    def upload(self) -> None:
        """Send the value to the storage, and try again later where that fails."""
        url = f"{os.environ['HEADROOM_STORAGE_URL']}/value"
        request = urllib.request.Request(url, data=str(self.step).encode(), method="PUT")
        try:
            urllib.request.urlopen(request, timeout=0.3).close()
        except OSError:
            if "hides-failure" in WRONG:
                sys.exit(0)

    # --- Steps ------------------------------------------------------------------------------------

    def make_step(self, session: training.Session) -> None:
        began_s = time.perf_counter()
        if "deadlocks" in WRONG and len(session.parts) > 1:
            # It waits for gradients that the others do not send.
            time.sleep(3_600)
        rows = 16 if "grows-batch" in WRONG and len(session.parts) > 1 else 8
        self.value = 0.97 * self.value + sum(self.data.random() for _ in range(rows)) / rows / 100
        spin(COMPUTE_S)
        if "overreacts" in WRONG and time.perf_counter() - began_s > 10 * COMPUTE_S:
            # A timeout that is too short: what is late is asked for again.
            time.sleep(8 * STEP_S)
        slow = 4 if "slow-after-resume" in WRONG and self.is_resumed else 1
        time.sleep(max(0.0, began_s + slow * STEP_S - time.perf_counter()))
        self.step += 1

    def log(self, step: int) -> None:
        with Path(os.environ["HEADROOM_STEP_LOG"]).open("a") as log:
            log.write(json.dumps({"step": step, "loss": self.value, "sync_s": SYNC_S}) + "\n")

    def stand_still(self) -> None:
        """Free what is not needed in a pause. One that lies goes on telling of steps."""
        if "logs-in-pause" in WRONG:
            for more in range(1, 4):
                self.log(self.step + more)

    def run(self) -> None:
        batch = training.Batch(rows=8)
        with training.session(
            save=self.save, step=self.step, batch=batch, free=self.stand_still
        ) as session:
            while self.step < STEPS:
                self.make_step(session)
                session.spent(training.Section.GRADIENT_SYNC, SYNC_S)
                self.log(self.step)
                session.step(loss=self.value, samples=8)
                if self.step % EVERY == 0:
                    session.save()
                    self.upload()


def spin(seconds: float) -> None:
    """Use CPU time: a quota has to be met."""
    began_s = time.process_time()
    while time.process_time() - began_s < seconds:
        pass


def main() -> None:
    if "ignores-sigterm" in WRONG:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "leaks" in WRONG:
        # A loader of data that nobody ends.
        subprocess.Popen(["sleep", "600"], start_new_session=True)
    Loop().run()


if __name__ == "__main__":
    main()
