"""`python -m config.up` as a user starts it: everything, on a state directory of its own."""

import http.client
import os
import signal
import sys
from pathlib import Path

import pytest

from config.embedded.ports import choose_port
from config.embedded.state import read_env
from tests.integration.embedded.helpers import (
    answers,
    living_with,
    running,
    serves,
    until,
    up,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.mark.slow(
    beside="tests/unit/config/test_up.py::test_senders_stop_before_intake_and_intake_before_storage"
)
def test_it_starts_stops_in_order_and_leaves_nothing_even_when_killed(state_dir: Path) -> None:
    port = choose_port()
    with up(state_dir, port) as (process, shown):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/readyz")
        assert connection.getresponse().status == 200
        connection.close()
        settings = read_env(state_dir / "env")
        assert settings["HEADROOM_URL"] == f"http://127.0.0.1:{port}"
        assert serves(settings["DATABASE_URL"])
        assert answers(settings["REDIS_URL"])

        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        text = shown.read_text()
    order = ["Granian shutdown completed", "worker: Warm shutdown", "Stopping the servers"]
    assert [text.index(words) for words in order] == sorted(text.index(words) for words in order)
    assert "killed" not in text
    assert living_with("HEADROOM_STATE_DIR", str(state_dir)) == []
    assert running(str(state_dir)) == []

    with up(state_dir, port) as (process, shown):
        assert read_env(state_dir / "env") == settings
        assert len(living_with("HEADROOM_STATE_DIR", str(state_dir))) > 5

        postmaster = (state_dir / "postgres" / "postmaster.pid").read_text().split()[0]
        os.kill(int(postmaster), signal.SIGKILL)
        assert until(lambda: "postgres| died; started again" in shown.read_text())
        assert until(lambda: serves(settings["DATABASE_URL"]))

        process.kill()
        assert until(lambda: not living_with("HEADROOM_STATE_DIR", str(state_dir)))
        assert until(lambda: not running(str(state_dir)))
        assert until(lambda: not answers(settings["REDIS_URL"]))
