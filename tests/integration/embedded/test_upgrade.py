"""An installation of an earlier version is brought up to date, and goes on with all that it had."""

from __future__ import annotations

import gzip
import subprocess
import time
from pathlib import Path

import msgspec
import psycopg
import pytest

from config.embedded import EmbeddedServers
from config.embedded.binaries import find_postgres
from config.embedded.ports import choose_port
from headroom.client import Client
from tests.builders.batches import make_batch
from tests.integration.embedded.helpers import manage, until, up

OLD = Path(__file__).resolve().parents[2] / "data" / "upgrade" / "0.1.0.sql.gz"
COUNTS = (
    "SELECT (SELECT count(*) FROM accounts_user), (SELECT count(*) FROM accounts_apitoken),"
    " (SELECT count(*) FROM accounts_auditentry), (SELECT count(*) FROM fleet_gpu),"
    " (SELECT count(*) FROM admission_jobs_job)"
)
#: What people have written: two versions of a class, an objective that is retired, and a judgment.
WRITTEN = """
INSERT INTO admission_jobs_classversion (name, number, text, author, created_at) VALUES
    ('nightly', 1, E'name: nightly\\npriority: -10\\n', 'ada', now() - interval '2 days'),
    ('nightly', 2, E'name: nightly\\npriority: -20\\n', 'system', now() - interval '1 day');
UPDATE admission_slos_slo SET version = 3, retired_at = now() WHERE name = 'training-resumes';
INSERT INTO admission_slos_slojudgment
    (slo_id, event, is_good, at, clock_s, limit_s, job, phase, job_class, project)
SELECT id, 'old-job/train', true, now(), 1, 2, 'old-job', 'train', 'nightly', 'vision'
FROM admission_slos_slo WHERE name = 'training-begins';
"""
DOCUMENTS = (
    "SELECT (SELECT count(*) FROM policies_rules_ruleversion),"
    " (SELECT count(*) FROM policies_playbooks_playbookversion),"
    " (SELECT count(*) FROM admission_jobs_classversion),"
    " (SELECT count(*) FROM admission_slos_slo),"
    " (SELECT count(*) FROM admission_slos_slojudgment)"
)
NEW = (
    "SELECT count(*) FROM gpu_sample JOIN fleet_gpu AS gpu ON gpu.id = gpu_id"
    " JOIN fleet_node AS node ON node.id = gpu.node_id"
    " WHERE node.name = 'oslo-a01-n1' AND ts >= to_timestamp(%s)"
)

pytestmark = pytest.mark.slow


@pytest.fixture
def old(state_dir: Path) -> tuple[Path, tuple[int, ...], tuple[int, ...]]:
    """A state folder with the database of an old installation; and what was in that."""
    servers = EmbeddedServers(state_dir)
    servers.lock()
    servers.start()
    try:
        url = servers.superuser_url or ""
        program = find_postgres() / "psql"
        subprocess.run(
            [str(program), "--quiet", "--set=ON_ERROR_STOP=1", url],
            input=gzip.decompress(OLD.read_bytes()),
            stdout=subprocess.DEVNULL,
            check=True,
        )
        with psycopg.connect(url) as session:
            session.execute(WRITTEN.encode())
            counts = session.execute(COUNTS.encode()).fetchone()
            documents = session.execute(DOCUMENTS.encode()).fetchone()
    finally:
        servers.stop()
    assert counts is not None
    assert documents is not None
    return state_dir, counts, documents


def test_nothing_is_lost_and_everything_goes_on(
    old: tuple[Path, tuple[int, ...], tuple[int, ...]],
) -> None:
    state_dir, before, documents = old
    began, port = time.time(), choose_port()
    with up(state_dir, port):
        url = f"http://127.0.0.1:{port}"
        with psycopg.connect(_superuser_url(state_dir)) as session:
            after = session.execute(COUNTS.encode()).fetchone()
            documents_after = session.execute(DOCUMENTS.encode()).fetchone()
            superuser = session.execute(
                b"SELECT rolsuper FROM pg_roles WHERE rolname = 'headroom_app'"
            ).fetchone()
        assert after is not None
        # The machine's own GPUs and tokens may have come; nothing went.
        assert all(now >= then for now, then in zip(after, before, strict=True))
        assert superuser == (False,)
        assert documents_after is not None
        assert all(now >= then for now, then in zip(documents_after, documents, strict=True))

        # Tokens of people and agents hold, and what was acknowledged is not stored again.
        with Client(url, "hru_upgrade-admin") as admin:
            assert admin.get("/api/v1/jobs/old-job")["project"] == "vision"
            _check_documents(admin)
            found = admin.get("/api/v1/restrictions?kind=no_new_launches")["results"]
            (kept,) = [each for each in found if each["reason"] == "upgrade"]
            assert kept["scope"] == {"kind": "site", "name": "oslo"}
        with Client(url, "hra_upgrade") as agent:
            agent.push(make_batch("old-agent", "oslo-a01-n1", 8, ts=[time.time()]))
            agent.push(make_batch("old-agent", "oslo-a01-n1", 9, ts=[time.time()]))
            assert until(lambda: _durable(agent) == 9, 30)
        with psycopg.connect(_superuser_url(state_dir)) as session:
            new = session.execute(NEW.encode(), [began]).fetchone()
        assert new == (8,)

        # The log of before is chained.
        verified = manage(state_dir, "audit", "verify")
        assert verified.returncode == 0, verified.stdout + verified.stderr


def _check_documents(admin: Client) -> None:
    """What counted counts, with a reviewer who is not its author; what was retired stays so."""
    nightly = admin.get("/api/v1/classes/nightly")
    assert (nightly["number"], nightly["priority"]) == (2, -20)
    for path, expected in {
        "classes/nightly": [(2, "active"), (1, "retired")],
        "slos/training-resumes": [(3, "retired")],
        "slos/training-begins": [(1, "active")],
        "rules/rack-power": [(1, "active")],
        "playbooks/power-cap": [(1, "active")],
    }.items():
        versions = admin.get(f"/api/v1/{path}/versions")
        assert [(each["number"], each["state"]) for each in versions] == expected, path
        assert all(each["reviewer"] not in ("", each["author"]) for each in versions), path
    judged = admin.get("/api/v1/slos/training-begins/judgments?job=old-job")["results"]
    assert [each["event"] for each in judged] == ["old-job/train"]


def _durable(agent: Client) -> int:
    found: int = agent.get("/api/v1/telemetry/position", {"boot_id": "boot-1"})["durable_seq"]
    return found


def _superuser_url(state_dir: Path) -> str:
    record = msgspec.json.decode((state_dir / "postgres.json").read_bytes())
    return f"postgresql://headroom:{record['password']}@127.0.0.1:{record['port']}/headroom"
