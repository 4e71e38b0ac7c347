"""``headroom agent``: put the loop together and run it."""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headroom.agent.devices import Source
from headroom.agent.host import HostSource
from headroom.agent.loop import Agent, AgentSettings, Sampler
from headroom.agent.nvml import NvmlSource
from headroom.agent.spool import Spool
from headroom.client import Client
from headroom.settings import find_token
from headroom.signals import call_on_stop

__all__ = ["AgentOptions", "default_spool", "open_sources", "print_once", "run_agent"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AgentOptions:
    """What the command line says."""

    server: str
    token_file: Path | None
    settings: AgentSettings
    spool: Path
    spool_max_mb: float
    spool_max_hours: float


def default_spool() -> Path:
    """Return where the spool is kept when nothing is said."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "headroom" / "agent-spool.sqlite"


def open_sources() -> list[Source]:
    """Return all that can be read on this machine: GPUs where there is a driver, and the host."""
    host = HostSource()
    try:
        import pynvml
    except ImportError:
        logger.info("no GPU readings: nvidia-ml-py is not installed")
        return [host]
    try:
        return [NvmlSource(pynvml), host]
    except pynvml.NVMLError as exc:
        logger.info("no GPU readings", extra={"cause": exc})
        return [host]


def print_once(settings: AgentSettings) -> str:
    """Return one batch of this machine as JSON. Needs no server."""
    sources = open_sources()
    sampler = Sampler(settings, sources)
    sampler.sample()
    threading.Event().wait(settings.sample_s)  # rates need two looks
    sampler.sample()
    for source in sources:
        source.close()
    return msgspec.json.format(msgspec.json.encode(sampler.seal()), indent=2).decode()


def run_agent(options: AgentOptions, *, once: bool) -> bool:
    """Run the agent until SIGTERM or SIGINT, or once; return whether all went out when once."""
    token = find_token(options.token_file)
    spool = Spool(
        options.spool,
        max_bytes=int(options.spool_max_mb * 1024 * 1024),
        max_age_s=options.spool_max_hours * 3600,
    )
    with Client(options.server, token) as client:
        agent = Agent(options.settings, open_sources(), spool, client)
        if once:
            return agent.run_once()
        call_on_stop(agent.stop)
        agent.run()
    return True
