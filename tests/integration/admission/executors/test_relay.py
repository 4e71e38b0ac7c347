"""What the two ends of a shell say to each other, on a real Valkey."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from admission.executors import relay
from admission.executors.relay import Ended, Relay, Taken
from headroom.work.contract import ShellFrame, ShellKind, ShellSide
from telemetry import stream
from tests import loops

USER, NODE = ShellSide.USER, ShellSide.NODE


def data(number: int, said: bytes = b"x") -> ShellFrame:
    return ShellFrame(number=number, kind=ShellKind.DATA, data=said)


@pytest.fixture
def session() -> str:
    stream.connection().flushall()
    made = str(uuid.uuid4())
    relay.begin(made, time.time())
    return made


def played(play: Callable[[Relay], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        ends = Relay()
        try:
            await play(ends)
        finally:
            await ends._client.aclose()

    loops.run(run())


def test_what_one_end_says_the_other_hears_once_and_in_order(session: str) -> None:
    async def play(ends: Relay) -> None:
        said = await ends.put(session, USER, "u", [data(1, b"ls"), data(2, b"\r\x00\xff")])
        assert said.last == 2
        # The answer was lost: what comes again is not said again.
        assert (await ends.put(session, USER, "u", [data(2, b"\r\x00\xff")])).last == 2
        heard = await ends.get(session, NODE, "n", 0, 1.0)
        assert [each.data for each in heard.frames] == [b"ls", b"\r\x00\xff"]
        assert (await ends.get(session, NODE, "n", 2, 0.05)).frames == []

    played(play)
    stands = relay.standing(session)
    assert (stands.bytes_in, stands.bytes_out, stands.over) == (5, 0, None)
    assert 0 < stands.begun_at <= stands.node_seen_at


def test_whoever_waits_hears_at_once(session: str) -> None:
    async def play(ends: Relay) -> None:
        waiting = asyncio.create_task(ends.get(session, USER, "u", 0, 10.0))
        await asyncio.sleep(0.1)
        began = time.monotonic()
        await ends.put(session, NODE, "n", [data(1, b"$ ")])
        assert [each.data for each in (await waiting).frames] == [b"$ "]
        assert time.monotonic() - began < 9.0

    played(play)


def test_an_end_that_is_faster_than_the_other_waits(session: str) -> None:
    async def play(ends: Relay) -> None:
        many = [data(number) for number in range(1, 100)]
        taken = (await ends.put(session, NODE, "n", many)).last
        assert taken == relay._WINDOW
        assert (await ends.put(session, NODE, "n", many[taken:])).last == taken
        heard = await ends.get(session, USER, "u", 0, 1.0)
        # It is heard again until it says that it has it.
        assert (await ends.put(session, NODE, "n", many[taken:])).last == taken
        after = heard.frames[-1].number
        await ends.get(session, USER, "u", after, 0.05)
        assert (await ends.put(session, NODE, "n", many[taken:])).last == 2 * taken

    played(play)


def test_one_connection_has_each_end(session: str) -> None:
    async def play(ends: Relay) -> None:
        await ends.put(session, USER, "first", [])
        with pytest.raises(Taken):
            await ends.put(session, USER, "second", [])
        with pytest.raises(Taken):
            await ends.get(session, USER, "second", 0, 0.05)

    played(play)


def test_what_is_over_says_why_and_takes_nothing_more(session: str) -> None:
    async def play(ends: Relay) -> None:
        await ends.put(session, NODE, "n", [
            data(1, b"bye"), ShellFrame(number=2, kind=ShellKind.EXIT, data=b"3"),
            ShellFrame(number=3, kind=ShellKind.OVER, data=b""),
        ])  # fmt: skip
        heard = await ends.get(session, USER, "u", 0, 1.0)
        assert (heard.over, heard.exit_code, len(heard.frames)) == ("", 3, 3)
        assert (await ends.put(session, USER, "u", [data(1)])).last == 0

    played(play)
    relay.over(session, "later")
    assert relay.standing(session).over == ""


def test_a_session_that_was_forgotten_is_over() -> None:
    async def play(ends: Relay) -> None:
        with pytest.raises(Ended):
            await ends.put(str(uuid.uuid4()), USER, "u", [])

    played(play)


def test_a_secret_is_of_one_end_of_one_session() -> None:
    one, other = str(uuid.uuid4()), str(uuid.uuid4())
    secret = relay.secret_of(one, USER)
    assert relay.is_secret_of(secret, one, USER)
    assert not relay.is_secret_of(secret, one, NODE)
    assert not relay.is_secret_of(secret, other, USER)
