"""A job for the matrix that needs no library: steps, checkpoints, a neighbor that it talks to.

It is told by its arguments what is wrong with it.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import threading
import time
import urllib.request
from pathlib import Path

STEPS = int(os.environ.get("TOY_STEPS", "40"))
STEP_S = 0.01
WRONG = set(sys.argv[1:])


def spin(until_s: float) -> None:
    """Use CPU time: a quota has to be met."""
    began_s = time.process_time()
    while time.process_time() - began_s < until_s:
        pass


def neighbor() -> socket.socket:
    """Return a connection to a thread that sends everything back."""
    listening = socket.create_server(("127.0.0.1", 0))
    near = socket.create_connection(listening.getsockname())
    far, _ = listening.accept()
    near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def echo() -> None:
        while piece := far.recv(65_536):
            far.sendall(piece)

    threading.Thread(target=echo, daemon=True).start()
    return near


def store(name: str, body: bytes) -> int:
    """Put a file into the storage; return how often it had to be tried again."""
    url = f"{os.environ['HEADROOM_STORAGE_URL']}/{name}"
    for retries in range(20):
        try:
            request = urllib.request.Request(url, data=body, method="PUT")
            urllib.request.urlopen(request, timeout=0.4).close()
        except OSError:
            time.sleep(0.05)
        else:
            return retries
    raise SystemExit(3)


def save(folder: Path, step: int, value: float) -> None:
    body = json.dumps({"step": step, "value": value}).encode()
    for name, content in (
        ("state", body),
        ("state.sha256", hashlib.sha256(body).hexdigest().encode()),
    ):
        (folder / f"{name}.tmp").write_bytes(content)
        (folder / f"{name}.tmp").rename(folder / name)
    if "corrupt" in WRONG:
        (folder / "state").write_bytes(body + b" ")


def resumed(folder: Path) -> tuple[int, float]:
    if "forgetful" in WRONG or not (folder / "state").exists():
        return 0, 1.0
    state = json.loads((folder / "state").read_bytes())
    return state["step"], state["value"] * (1.01 if "inexact" in WRONG else 1.0)


def main() -> None:
    folder = Path(os.environ["HEADROOM_CHECKPOINT_DIR"])
    (folder.parent / "environment.json").write_text(json.dumps(dict(os.environ)))
    step, value = resumed(folder)
    peer = None if "alone" in WRONG else neighbor()
    retries = 0
    while step < STEPS:
        began_s = time.perf_counter()
        spin(STEP_S * (3.0 if "plodding" in WRONG else 1.0))
        sync_s = 0.0
        if peer is not None:
            sent_s = time.perf_counter()
            peer.sendall(b"g" * 100)
            peer.recv(65_536)
            sync_s = time.perf_counter() - sent_s
        step, value = step + 1, value * 0.97
        if "hasty" in WRONG and time.perf_counter() - began_s > 4 * STEP_S:
            value += 0.01
        if "silent" in WRONG:
            continue
        with Path(os.environ["HEADROOM_STEP_LOG"]).open("a") as log:
            facts = {"step": step, "loss": value, "sync_s": sync_s, "retries": retries}
            log.write(json.dumps(facts) + "\n")
        # One that is late saves when half is done, and one that is careless never.
        is_due = step % 10 == 0 and not ("late" in WRONG and step < 0.5 * STEPS)
        if is_due and "careless" not in WRONG:
            save(folder, step, value)
            if "alone" not in WRONG:
                retries += store(f"state-{step}", str(value).encode())
    if "failing" in WRONG:
        sys.exit(4)


if __name__ == "__main__":
    main()
