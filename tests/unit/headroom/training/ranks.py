"""Ranks of one job as threads, and the agents of their machines as files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from headroom.training.hearing import Mailbox
from headroom.work.folder import Directives, JobStatus

__all__ = ["Exchange", "Machine", "RankGroup", "run_all"]

_LIMIT_S = 60.0


class Machine:
    """What one agent writes for a job, and reads of it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._told, self._status = folder / "directives.json", folder / "status.json"

    def tell(self, directives: Directives) -> None:
        made = self._told.with_suffix(".new")
        made.write_bytes(msgspec.json.encode(directives))
        made.replace(self._told)

    def said(self) -> JobStatus:
        return msgspec.json.decode(self._status.read_bytes(), type=JobStatus)

    def mailbox(self) -> Mailbox:
        return Mailbox(self._told, self._status)

    @property
    def environment(self) -> dict[str, str]:
        return {"HEADROOM_DIRECTIVES": str(self._told), "HEADROOM_STATUS": str(self._status)}


class Exchange:
    """Where all ranks meet once they have offered."""

    def __init__(self, world: int) -> None:
        self.world = world
        self._rounds: dict[int, list[Sequence[float]]] = {}
        self._changed = threading.Condition()

    def put(self, number: int, values: Sequence[float]) -> None:
        with self._changed:
            self._rounds.setdefault(number, []).append(values)
            self._changed.notify_all()

    def greatest(self, number: int) -> Sequence[float]:
        with self._changed:
            whole = self._changed.wait_for(
                lambda: len(self._rounds.get(number, ())) == self.world, _LIMIT_S
            )
            assert whole, f"a rank was left alone in round {number}"
            return [max(each) for each in zip(*self._rounds[number], strict=True)]


class RankGroup:
    """One rank's end of an exchange."""

    def __init__(self, rank: int, exchange: Exchange, *, is_first_here: bool) -> None:
        self.rank, self.world, self.is_first_here = rank, exchange.world, is_first_here
        self._exchange, self._offered, self._taken = exchange, 0, 0

    def offer(self, values: Sequence[float]) -> None:
        self._offered += 1
        self._exchange.put(self._offered, values)

    def take(self) -> Sequence[float]:
        self._taken += 1
        assert self._taken == self._offered
        return self._exchange.greatest(self._taken)

    def close(self) -> None:
        self.take()


def run_all(loops: Sequence[Callable[[], None]]) -> list[BaseException | None]:
    """Run each rank's loop in a thread of its own; return how each ended."""
    ends: list[BaseException | None] = [None] * len(loops)

    def run(rank: int) -> None:
        try:
            loops[rank]()
        except BaseException as exc:
            ends[rank] = exc

    threads = [threading.Thread(target=run, args=[rank]) for rank in range(len(loops))]
    for each in threads:
        each.start()
    for each in threads:
        each.join(_LIMIT_S)
        assert not each.is_alive(), "a rank hangs"
    return ends
