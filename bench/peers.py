"""VictoriaMetrics and Prometheus as processes of their own, fed by remote write.

Debian's packages: ``sh bench/ensure-peers.sh`` fetches what is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import psutil
import urllib3

from bench import remote_write
from bench.stack import REPOSITORY, free_port

_UNPACKED = REPOSITORY / "build" / "peers" / "usr" / "bin"
_START_S = 30.0
#: A peer that has used less than a hundredth of a core for so long has nothing left to do.
_QUIET_S = 2.0
_QUIET_CPU_S = 0.02
_SETTLE_S = 60.0
_SENDERS = 2


class PeerError(RuntimeError):
    """A peer cannot be measured; the message says the way out."""


class Peer(ABC):
    """One server on an empty folder."""

    program: ClassVar[str]
    ready_path: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._pool = urllib3.PoolManager(maxsize=_SENDERS, retries=False)
        self._log = (folder / "log").open("wb")
        self._child = subprocess.Popen(
            [find(self.program), *self._flags(port)],
            cwd=folder,
            stdout=self._log,
            stderr=self._log,
        )
        self._process = psutil.Process(self._child.pid)

    @abstractmethod
    def _flags(self, port: int) -> Sequence[str]: ...

    @abstractmethod
    def samples(self) -> int:
        """Return how many samples it has taken."""

    @abstractmethod
    def stored(self) -> tuple[int, int]:
        """Bring all samples to disk in their final form; return their number and bytes there."""

    def push(self, steps: Sequence[Sequence[bytes]]) -> None:
        """Send the requests of each step, two at a time, until the last is answered.

        Each sender has series of its own, as theirs do: samples of one series come in order.
        """
        shards = [[body for step in steps for body in step[i::_SENDERS]] for i in range(_SENDERS)]
        with ThreadPoolExecutor(_SENDERS) as senders:
            for _ in senders.map(self._write_all, shards):
                pass

    def cpu_seconds(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def settle(self) -> None:
        """Wait until it is idle: merges of the samples belong to its cost."""
        end = time.monotonic() + _SETTLE_S
        before = self.cpu_seconds()
        while time.monotonic() < end:
            time.sleep(_QUIET_S)
            now = self.cpu_seconds()
            if now - before < _QUIET_CPU_S:
                return
            before = now

    def stop(self) -> None:
        self._child.terminate()
        try:
            self._child.wait(30)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._log.close()

    def wait_ready(self) -> None:
        end = time.monotonic() + _START_S
        while time.monotonic() < end and self._child.poll() is None:
            try:
                if self._pool.request("GET", self.url + self.ready_path, timeout=2.0).status == 200:
                    return
            except urllib3.exceptions.HTTPError:
                pass
            time.sleep(0.05)
        words = (self._folder / "log").read_text(errors="replace")[-2000:]
        raise PeerError(f"{self.program} does not start:\n{words}")

    def _write_all(self, bodies: Iterable[bytes]) -> None:
        for body in bodies:
            self._write(body)

    def _write(self, body: bytes) -> None:
        answer = self._pool.request(
            "POST", f"{self.url}/api/v1/write", body=body, headers=remote_write.HEADERS, timeout=60
        )
        if answer.status >= 300:
            told = answer.data[:300].decode(errors="replace")
            raise PeerError(f"{self.program} answers {answer.status}: {told}")

    def _post(self, path: str) -> Any:
        answer = self._pool.request("POST", self.url + path, timeout=300)
        if answer.status != 200:
            raise PeerError(f"{self.program} answers {answer.status} to {path}")
        return answer.json() if answer.data else None

    def _metrics(self, name: str) -> float:
        """Return the sum of the samples of one of its own metrics."""
        text = self._pool.request("GET", f"{self.url}/metrics").data.decode()
        lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return sum(float(value) for key, _, value in lines if key.partition("{")[0] == name)


class VictoriaMetrics(Peer):
    """One ``victoria-metrics`` with its defaults."""

    program = "victoria-metrics"
    ready_path = "/health"

    def _flags(self, port: int) -> Sequence[str]:
        # Months: readings of the last hours are within, whatever the day.
        return (f"-storageDataPath={self._folder / 'data'}", f"-httpListenAddr=127.0.0.1:{port}",
                "-retentionPeriod=3")  # fmt: skip

    def samples(self) -> int:
        return int(self._metrics("vm_rows_inserted_total"))

    def stored(self) -> tuple[int, int]:
        self._post("/internal/force_flush")
        self._post("/internal/force_merge")
        self.settle()
        # Without the index of names: what a sample costs, not what a series does.
        return self.samples(), _size(self._folder / "data" / "data")


class Prometheus(Peer):
    """One ``prometheus`` that scrapes nothing and takes remote writes."""

    program = "prometheus"
    ready_path = "/-/ready"

    def _flags(self, port: int) -> Sequence[str]:
        config = self._folder / "prometheus.yml"
        config.write_text("global: {}\n")
        return (f"--config.file={config}", f"--storage.tsdb.path={self._folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}", "--web.enable-remote-write-receiver",
                "--web.enable-admin-api", "--storage.tsdb.retention.time=90d")  # fmt: skip

    def samples(self) -> int:
        return int(self._metrics("prometheus_tsdb_head_samples_appended_total"))

    def stored(self) -> tuple[int, int]:
        """Return the samples, and the bytes of their chunks in a snapshot of all on disk."""
        name = self._post("/api/v1/admin/tsdb/snapshot")["data"]["name"]
        snapshot = self._folder / "data" / "snapshots" / name
        chunks = sum(_size(block / "chunks") for block in snapshot.iterdir() if block.is_dir())
        return self.samples(), chunks


PEERS: tuple[type[Peer], ...] = (VictoriaMetrics, Prometheus)


@contextmanager
def running(kind: type[Peer]) -> Iterator[Peer]:
    """Run a peer on a new folder until the end of the block."""
    with tempfile.TemporaryDirectory(prefix=f"{kind.program}-") as folder:
        peer = kind(Path(folder))
        try:
            peer.wait_ready()
            yield peer
        finally:
            peer.stop()


def find(program: str) -> str:
    """Return the path of a peer's program. Raises :class:`PeerError`, which names the way out."""
    found = shutil.which(program, path=os.pathsep.join([os.environ["PATH"], str(_UNPACKED)]))
    if found is None:
        raise PeerError(f"there is no {program}: run 'sh bench/ensure-peers.sh'")
    return found


def _size(folder: Path) -> int:
    """Return the size of the files in ``folder``, bytes."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
