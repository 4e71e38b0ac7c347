"""A real Prometheus that scrapes real expositions of dcgm-exporter, for tests."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import urllib3

from bench.peers import find
from bench.stack import free_port

#: Hosts and numbers of GPUs in the expositions.
HOSTS = {"gpu-node-1": 8, "i-030791dc5a37cd257": 1}
FILES = {"/h100": "h100x8_four_metrics.prom", "/l4": "l4_idle_full.prom"}
#: Metrics of the expositions, the columns that they become, and what one of theirs is in ours.
COLUMNS = (
    ("DCGM_FI_DEV_GPU_TEMP", "temp_c", 1.0),
    ("DCGM_FI_DEV_POWER_USAGE", "power_w", 1.0),
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "energy_j", 1e-3),
    ("DCGM_FI_DEV_FB_USED", "mem_used", 2.0**20),
)
#: A sample: host, index of the GPU, Unix ms, value.
Sample = tuple[str, str, int, float]

_LIMIT_S = 60.0


def wait_for(what: Callable[[], Any]) -> Any:
    """Return the first value of ``what`` that is true."""
    end = time.monotonic() + _LIMIT_S
    while not (found := what()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)
    return found


class Exporter:
    """Serves each file, with as much added to each value as there were scrapes."""

    def __init__(self, folder: Path) -> None:
        self.scrapes = dict.fromkeys(FILES, 0)
        texts = {path: (folder / name).read_text() for path, name in FILES.items()}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.scrapes[self.path] += 1
                body = _moved_on(texts[self.path], outer.scrapes[self.path]).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _moved_on(text: str, by: int) -> str:
    return re.sub(r"(?m)^(DCGM\S+\{.*\}) (\S+)$", lambda m: f"{m[1]} {float(m[2]) + by}", text)


@dataclass
class Prometheus:
    """A running Prometheus."""

    url: str
    process: subprocess.Popen[bytes]
    _pool: urllib3.PoolManager = field(default_factory=urllib3.PoolManager)

    def samples(self, metric: str) -> set[Sample]:
        """Return all that it has stored of a metric."""
        query = quote(f"{metric}[10m]")
        answer = self._pool.request("GET", f"{self.url}/api/v1/query?query={query}")
        return {
            (found["metric"]["Hostname"], found["metric"]["gpu"], round(1000 * ts), float(value))
            for found in json.loads(answer.data)["data"]["result"]
            for ts, value in found["values"]
        }


@contextmanager
def scraping(exporter: Exporter, server_url: str, token: str, folder: Path) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes ``exporter`` and writes to the server."""
    (folder / "token").write_text(token)
    jobs = [
        {
            "job_name": path.strip("/"),
            "metrics_path": path,
            "static_configs": [{"targets": [exporter.address]}],
        }
        for path in FILES
    ]
    config = {
        "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"},
        "scrape_configs": jobs,
        "remote_write": [
            {
                "url": f"{server_url}/api/v1/prometheus/write",
                "authorization": {"credentials_file": str(folder / "token")},
                "metadata_config": {"send": False},
                "queue_config": {"batch_send_deadline": "500ms", "min_backoff": "50ms"},
            }
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    port = free_port()
    command = [
        find("prometheus"),
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield Prometheus(f"http://127.0.0.1:{port}", process)
        finally:
            process.kill()
            process.wait()


def stored_query(column: str) -> str:
    """Return the query of all samples that are stored in ``column``."""
    return (
        "SELECT node.name, gpu.index::text, round(extract(epoch FROM ts) * 1000)::bigint,"
        f" {column}::float8 FROM gpu_sample JOIN fleet_gpu AS gpu ON gpu.id = gpu_id"
        f" JOIN fleet_node AS node ON node.id = gpu.node_id WHERE {column} IS NOT NULL"
    )


def compare(prometheus: Prometheus, stored: Callable[[str], list[Sample]]) -> None:
    """Wait until all that Prometheus has is stored, and check that it is there once."""
    for metric, column, scale in COLUMNS:
        # Its last scrape may still be on its way into its own store.
        wait_for(lambda: len(stored(column)) == len(prometheus.samples(metric)))  # noqa: B023
        wanted, found = prometheus.samples(metric), stored(column)
        assert len(wanted) >= 4
        assert len(found) == len(set(found))
        assert {row[:3] for row in found} == {row[:3] for row in wanted}
        ours = {row[:3]: row[3] for row in found}
        for host, gpu, ts_ms, value in wanted:
            assert ours[host, gpu, ts_ms] == pytest.approx(value * scale, rel=1e-6)
