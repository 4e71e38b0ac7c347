"""One agent sends the costliest batches, another goes on as always: how long does that one wait?

Five batches of 7 MB with 200,000 made-up names of jobs each, from an agent that speaks for one
node, while an agent of another node pushes a reading each half a second.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from django.db import connection

from bench import django_in, report
from bench.stack import running
from headroom.client import Client, HeadroomError
from headroom.contracts import JobColumns, TelemetryBatch
from tests.builders.batches import make_batch

POSTS = 5
NAMES = 200_000
_REST_S = 5.0
_AFTER_S = 10.0
_PATIENCE_S = 120.0

_INVENTORY = """
hardware_models:
  - {name: bench-gpu, kind: gpu, rated_w: 700, slowdown_c: 90, sm_max_mhz: 1980}
sites:
  - name: bench
    racks:
      - name: R1
        budget_w: 40000
        nodes:
          - {name: bench-n1, gpus: {model: bench-gpu, count: 8}}
          - {name: bench-n2, gpus: {model: bench-gpu, count: 8}}
"""


def run() -> None:
    with running() as stack:
        django_in.set_up(stack)

        def size() -> int:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_database_size(current_database())")
                return int(cursor.fetchone()[0])

        operator = Client(stack.url, stack.credential("operator_token"), timeout_s=_PATIENCE_S)
        operator.post_yaml("/api/v1/fleet/apply", _INVENTORY)
        bad, good = (_enroll(operator, node) for node in ("bench-n1", "bench-n2"))
        neighbor = _Neighbor(good)
        time.sleep(_REST_S)
        calm, before = max(neighbor.waited_s), size()
        neighbor.waited_s.clear()
        attack = threading.Thread(target=_attack, args=(bad,))
        attack.start()
        attack.join()
        time.sleep(_AFTER_S)
        neighbor.stop()
        left = size() - before
    report.show(
        "abuse",
        {
            "visible_worst_s_calm": calm,
            "visible_worst_s_attacked": max(neighbor.waited_s),
            "bytes_left": left,
            "batches_of_the_neighbor": len(neighbor.waited_s),
        },
        {"visible_worst_s_attacked": "from the push to the committed reading of the other agent"},
    )


def _enroll(operator: Client, node: str) -> Client:
    made = operator.post("/api/v1/agents", {"name": node, "nodes": [node]})
    return operator.with_token(made["token"])


def _attack(client: Client) -> None:
    now = time.time()
    for seq in range(1, POSTS + 1):
        names = [f"made-up-{seq}-{i:012d}" for i in range(NAMES)]
        batch = TelemetryBatch(
            agent="bench-n1", boot_id="bad", seq=seq, oldest_seq=1, sent_at=now,
            jobs=JobColumns(ts=[now] * NAMES, job=names),
        )  # fmt: skip
        with suppress(HeadroomError):
            client.push(batch)


class _Neighbor:
    """Pushes a reading each half a second, and looks when it is committed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stop = threading.Event()
        self.waited_s: list[float] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        seq = 0
        while not self._stop.wait(0.5):
            seq += 1
            began = time.monotonic()
            self._push(make_batch("bench-n2", "bench-n2", seq, boot_id="good"), began)
            self.waited_s.append(time.monotonic() - began)

    def _push(self, batch: TelemetryBatch, began: float) -> None:
        is_taken = False
        while time.monotonic() - began < _PATIENCE_S:
            with suppress(HeadroomError):
                if not is_taken:
                    self._client.push(batch)
                    is_taken = True
                found = self._client.get("/api/v1/telemetry/position", {"boot_id": "good"})
                if found["durable_seq"] >= batch.seq:
                    return
            time.sleep(0.05)


if __name__ == "__main__":
    run()
