"""The audit log's way to syslog, with a real receiver that dies and comes back."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from pytest_django import Settings

from accounts import audit, audit_chain, shipping, syslog
from accounts.chain import Link, check
from accounts.models import AuditShipment
from accounts.tasks import ship_audit
from config import checks
from config.embedded.ports import choose_port

pytestmark = pytest.mark.django_db

MESSAGE = re.compile(
    rb"<109>1 (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z) (\S+) headroom audit (\S+)"
    rb' \[audit@32473 position="(\d+)" previous="([0-9a-f]{64})" hash="([0-9a-f]{64})"( cut="1")?\]'
    rb" (.*)",
    re.DOTALL,
)


@contextmanager
def receiving(kind: str, place: str, file: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(Path(__file__).with_name("receiver.py")), kind, place, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "listening\n"
        try:
            yield process
        finally:
            process.kill()


def received(file: Path) -> list[Link]:
    found = []
    for line in file.read_text().splitlines():
        fields = MESSAGE.fullmatch(bytes.fromhex(line))
        assert fields is not None, bytes.fromhex(line)
        position, previous, made, _, content = fields.groups()[3:]
        found.append(
            audit_chain.Exported(
                int(position), previous.decode(), made.decode(), content.decode()
            ).link()
        )
    return found


def write(count: int) -> None:
    """Add entries, linked at once as by a commit."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    for each in range(count):
        audit.record("alice", "fleet.apply", "Å “quoted” ] \\ \n", number=each)


@pytest.fixture
def port(settings: Settings) -> str:
    chosen = choose_port()
    settings.AUDIT_SYSLOG_URL = f"tcp://127.0.0.1:{chosen}"
    return str(chosen)


def test_what_arrives_can_be_checked_by_whoever_receives_it(port: str, tmp_path: Path) -> None:
    write(3)
    with receiving("tcp", port, tmp_path / "log"):
        call_command("audit", "ship")
    assert [head.position for head in check(received(tmp_path / "log"))] == [1, 2, 3]


def test_nothing_is_lost_while_the_receiver_is_away(port: str, tmp_path: Path) -> None:
    file = tmp_path / "log"
    write(2)
    with receiving("tcp", port, file) as first:
        ship_audit()
        first.send_signal(signal.SIGKILL)
        first.wait(10)
    write(700)
    with pytest.raises(CommandError, match="Stopped at position 2: ConnectionRefusedError"):
        call_command("audit", "ship")
    ship_audit()
    cursor = AuditShipment.objects.get()
    assert (cursor.position, cursor.failing_since is None) == (2, False)
    with receiving("tcp", port, file):
        ship_audit()
    assert [head.position for head in check(received(file))] == list(range(1, 703))
    cursor.refresh_from_db()
    assert (cursor.position, cursor.failing_since, cursor.last_error) == (702, None, "")


def test_what_a_receiver_took_but_never_read_is_sent_again(port: str, tmp_path: Path) -> None:
    write(5)
    receiver = syslog.Receiver("tcp", "127.0.0.1", int(port))
    messages = [
        syslog.message(audit_chain.Exported.of(link), "host") for link in audit_chain.links()
    ]
    with receiving("deaf", port, tmp_path / "log") as deaf, ThreadPoolExecutor(1) as pool:
        sending = pool.submit(syslog.deliver, receiver, messages)
        with pytest.raises(TimeoutError):
            sending.result(0.5)
        deaf.send_signal(signal.SIGKILL)
        with pytest.raises(syslog.Undelivered, match="ConnectionResetError"):
            sending.result(10)


@pytest.mark.parametrize("kind", ["udp", "unix"])
def test_datagrams_are_sent_too(kind: str, tmp_path: Path, settings: Settings) -> None:
    place = str(tmp_path / "socket") if kind == "unix" else str(choose_port())
    settings.AUDIT_SYSLOG_URL = f"unix://{place}" if kind == "unix" else f"udp://127.0.0.1:{place}"
    write(2)
    audit.record("alice", "class.draft", "long", text="x" * 100_000)
    assert "Error" in shipping.step().error
    with receiving(kind, place, tmp_path / "log"):
        assert shipping.step() == shipping.Shipped(3, 3)
        for _ in range(100):
            if len((tmp_path / "log").read_text().splitlines()) == 3:
                break
            select_a_moment()
    first, second, third = (tmp_path / "log").read_text().splitlines()
    assert b'cut="1"' in bytes.fromhex(third)
    (tmp_path / "log").write_text(f"{first}\n{second}\n")
    assert [head.position for head in check(received(tmp_path / "log"))] == [1, 2]


def select_a_moment() -> None:
    import time

    time.sleep(0.05)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the command openssl")
def test_a_receiver_by_tls_has_to_be_who_it_should_be(tmp_path: Path, settings: Settings) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "ca")],
        check=True, capture_output=True,
    )  # fmt: skip
    (tmp_path / "cert.pem").write_text(
        (tmp_path / "key").read_text() + (tmp_path / "ca").read_text()
    )
    port = str(choose_port())
    settings.AUDIT_SYSLOG_URL = f"tls://127.0.0.1:{port}"
    write(2)
    with receiving("tls", port, tmp_path / "log"):
        settings.AUDIT_SYSLOG_CA = str(tmp_path / "ca")
        assert shipping.step() == shipping.Shipped(2, 2)
    assert [head.position for head in check(received(tmp_path / "log"))] == [1, 2]
    write(1)
    with receiving("tls", port, tmp_path / "log"):
        settings.AUDIT_SYSLOG_CA = ""
        assert "CERTIFICATE_VERIFY_FAILED" in shipping.step().error


def test_without_a_receiver_nothing_is_done() -> None:
    write(1)
    ship_audit()
    assert not AuditShipment.objects.exists()
    with pytest.raises(CommandError, match="AUDIT_SYSLOG_URL is not set"):
        call_command("audit", "ship")


@pytest.mark.parametrize("url", ["tcp://", "http://host:1", "unix://log", "udp:host", "tcp://h/x"])
def test_an_address_that_is_none_stops_the_start(url: str, settings: Settings) -> None:
    settings.AUDIT_SYSLOG_URL = url
    (found,) = checks.audit_syslog()
    assert found.id == "headroom.E010"
    assert "udp://host:514" in found.msg
