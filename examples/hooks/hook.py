"""A hook for playbooks: takes signed calls of Headroom, and runs one of the commands in its file.

It runs what its operator has listed and nothing else, without a shell, one command after another. A
call that comes twice is carried out once. Run it where Ansible or kubectl is:

    python examples/hooks/hook.py hook.toml
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import queue
import re
import subprocess
import sys
import threading
import time
import tomllib
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_MOST_BYTES = 64 * 1024
_MOST_AGE_S = 300.0
#: What may stand in the place of a value. None begins with a dash: it would be an option.
_VALUE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:@+-]{0,299}")

log = logging.getLogger("hook")


class Refused(Exception):
    """A call is not carried out. ``status``: what it is answered with."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True)
class Hook:
    """The commands by name, the secret of the channel, and a folder with the calls that were taken.

    In an argument of a command ``{name}`` stands for the value of that name in the call.
    """

    commands: dict[str, list[str]]
    secret: bytes
    taken: Path
    waiting: queue.SimpleQueue[list[str]] = field(default_factory=queue.SimpleQueue)

    def take(self, headers: Any, body: bytes, now: float) -> None:
        """Have a call be carried out, once. Raises :class:`Refused`."""
        self._check(headers, body, now)
        command, key = self._command(body), headers.get("Idempotency-Key", "")
        if not key:
            raise Refused(400, "Idempotency-Key: there is none, and the call could come twice")
        try:
            (self.taken / hashlib.sha256(key.encode()).hexdigest()).touch(exist_ok=False)
        except FileExistsError:
            return
        self.waiting.put(command)

    def _check(self, headers: Any, body: bytes, now: float) -> None:
        at = headers.get("X-Headroom-Timestamp", "")
        signed = hmac.new(self.secret, at.encode() + b"." + body, hashlib.sha256).hexdigest()
        told = headers.get("X-Headroom-Signature", "")
        if not hmac.compare_digest(told.encode(), f"v1={signed}".encode()):
            raise Refused(401, "the signature is not that of the secret")
        if abs(now - int(at)) > _MOST_AGE_S:
            raise Refused(401, "it was signed too long ago: compare the clocks")

    def _command(self, body: bytes) -> list[str]:
        """Return the command of a call, its values in place."""
        try:
            call = json.loads(json.loads(body)["body"])
            name, values = call.pop("run"), call
            command = self.commands[name]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise Refused(400, f"body: no command of this hook is called: {error!r}") from None
        for key, value in values.items():
            if not (isinstance(value, str) and _VALUE.fullmatch(value)):
                raise Refused(400, f"body: {key}: {value!r} is not a plain word")
        try:
            return [each.format_map(values) for each in command]
        except (KeyError, ValueError) as error:
            raise Refused(400, f"body: {name} needs {error}") from None

    def carry_out(self) -> None:
        """Run what was taken, for as long as the process lives."""
        while True:
            command = self.waiting.get()
            began_s = time.monotonic()
            try:
                code: object = subprocess.run(command, check=False).returncode  # noqa: S603
            except OSError as error:
                code = error
            log.info("%s: %s after %.0f s", command, code, time.monotonic() - began_s)


def serve(hook: Hook, host: str, port: int) -> ThreadingHTTPServer:
    """Return a server that takes calls for ``hook``."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                length = int(self.headers.get("Content-Length", "0"))
                if not 0 < length <= _MOST_BYTES:
                    raise Refused(413, f"a body of 1 to {_MOST_BYTES} bytes is taken")
                hook.take(self.headers, self.rfile.read(length), time.time())
                status, said = 202, "taken"
            except Refused as error:
                status, said = error.status, str(error)
            self.send_response(status)
            self.send_header("Content-Length", str(len(said.encode())))
            self.end_headers()
            self.wfile.write(said.encode())

    return ThreadingHTTPServer((host, port), Handler)


def main(path: str) -> None:
    """Serve the hook that a file describes."""
    given = tomllib.loads(Path(path).read_text())
    taken = Path(given["taken"])
    taken.mkdir(parents=True, exist_ok=True)
    hook = Hook(given["commands"], Path(given["secret_file"]).read_bytes().strip(), taken)
    if not hook.secret:
        sys.exit(f"{given['secret_file']} is empty: calls could come from anybody")
    threading.Thread(target=hook.carry_out, daemon=True).start()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with serve(hook, given.get("host", "127.0.0.1"), given["port"]) as server:
        server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
