"""An installation is backed up while it works, is lost, and is restored: as the guide says.

The commands are those of docs/how-to/operate.md itself, with other folders in them.
"""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest
import urllib3
from psycopg.sql import SQL, Identifier

from bench.stack import Stack
from config.embedded.ports import choose_port
from headroom.client import Client
from headroom.contracts import TelemetryBatch
from tests.integration.embedded.helpers import REPOSITORY, launched, of_a_shell, until, up
from tests.integration.faults import ledger
from tests.integration.faults.agents import RealAgent, enroll

GUIDE = (REPOSITORY / "docs" / "how-to" / "operate.md").read_text()
FIELDS = ["energy_j", "power_w", "temp_c"]
#: Partitions come and go while one looks; their tables have all rows.
_TABLES = """
SELECT relname FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
"""
_MARK = """
SELECT mark FROM telemetry_ingestposition AS position
JOIN telemetry_agent AS agent ON agent.id = position.agent_id WHERE agent.name = 'fault-n1'
"""
_JOB = {
    "name": "kept",
    "project": "vision",
    "class": "low-power-experimentation",
    # More than there is: it waits.
    "phases": [{"name": "train", "gang": {"gpus": 64}, "walltime_s": 600, "command": ["true"]}],
}

pytestmark = pytest.mark.slow


def shell_blocks(section: str) -> list[str]:
    """Return the commands of a section of the guide."""
    text = re.split(rf"^## {section}$", GUIDE, flags=re.MULTILINE)[1].split("\n## ")[0]
    return re.findall(r"^ *```sh\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)


class Guide:
    """Does what the guide says, with folders of ours instead of those that it names."""

    def __init__(self, folder: Path, *, old: Path, new: Path) -> None:
        self._instead = {
            ".venv/bin/python": sys.executable,
            "STATE=.headroom": f"STATE={old}",
            "/srv/restored": str(new),
            "headroom.dump": str(folder / "headroom.dump"),
            "headroom.cold": str(folder / "headroom.cold"),
            "headroom.env": str(folder / "headroom.env"),
        }

    def follow(self, block: str) -> str:
        for word, ours in self._instead.items():
            block = block.replace(word, shlex.quote(ours))
        assert not re.search(r"/srv|(?<![\w/])\.(headroom|venv)", block), block
        done = subprocess.run(
            ["sh", "-eu", "-c", block],
            cwd=REPOSITORY,
            env=of_a_shell(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@contextmanager
def installation(state_dir: Path, port: int) -> Iterator[Stack]:
    with up(state_dir, port) as (process, _):
        yield Stack(f"http://127.0.0.1:{port}", state_dir, psutil.Process(process.pid))


def counts(database_url: str) -> dict[str, int]:
    """Return how many rows each table has."""
    with psycopg.connect(database_url) as session:
        names = [name for (name,) in session.execute(_TABLES).fetchall()]
        return {name: _count(session, name) for name in names}


def _count(session: psycopg.Connection, table: str) -> int:
    found = session.execute(SQL("SELECT count(*) FROM {}").format(Identifier(table))).fetchone()
    assert found is not None
    return int(found[0])


def mark(database_url: str) -> int:
    """Return up to which seq all is stored that the agent sealed. It holds its spool locked."""
    with psycopg.connect(database_url) as session:
        found = session.execute(_MARK).fetchone()
    return 0 if found is None else int(found[0])


def status_of(url: str, cookie: str) -> int:
    return urllib3.request("GET", url, headers={"Cookie": cookie}, redirect=False).status


def stands_still(agent: RealAgent) -> None:
    """Stop an agent: it hears of nothing more that is stored."""
    assert agent.process is not None
    agent.process.send_signal(signal.SIGSTOP)


def goes_on(agent: RealAgent) -> None:
    assert agent.process is not None
    agent.process.send_signal(signal.SIGCONT)


def outside(table: ledger.Table, first_s: float, last_s: float) -> ledger.Table:
    """Return the readings before the first time and after the last one, s."""
    return table[(table[:, 0] < first_s - 0.01) | (table[:, 0] > last_s + 0.01)]


def test_an_installation_is_restored_as_the_guide_says(open_dir: Path, tmp_path: Path) -> None:
    old, new, port = open_dir / "old", open_dir / "new", choose_port()
    guide = Guide(tmp_path, old=old, new=new)
    (back_up,) = shell_blocks("Back up")
    restore, start, look = shell_blocks("Restore")
    assert start == "HEADROOM_STATE_DIR=/srv/restored make run\n"
    token_file = tmp_path / "token"
    with ExitStack() as at_the_end:
        with installation(old, port) as stack:
            database = stack.environment["DATABASE_URL"]
            token_file.write_text(stack.credential("operator_token"))
            session = stack.credential("session_cookie")
            (agent,) = enroll(stack, token_file, tmp_path, 1)
            at_the_end.callback(agent.close)
            with Client(stack.url, token_file.read_text()) as operator:
                operator.post("/api/v1/projects", {"name": "vision"})
                operator.post("/api/v1/jobs", _JOB)
            agent.start()
            assert until(lambda: mark(database) > 3, 60)

            (old / "cold").mkdir(exist_ok=True)
            (old / "cold" / "a-file").write_text("of last week")
            before = counts(database)
            guide.follow(back_up)
            after = counts(database)
            seen = mark(database)
            assert until(lambda: mark(database) > seen + 3, 30)
            stands_still(agent)
            acknowledged = mark(database)
        # All of it is lost, and the agent goes on without a server.
        shutil.rmtree(old)
        goes_on(agent)

        guide.follow(restore)
        assert (new / "cold" / "a-file").read_text() == "of last week"
        with launched(new) as servers:
            restored = counts(servers.database_url)
            dumped = mark(servers.database_url)
        assert restored.keys() == before.keys() == after.keys()
        for name, rows in restored.items():
            least, most = sorted((before[name], after[name]))
            assert least <= rows <= most, name
        assert restored["gpu_sample"] > 0 < restored["admission_jobs_job"]
        assert dumped < acknowledged

        with installation(new, port) as stack:
            with Client(stack.url, token_file.read_text()) as operator:
                assert operator.get("/api/v1/me")["username"] == "bench-operator"
                assert operator.get("/api/v1/jobs/kept")["project"] == "vision"
            assert status_of(f"{stack.url}/", session) == 200
            guide.follow(look)
            _everything_that_it_held_is_there(stack, agent, dumped, acknowledged)


def _everything_that_it_held_is_there(
    stack: Stack, agent: RealAgent, dumped: int, acknowledged: int
) -> None:
    """What was stored only between dump and loss is gone, as the guide says. Nothing else is."""
    database = stack.environment["DATABASE_URL"]
    assert until(lambda: mark(database) > acknowledged + 3, 60)
    agent.stop()
    sealed = agent.sealed()
    assert until(lambda: mark(database) == max(sealed), 30)
    assert agent.dropped() == 0
    gone = [ts for seq in range(dumped + 1, acknowledged + 1) for ts in _times(sealed[seq])]
    expected = outside(ledger.sealed_rows(agent, "gpus", FIELDS), min(gone), max(gone))
    found = outside(ledger.stored_rows(stack, agent, "gpus", FIELDS), min(gone), max(gone))
    assert expected[0, 0] < min(gone) <= max(gone) < expected[-1, 0]
    assert ledger.differences(expected, found) == []
    assert ledger.doubles(stack) == 0


def _times(batch: TelemetryBatch) -> list[float]:
    return [ts for report in batch.nodes if report.gpus is not None for ts in report.gpus.ts]
