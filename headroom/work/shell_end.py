"""One end of a shell: what is said goes in numbered frames, and is sent again until it is taken."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator

import msgspec

from headroom.client import Client
from headroom.errors import HeadroomError, Unavailable
from headroom.work.contract import MAX_FRAME_BYTES, ShellAnswer, ShellFrame, ShellKind, ShellSide

__all__ = ["ShellEnd"]

#: The server keeps one that waits for less than this, s.
_TIMEOUT_S = 40.0
#: How long to try again while the server is away, and how often, s.
_PATIENCE_S, _AGAIN_S = 30.0, 0.5
#: How soon to try again while the other end has not taken what was said before, s.
_FULL_S = 0.02


class ShellEnd:
    """An end of a session. One thread may say, and another listen.

    ``over`` is why it is over, empty where the command has ended; None: it goes on.
    """

    def __init__(self, server_url: str, session: str, side: ShellSide, secret: str) -> None:
        self._client = Client(server_url, secret, timeout_s=_TIMEOUT_S)
        self._path = f"/api/v1/shells/{session}/{side}?connection={secrets.token_hex(16)}"
        self._said = 0
        self._lock = threading.Lock()
        self.over: str | None = None
        self.exit_code: int | None = None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def say(self, kind: ShellKind, data: bytes) -> bool:
        """Say something; return when it was taken, or False where it is over.

        What the other end is slow to take is waited for.
        """
        for at in range(0, max(len(data), 1), MAX_FRAME_BYTES):
            if not self._say(kind, data[at : at + MAX_FRAME_BYTES]):
                return False
        return True

    def _say(self, kind: ShellKind, data: bytes) -> bool:
        with self._lock:
            frame = ShellFrame(number=self._said + 1, kind=kind, data=data)
            body = msgspec.msgpack.encode([frame])
            while self.over is None:
                answer = self._asked("POST", self._path, body)
                if answer is None:
                    return False
                if answer.last >= frame.number:
                    self._said = frame.number
                    return True
                self._note(answer)
                time.sleep(_FULL_S)
            return False

    def listen(self) -> Iterator[ShellFrame]:
        """Yield what the other end says until it is over."""
        after = 0
        while True:
            answer = self._asked("GET", f"{self._path}&after={after}", None)
            if answer is None:
                return
            for frame in answer.frames:
                after = frame.number
                yield frame
            if not answer.frames:
                self._note(answer)
                if self.over is not None:
                    return

    def _note(self, answer: ShellAnswer) -> None:
        if answer.over is not None:
            self.exit_code = answer.exit_code
            self.over = answer.over

    def _asked(self, method: str, path: str, body: bytes | None) -> ShellAnswer | None:
        """Return the server's answer; None where it is over, or the server away for too long."""
        end = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return self._client.exchange(method, path, body, ShellAnswer)
            except Unavailable as exc:
                if time.monotonic() > end:
                    self.over = f"the server is not heard: {exc}"
                    return None
                time.sleep(exc.retry_after_s or _AGAIN_S)
            except HeadroomError as exc:
                self.over = str(exc)
                return None
