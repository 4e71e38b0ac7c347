"""A line between two networks of this machine's own kernel, and who is at its other end.

Three network namespaces: a node, a router, and the far end. The router sends towards the far end at
the rate of the line and lets up to 400 ms of packets wait, first come first served, as a switch
does that knows no classes. It wants root, and ``ip`` and ``tc`` of iproute2.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from headroom.contracts import ClassShare, LimitReport, LinkColumns, LinkLimit
from headroom.traffic import TrafficClass

__all__ = ["HTTP_PORT", "LINK", "STORE_PORT", "FarEnd", "Line", "enter", "why_not"]

LINK = "oslo-bergen"
HTTP_PORT, STORE_PORT = 8000, 9000
_QUEUED = "400ms"
_WAIT_S = 60.0
_CLONE_NEWNET = 0x40000000
#: Guaranteed and greatest shares that benchmark and tests set: control is sure of a tenth.
SHARES = {
    TrafficClass.CONTROL: (0.10, 0.30),
    TrafficClass.OPERATOR: (0.05, 0.30),
    TrafficClass.COLLECTIVE: (0.30, 1.0),
    TrafficClass.CHECKPOINT: (0.10, 1.0),
    TrafficClass.DATA: (0.20, 1.0),
    TrafficClass.ARTIFACT: (0.05, 0.8),
    TrafficClass.LOG: (0.02, 0.3),
}
R = TypeVar("R")


def why_not() -> str:
    """Return why no line can be laid here; "": one can."""
    if os.geteuid():
        return "network namespaces want root"
    if not (shutil.which("ip") and shutil.which("tc")):
        return "there are no ip and tc: install iproute2"
    name = f"headroom-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if made.returncode:
        return f"the kernel forbids network namespaces: {made.stderr.decode().strip()}"
    words = ["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "lo", "root", "htb"]
    htb = subprocess.run(words, capture_output=True, check=False)
    _do("ip", "netns", "delete", name)
    return "" if htb.returncode == 0 else "the kernel has no HTB"


def enter(namespace: str) -> None:
    """Have this thread live in a network namespace from now on."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/run/netns/{namespace}").open() as file:
        if libc.setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {namespace}")


