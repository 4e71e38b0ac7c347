"""Putting a fleet into the server and getting a token for each of its agents."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypeVar

from headroom.client import Client, HeadroomError, Unavailable
from lab.delivery import Gate

log = logging.getLogger(__name__)

#: Agents enrolled by one request.
CHUNK = 200
#: Importing a large inventory takes the server longer than anything else that we ask of it.
SETUP_TIMEOUT_S = 300.0
PUSH_TIMEOUT_S = 10.0

Answer = TypeVar("Answer")


class Stopped(HeadroomError):
    """The process was told to stop before the server answered."""


class Server:
    """One server: the client of the operator that sets the fleet up, and those of the agents."""

    def __init__(self, url: str, token: str, *, connections: int) -> None:
        self.setup = Client(url, token, timeout_s=SETUP_TIMEOUT_S)
        self._agents = Client(url, "", timeout_s=PUSH_TIMEOUT_S, connections=connections)

    @property
    def url(self) -> str:
        return self.setup.server_url

    def client(self, token: str) -> Client:
        """Return the client of the agent whose token this is. All agents share connections."""
        return self._agents.with_token(token)


@dataclass(frozen=True)
class AgentSpec:
    """An agent to enrol, and the nodes and sites that it may report for, by name."""

    name: str
    nodes: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()


def persist(call: Callable[[], Answer], *, stop: threading.Event) -> Answer:
    """Return the result of ``call``; while the server is unavailable, try again.

    Raises :class:`Stopped` once ``stop`` is set, and whatever else ``call`` raises.
    """
    gate = Gate()
    while not stop.wait(gate.wait_s()):
        try:
            return call()
        except Unavailable as exc:
            log.warning("server unavailable", extra={"why": exc})
            gate.failed(exc.retry_after_s)
    raise Stopped


def apply_inventory(client: Client, text: str, *, stop: threading.Event) -> None:
    """Make the server's inventory of the sites in ``text`` be as ``text`` says."""
    persist(partial(client.post_yaml, "/api/v1/fleet/apply", text), stop=stop)


def last_seen(client: Client, name: str, *, stop: threading.Event) -> float:
    """Return when the agent ``name`` was last heard, Unix seconds; 0 if never."""
    found = persist(partial(client.get, "/api/v1/agents", {"search": name}), stop=stop)
    for agent in found["results"]:
        if agent["name"] == name and agent["last_seen_at"]:
            return datetime.fromisoformat(agent["last_seen_at"]).timestamp()
    return 0.0


def enroll(client: Client, agents: Sequence[AgentSpec], *, stop: threading.Event) -> dict[str, str]:
    """Enrol ``agents`` and return their tokens by name. Tokens from earlier runs end here."""
    found: dict[str, str] = {}
    for at in range(0, len(agents), CHUNK):
        wanted = [
            {"name": agent.name, "nodes": agent.nodes, "sites": agent.sites}
            for agent in agents[at : at + CHUNK]
        ]
        post = partial(client.post, "/api/v1/agents", wanted, {"rotate": "1"})
        answer = persist(post, stop=stop)
        found.update((entry["name"], entry["token"]) for entry in answer)
    return found
