"""What a resume at another site would lose, live on the page: a WAN half used, then cut."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bench.stack import Stack, running
from headroom.client import Client
from tests.browser.signing_in import text_of_page
from tests.integration.agent.loops import EXAMPLES, Job, wait_for
from tests.integration.agent.wan import Wan
from tests.integration.faults.agents import RealAgent, enroll
from tests.object_store.store import BUCKET, ObjectStore

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None,
        reason="needs PyTorch: pip install -r examples/ddp/requirements.txt",
    ),
]

HOME, AWAY = "bergen", "oslo"
#: What it states, and what it does: writing, sending and telling take some seconds.
INTERVAL_S = 20.0
EVERY, STEP_S = 140, 0.1
#: A checkpoint of the example takes a second of what others leave of it.
WAN_BITS_PER_S = 8_000_000
#: With the checkpoints on top half of it is used: what counts is the 95th percentile of minutes.
OTHERS_USE = 0.35
#: Jobs are judged once in five minutes, the promise is measured once a minute.
JUDGED_WITHIN_S = 480.0
PROMISE = "checkpoints-elsewhere"
_WAN_LINK = f"""
links:
  - {{name: {HOME}/wan, kind: wan, site: {HOME}, peer_site: {AWAY},
     capacity_bits_per_s: {WAN_BITS_PER_S}}}
"""


@dataclass
class Kept(Job):
    """Runs at home, and keeps its checkpoints at home and in a store at the other site."""

    far: ObjectStore = field(kw_only=True)

    def command(self) -> list[str]:
        near = str(self.folder / "near")
        train = [sys.executable, str(EXAMPLES / "kept.py"), *self.options(), *self.pace()]
        return [
            sys.executable, "-m", "headroom", "checkpoints", "keep", near,
            "--to", f"s3://{BUCKET}/ddp", "--to-site", AWAY, "--rate-mbit-per-s", "4", "--",
            *train, "--checkpoints", near, "--step-log", str(self.log),
        ]  # fmt: skip

    def phase(self) -> dict[str, Any]:
        told = super().phase()
        told["locality"] = {"required": "rack", "sites": [HOME]}
        told["checkpoint"] = {"interval_s": INTERVAL_S}
        told["env"] |= self.far.environment
        return told


@pytest.fixture
def wan() -> Iterator[Wan]:
    with Wan(WAN_BITS_PER_S) as line:
        yield line


@pytest.fixture
def far(wan: Wan, tmp_path: Path) -> Iterator[ObjectStore]:
    """A store at the other end of the WAN."""
    (tmp_path / "far").mkdir()
    with ObjectStore(tmp_path / "far", wan.far, wan.there()) as store:
        yield store


@pytest.fixture
def stack() -> Iterator[Stack]:
    with running() as started:
        yield started


@pytest.fixture
def agent(stack: Stack, operator: Client, tmp_path: Path, wan: Wan) -> Iterator[RealAgent]:
    """The agent of the machine at home, which is also where the WAN begins."""
    links = f'links = {{{wan.interface} = "{HOME}/wan"}}'
    (tmp_path / "agent.toml").write_text(f"[ethernet]\n{links}\n")
    more = ("--allow-jobs", "--shared-user", "--config", str(tmp_path / "agent.toml"))
    agents = enroll(
        stack, tmp_path / "operator-token", tmp_path, 2, more=more, sites=(HOME, AWAY),
        further=_WAN_LINK,
    )  # fmt: skip
    here = agents[0]
    # It speaks for its whole site, links and all.
    whole = [{"name": here.name, "sites": [HOME]}]
    (made,) = operator.post("/api/v1/agents?rotate=1", whole)
    here.token_file.write_text(made["token"])
    here.machine.gpu(util=0, power_mw=40_000)
    here.start()
    yield here
    for each in agents:
        each.close()


@pytest.fixture
def job(operator: Client, agent: RealAgent, far: ObjectStore, tmp_path: Path) -> Iterator[Kept]:
    """A job that runs for longer than the test, and no longer than that."""
    made = Kept(operator, tmp_path, steps_to_make=100_000, every=EVERY, step_s=STEP_S, far=far)
    made.submit()
    yield made
    operator.post(f"/api/v1/jobs/{made.name}/cancel", {"why": "the test is over"})
    wait_for(lambda: made.told()["state"] == "cancelled", "its end")


def promise(operator: Client) -> dict[str, Any]:
    """Return what is known of the promise now."""
    (found,) = [each for each in operator.get("/api/v1/slos") if each["name"] == PROMISE]
    return dict(found)


def until(operator: Client, is_so: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
    """Wait until something is so of the promise, and return what is known of it then."""

    def look() -> dict[str, Any] | None:
        found = promise(operator)
        return found if is_so(found) else None

    return dict(wait_for(look, what, JUDGED_WITHIN_S))


def test_a_cut_of_the_wan_shows_on_the_page_while_it_lasts(
    operator: Client, job: Kept, wan: Wan, stack: Stack
) -> None:
    wan.use(OTHERS_USE)
    wait_for(lambda: job.known_at(AWAY) > 0, "a checkpoint at the other site")

    sent, since = wan.sent_bytes(), time.monotonic()
    half_used = until(operator, lambda promised: promised["events"] > 0, "a verdict")
    use = 8 * (wan.sent_bytes() - sent) / (time.monotonic() - since) / WAN_BITS_PER_S
    assert OTHERS_USE <= use <= 0.5
    assert (half_used["bad"], half_used["good_share"]) == (0, 1.0)
    assert "none in danger" in text_of_page(stack, "/slos/")

    wan.cut()
    cut_at = job.step
    cut = until(operator, lambda promised: promised["bad"] > 0, "what is at stake")
    assert cut["good_share"] < 1.0
    assert f"{PROMISE} is missed" in text_of_page(stack, "/slos/")
    assert job.known_at(AWAY) <= cut_at
    assert job.told()["state"] == "running"

    wan.mend()
    wait_for(lambda: job.known_at(AWAY) > cut_at, "a checkpoint at the other site again")
    before = promise(operator)
    after = until(operator, lambda promised: promised["events"] > before["events"], "another one")
    assert after["bad"] == before["bad"]
    assert f"{before['bad']} of {after['events']}" in text_of_page(stack, "/slos/")
