"""A SeaweedFS on a folder and ports of its own: a real store that speaks S3."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import urllib3

from bench.stack import free_port

_UNPACKED = Path(__file__).resolve().parents[2] / "build" / "peers"
_START_S = 60.0
_SENT = re.compile(r"(?m)^SeaweedFS_s3_bucket_traffic_sent_bytes_total\{.*\} (\S+)$")

ACCESS_KEY, SECRET_KEY = "cold-tier", "known-to-nobody-else"
BUCKET = "readings"


class ObjectStore:
    """One server, which may be stopped and started again on what it has stored.

    ``at``: its IP address; ``there``: the command that starts its own where that address is.
    """

    def __init__(self, folder: Path, at: str = "127.0.0.1", there: Sequence[str] = ()) -> None:
        program = shutil.which("weed", path=os.pathsep.join([os.environ["PATH"], str(_UNPACKED)]))
        if program is None:
            pytest.skip("no SeaweedFS: sh tests/object_store/ensure-seaweedfs.sh python3")
        self._at, self._program = at, (*there, program)
        self._folder = folder
        self._ports = {name: free_port() for name in _PORTS}
        (folder / "data").mkdir()
        keys = {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
        rights = ["Admin", "Read", "Write", "List"]
        identity = {"name": "cold-tier", "credentials": [keys], "actions": rights}
        (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://{self._at}:{self._ports['s3.port']}"

    @property
    def environment(self) -> dict[str, str]:
        """What an installation sets besides ``TELEMETRY_COLD_URL``."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        }

    def __enter__(self) -> ObjectStore:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        places = [f"-{name}={port}" for name, port in self._ports.items()]
        places += [f"-{name}={self._at}" for name in ("ip", "ip.bind")]
        with (self._folder / "log").open("ab") as log:
            self._child = subprocess.Popen(
                [*self._program, "server", f"-dir={self._folder / 'data'}", *_FLAGS, *places],
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )
        self._wait_until_it_stores()

    def stop(self) -> None:
        """Kill it: it may well take minutes to stop by itself."""
        if self._child is not None:
            self._child.send_signal(signal.SIGKILL)
            self._child.wait()
            self._child = None

    def sent_bytes(self) -> float:
        """Return how many bytes of files readers have got."""
        text = urllib3.request("GET", f"http://{self._at}:{self._ports['metricsPort']}/metrics")
        return sum(float(each) for each in _SENT.findall(text.data.decode()))

    def _wait_until_it_stores(self) -> None:
        from pyarrow import fs

        files = fs.S3FileSystem(
            access_key=ACCESS_KEY,
            secret_key=SECRET_KEY,
            endpoint_override=self.url,
            region="us-east-1",
            allow_bucket_creation=True,
        )
        end = time.monotonic() + _START_S
        while True:
            try:
                files.create_dir(BUCKET)
                with files.open_output_stream(f"{BUCKET}/ready") as out:
                    out.write(b"!")
            except OSError:
                assert time.monotonic() < end, (self._folder / "log").read_text()[-2000:]
                time.sleep(0.1)
            else:
                return


_PORTS = (
    "master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port",
    "filer.port.grpc", "s3.port", "s3.port.grpc", "metricsPort",
)  # fmt: skip
_FLAGS = (
    "-s3", "-s3.config=s3.json", "-s3.iam=false",
    "-s3.autoCreateBucket=false", "-s3.port.iceberg=0", "-s3.port.lance=0",
    "-master.telemetry=false", "-master.volumeSizeLimitMB=64", "-volume.max=100",
    "-volume.minFreeSpace=0",
)  # fmt: skip
