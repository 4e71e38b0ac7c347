"""Real agents on machines whose GPUs are a stand-in, and a witness of all that they seal.

A batch is *sealed* when the transaction of ``Spool.put`` is committed: from then on it is on the
agent's disk, and nothing may lose it. The witness is a trigger in the spool's own database, so that
it sees each sealed batch in that very transaction: no batch is sealed unseen, and none is seen that
was not sealed. What an agent sampled and did not seal yet dies with it, as documented.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import zstandard

from bench.stack import REPOSITORY, Stack
from headroom.agent.spool import Spool
from headroom.client import Client
from headroom.contracts import TelemetryBatch, decode_batch
from tests.standin.nvml import StandIn

GPUS = 8
SAMPLE_S = 0.25
PUSH_S = 1.0
_STOP_S = 15.0

_WITNESS = """
CREATE TABLE witness (seq INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TRIGGER witnessed AFTER INSERT ON batch
BEGIN INSERT INTO witness VALUES (NEW.seq, NEW.body); END;
"""
_INVENTORY_HEAD = """
hardware_models:
  - {name: fault-gpu, kind: gpu, rated_w: 700, slowdown_c: 90, sm_max_mhz: 1980}
sites:
"""
_SITE = """  - name: {site}
    racks:
      - name: F01
        budget_w: 90000
        nodes:
"""


@dataclass
class RealAgent:
    """One ``headroom agent``: its machine, its spool, and its process while it has one."""

    name: str
    folder: Path
    server: str
    token_file: Path
    #: of the command line, beside the usual
    more: tuple[str, ...] = ()
    lives: int = 0
    machine: StandIn = field(init=False)
    process: subprocess.Popen[bytes] | None = None
    _log: IO[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.machine = StandIn(self.folder, gpus=GPUS)
        self._log = (self.folder / "agent.log").open("ab")
        Spool(self.spool).close()
        with closing(sqlite3.connect(self.spool)) as spool:
            spool.executescript(_WITNESS)

    @property
    def spool(self) -> Path:
        return self.folder / "spool.sqlite"

    def start(self) -> None:
        """Begin a life."""
        self.lives += 1
        # Readings that tell one life from another.
        self.machine.gpu(temperature=40 + self.lives % 40)
        command = [
            sys.executable, "-m", "headroom", "agent", "--server", self.server,
            "--token-file", str(self.token_file), "--node", self.name, "--spool", str(self.spool),
            "--sample-s", str(SAMPLE_S), "--push-s", str(PUSH_S), *self.more,
        ]  # fmt: skip
        self.process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env=os.environ | self.machine.environment,
            stdout=self._log,
            stderr=self._log,
        )

    def kill(self) -> int:
        """End this life by SIGKILL and begin the next; return the pid that was."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        dead = self.process.pid
        self.start()
        return dead

    def stop(self) -> None:
        """End the last life as a service manager does: by SIGTERM, with time for a last word."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(_STOP_S)
            finally:
                self.process.kill()
                self.process.wait()
                self.process = None

    def close(self) -> None:
        self.stop()
        self._log.close()

    def sealed(self) -> dict[int, TelemetryBatch]:
        """Return every batch that was ever sealed, by its seq. Only while no process runs."""
        with closing(sqlite3.connect(self.spool)) as spool:
            rows = spool.execute("SELECT seq, body FROM witness").fetchall()
        return {seq: decode_batch(zstandard.decompress(body), json=False) for seq, body in rows}

    def held(self) -> int:
        """Return how many batches are not known to be durable. Only while no process runs."""
        return self._one("SELECT count(*) FROM batch")

    def dropped(self) -> int:
        """Return how many batches the agent gave up. Only while no process runs."""
        return self._one("SELECT dropped FROM life")

    def boot_id(self) -> str:
        with closing(sqlite3.connect(self.spool)) as spool:
            return str(spool.execute("SELECT boot_id FROM life").fetchone()[0])

    def _one(self, query: str) -> int:
        with closing(sqlite3.connect(self.spool)) as spool:
            return int(spool.execute(query).fetchone()[0])


def enroll(
    stack: Stack,
    token_file: Path,
    folder: Path,
    count: int,
    *,
    more: tuple[str, ...] = (),
    sites: tuple[str, ...] = ("faults",),
    further: str = "",
) -> list[RealAgent]:
    """Put ``count`` machines into the inventory, dealt out to ``sites``.

    Return their agents, not started yet. ``further``: what else the inventory's YAML has.
    """
    names = [f"fault-n{i + 1}" for i in range(count)]
    nodes = "".join(
        _SITE.format(site=site)
        + "".join(
            f"          - {{name: {name}, gpus: {{model: fault-gpu, count: {GPUS}}}}}\n"
            for name in names[at :: len(sites)]
        )
        for at, site in enumerate(sites)
    )
    with Client(stack.url, token_file.read_text().strip(), timeout_s=60) as operator:
        operator.post_yaml("/api/v1/fleet/apply", _INVENTORY_HEAD + nodes + further)
        made = operator.post("/api/v1/agents", [{"name": name, "nodes": [name]} for name in names])
    agents = []
    for entry in made:
        path = folder / f"{entry['name']}-token"
        path.write_text(entry["token"])
        agents.append(RealAgent(entry["name"], folder / entry["name"], stack.url, path, more))
    return agents
