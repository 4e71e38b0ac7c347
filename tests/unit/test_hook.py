"""The example hook carries out what a playbook calls for: what is listed, signed, and once."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SECRET = b"s3cret"
CALL = {"run": "note", "rack": "oslo/A01", "version": "580.2"}
_HOOK = Path(__file__).resolve().parents[2] / "examples" / "hooks" / "hook.py"
#: Writes its arguments as a line of a file.
_NOTE = "import sys; open(sys.argv[1], 'a').write(repr(sys.argv[2:]) + chr(10))"


class Running(NamedTuple):
    """A hook in a process of its own, and the file that its command writes to."""

    url: str
    notes: Path


@pytest.fixture
def hook(tmp_path: Path) -> Iterator[Running]:
    notes, secret = tmp_path / "notes", tmp_path / "secret"
    secret.write_bytes(SECRET + b"\n")
    note = [sys.executable, "-c", _NOTE, str(notes), "--limit", "{rack}", "driver={version}"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    given = {"port": port, "secret_file": str(secret), "taken": str(tmp_path / "taken")}
    commands = {"note": note, "gone": [str(tmp_path / "gone")]}
    # What JSON makes of texts, numbers and lists is TOML too.
    lines = [f"{name} = {json.dumps(value)}" for name, value in given.items()]
    lines += ["[commands]", *(f"{name} = {json.dumps(value)}" for name, value in commands.items())]
    (tmp_path / "hook.toml").write_text("\n".join(lines))
    with subprocess.Popen([sys.executable, str(_HOOK), str(tmp_path / "hook.toml")]) as process:
        _wait_for(port, process)
        yield Running(f"http://127.0.0.1:{port}/", notes)
        process.terminate()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise AssertionError("the hook does not listen")


def call(
    hook: Running, said: object, *, key: str = "playbook:1/0", secret: bytes = SECRET,
    age_s: float = 0.0,
) -> int:  # fmt: skip
    """Call the hook as a channel does; return the status of the answer."""
    body = json.dumps({"title": "x", "body": json.dumps(said)}).encode()
    at = str(int(time.time() - age_s))
    signed = hmac.new(secret, at.encode() + b"." + body, hashlib.sha256).hexdigest()
    headers = {
        "X-Headroom-Timestamp": at, "X-Headroom-Signature": f"v1={signed}", "Idempotency-Key": key,
    }  # fmt: skip
    request = urllib.request.Request(hook.url, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def lines(hook: Running, count: int) -> list[str]:
    """Wait until so many commands have left a note, and return them."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        found = hook.notes.read_text().splitlines() if hook.notes.exists() else []
        if len(found) >= count:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{count} commands did not run")


def test_it_runs_the_listed_command_with_the_values_of_the_call(hook: Running) -> None:
    assert call(hook, CALL) == 202
    assert lines(hook, 1) == ["['--limit', 'oslo/A01', 'driver=580.2']"]


def test_a_call_that_comes_again_is_not_carried_out_again(hook: Running) -> None:
    keys = ["playbook:1/0", "playbook:1/0", "playbook:1/0/undo", "playbook:1/0"]
    assert [call(hook, CALL, key=key) for key in keys] == [202] * 4
    # They run in turn: what would have run twice would have before the last one.
    assert call(hook, {**CALL, "rack": "last"}, key="last") == 202
    assert [("last" in each) for each in lines(hook, 3)] == [False, False, True]


def test_a_command_that_is_not_there_does_not_stop_the_next(hook: Running) -> None:
    assert call(hook, {"run": "gone"}, key="a") == 202
    assert call(hook, CALL, key="b") == 202
    assert len(lines(hook, 1)) == 1


def test_what_is_not_signed_with_the_secret_is_old_or_has_no_key_is_refused(hook: Running) -> None:
    assert call(hook, CALL, secret=b"other") == 401
    assert call(hook, CALL, age_s=400.0) == 401
    # It could come twice.
    assert call(hook, CALL, key="") == 400
    assert call(hook, {**CALL, "rack": "last"}) == 202
    assert len(lines(hook, 1)) == 1


def test_what_is_not_listed_or_no_plain_word_is_refused(hook: Running) -> None:
    wrong: list[object] = [
        {"run": "rm"}, {}, [], "note", {**CALL, "run": ["note"]},
        {"run": "note", "rack": "oslo/A01"},
        {**CALL, "rack": "--inventory=/tmp/x"}, {**CALL, "rack": "a b"}, {**CALL, "rack": 3},
        {**CALL, "version": ""},
    ]  # fmt: skip
    for said in wrong:
        assert call(hook, said) == 400, said
    assert call(hook, {**CALL, "rack": "last"}) == 202
    assert len(lines(hook, 1)) == 1
