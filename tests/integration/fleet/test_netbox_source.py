"""NetBox over HTTP: a server of the test's own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from django.core.management import CommandError, call_command

from fleet.models import Gpu, Node
from fleet.netbox import NetBoxError
from fleet.netbox.source import read
from tests.builders.inventory import HARDWARE
from tests.integration.fleet.conftest import import_fleet

DATA = Path(__file__).parents[2] / "data" / "netbox"


@dataclass
class NetBox:
    """Answers with the test data, one record a page."""

    url: str = ""
    token: str = "Token secret"
    next_host: str = "http://inside.example:8000"
    asked: list[str] = field(default_factory=list)
    body: bytes | None = None


@pytest.fixture
def netbox() -> Iterator[NetBox]:
    state = NetBox()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked.append(self.path)
            if self.headers["Authorization"] != state.token:
                self.send_error(403)
                return
            parts = urlsplit(self.path)
            start = int(parse_qs(parts.query).get("offset", ["0"])[0])
            file = DATA / f"{parts.path.strip('/').rsplit('/', 1)[-1]}.json"
            results = json.loads(file.read_text())["results"]
            more = start + 1 < len(results)
            following = f"{state.next_host}{parts.path}?limit=1&offset={start + 1}"
            page = {"count": len(results), "next": following if more else None}
            body = (
                state.body or json.dumps({**page, "results": results[start : start + 1]}).encode()
            )
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


def test_pages_are_followed_on_the_host_that_was_given(netbox: NetBox) -> None:
    assert read(netbox.url, "secret") == read(str(DATA), "")
    assert len(netbox.asked) == 18
    assert all(path.startswith("/api/dcim/") for path in netbox.asked)


def test_new_tokens_are_bearers(netbox: NetBox) -> None:
    netbox.token = "Bearer nbt_key.secret"
    assert read(f"{netbox.url}/api/", "nbt_key.secret").sites


def test_a_refused_token_is_said_so(netbox: NetBox) -> None:
    with pytest.raises(NetBoxError, match="refuses the token"):
        read(netbox.url, "wrong")


@pytest.mark.parametrize("body", [b"<html>", b"{}", b"[1]"])
def test_an_answer_that_is_not_netbox_is_said_so(body: bytes, netbox: NetBox) -> None:
    netbox.body = body
    with pytest.raises(NetBoxError, match="not what NetBox answers"):
        read(netbox.url, "secret")


def test_an_endless_answer_is_cut_off(netbox: NetBox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleet.netbox.source._MAX_PAGE_BYTES", 100)
    with pytest.raises(NetBoxError, match="longer than"):
        read(netbox.url, "secret")


def test_nobody_there_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleet.netbox.source._RETRIES", False)
    with pytest.raises(NetBoxError, match=r"127\.0\.0\.1"):
        read("http://127.0.0.1:9", "")


@pytest.mark.django_db
def test_the_command_imports_with_the_token_of_the_environment(
    netbox: NetBox, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import_fleet(HARDWARE)
    monkeypatch.setenv("MY_TOKEN", "secret")
    call_command("fleet", "netbox", netbox.url, "--token-env", "MY_TOKEN", "--yes")
    out = capsys.readouterr()
    assert "Applied." in out.out
    assert "oslo-lost left out" in out.err
    assert "secret" not in out.out + out.err
    assert (Node.objects.count(), Gpu.objects.count()) == (3, 20)
    call_command("fleet", "netbox", netbox.url, "--token-env", "MY_TOKEN", "--yes")
    assert "Nothing to change." in capsys.readouterr().out


@pytest.mark.django_db
def test_the_command_says_what_is_wrong(netbox: NetBox) -> None:
    with pytest.raises(CommandError, match="refuses the token"):
        call_command("fleet", "netbox", netbox.url, "--token-env", "UNSET_TOKEN", "--yes")


@pytest.mark.django_db
def test_unknown_gpu_models_are_a_problem_of_the_inventory() -> None:
    with pytest.raises(CommandError, match="no GPU model 'H100-SXM5-80GB'"):
        call_command("fleet", "netbox", str(DATA), "--yes")