class Line:
    """The line, of ``bits_per_s`` towards the far end."""

    def __init__(self, bits_per_s: float) -> None:
        self.bits_per_s = bits_per_s
        self.node, self._router, self.far = (
            f"headroom-{name}-{os.getpid()}" for name in ("node", "router", "far")
        )
        self.interface, self.address = "up0", "198.18.79.2"

    def __enter__(self) -> Line:
        for name in (self.node, self._router, self.far):
            _do("ip", "netns", "add", name)
        self._join(self.node, self.interface, "198.18.78.2", "down0", "198.18.78.1")
        self._join(self.far, "up0", self.address, "down1", "198.18.79.1")
        in_router = ("ip", "netns", "exec", self._router)
        _do(*in_router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        rate = f"{self.bits_per_s:.0f}bit"
        _do(
            *in_router, "tc", "qdisc", "add", "dev", "down1", "root", "tbf", "rate", rate,
            "burst", "32kb", "latency", _QUEUED,
        )  # fmt: skip
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in (self.node, self._router, self.far):
            _do("ip", "netns", "delete", name, check=False)

    def _join(self, there: str, name: str, address: str, hop: str, hop_address: str) -> None:
        """Connect a namespace to the router, by a pair of interfaces."""
        _do("ip", "link", "add", name, "netns", there, "type", "veth", "peer", "name", hop,
            "netns", self._router)  # fmt: skip
        for where, device, ip in ((there, name, address), (self._router, hop, hop_address)):
            inside = ("ip", "netns", "exec", where)
            _do(*inside, "ip", "address", "add", f"{ip}/24", "dev", device)
            _do(*inside, "ip", "link", "set", device, "up")
            _do(*inside, "ip", "link", "set", "lo", "up")
        _do("ip", "netns", "exec", there, "ip", "route", "add", "default", "via", hop_address)

    def at_node(self, *words: str) -> str:
        """Return what a command says in the node's namespace."""
        return _do("ip", "netns", "exec", self.node, *words)

    def queues(self) -> str:
        """Return what ``tc`` tells of the queues at the node's interface."""
        return self.at_node("tc", "qdisc", "show", "dev", self.interface)


class FarEnd:
    """The other end: a stand-in for the server, and a store that takes all that comes."""

    def __init__(self, line: Line, folder: Path) -> None:
        self._folder = folder
        self._answer = folder / "answer.json"
        self._process = subprocess.Popen(
            ["ip", "netns", "exec", line.far, sys.executable, "-m", "bench.traffic_far",
             line.address, str(folder)],
        )  # fmt: skip
        self.url = f"http://{line.address}:{HTTP_PORT}"
        _wait(lambda: (folder / "ready").exists())

    def answer(self, limits: Sequence[LinkLimit] | None, *, valid_for_s: float = 60.0) -> None:
        """Have the server answer with these limits; None: with errors alone."""
        made = self._answer.with_suffix(".new")
        made.write_bytes(msgspec.json.encode({"links": limits, "valid_for_s": valid_for_s}))
        made.replace(self._answer)

    def reports(self) -> list[LimitReport]:
        """Return what the agent has reported on limits, in order."""
        return [report for reports, _ in self._told() for report in reports]

    def readings(self) -> list[LinkColumns]:
        """Return the readings of links that the agent has sent, in order."""
        return [links for _, links in self._told() if links is not None]

    def taken_bytes(self) -> int:
        """Return how much the store has taken."""
        return int((self._folder / "taken").read_text() or "0")

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def _told(self) -> list[tuple[list[LimitReport], LinkColumns | None]]:
        path = self._folder / "told.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        return [
            msgspec.json.decode(line, type=tuple[list[LimitReport], LinkColumns | None])
            for line in lines
        ]


def limit_of(line: Line, *, share: float = 1.0, for_s: float = 600.0) -> LinkLimit:
    """Return a limit on the line, with the shares of :data:`SHARES`."""
    return LinkLimit(
        id=f"limit-{share:g}",
        link=LINK,
        capacity_bits_per_s=line.bits_per_s,
        share=share,
        classes=[ClassShare(name=n, guaranteed=g, most=m) for n, (g, m) in SHARES.items()],
        expires_at=time.time() + for_s,
    )


class AgentProcess:
    """A real agent in the node's namespace, that may share the line."""

    def __init__(self, line: Line, far: FarEnd, folder: Path, *, enabled: bool = True) -> None:
        config = folder / "agent.toml"
        config.write_text(
            f'[ethernet]\ninterval_s = 1\nlinks = {{ {line.interface} = "{LINK}" }}\n'
            f"[traffic]\nenabled = {str(enabled).lower()}\n"
            f"ports = {{ checkpoint = [{STORE_PORT}] }}\n[kernel_log]\nenabled = false\n"
        )
        self.log = folder / "agent.log"
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", line.node, sys.executable, "-m", "headroom", "agent",
                 "--config", str(config), "--server", far.url, "--node", "n1",
                 "--spool", str(folder / "spool.sqlite"), "--sample-s", "0.5", "--push-s", "0.5"],
                env={**os.environ, "HEADROOM_TOKEN": "hra_x"},
                stderr=log,
            )  # fmt: skip

    def kill(self) -> None:
        """End it as the kernel does when there is no memory left."""
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        """Have it stop, and return its exit status."""
        self.process.terminate()
        return self.process.wait(_WAIT_S)


def wait_until(line: Line, *, shared: bool) -> float:
    """Wait until the node's interface is shared, or is not any more; return how long it took, s."""
    began = time.monotonic()
    _wait(lambda: ("htb 4864:" in line.queues()) is shared)
    return time.monotonic() - began


def _wait(condition: Any) -> None:
    end = time.monotonic() + _WAIT_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("waited in vain")
        time.sleep(0.02)


def _do(*words: str, check: bool = True) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    if check and done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
