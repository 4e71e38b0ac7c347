"""Which batches of an agent are stored: the pure part of exactly-once.

Of one life of an agent (``boot_id``) all batches up to ``mark`` are stored or given up, and so are
those in ``beyond``. A batch above the mark may come before the ones below it (a retry overtaken by
a new batch, a message lost with Redis), so a plain high-water mark would lose rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: Batches above a gap that one life of an agent may have stored. The agent sends again from the
#: gap on, so more than this only comes from an agent that does not keep to the contract.
MAX_BEYOND = 10_000


class TooFarAhead(Exception):
    """The agent sends on and on above a gap that it never fills. The batch is not stored."""


@dataclass
class Position:
    """The stored batches of one life of an agent."""

    mark: int = 0
    beyond: set[int] = field(default_factory=set)

    def take(self, seq: int, oldest_seq: int) -> bool:
        """Note that batch ``seq`` is stored; return False if it was already.

        ``oldest_seq`` is the lowest seq that the agent still holds: what is below will never come.
        """
        if seq == self.mark + 1 and oldest_seq <= seq and not self.beyond:
            self.mark = seq  # as nearly all do
            return True
        self.mark = max(self.mark, oldest_seq - 1)
        self._close_gap()
        if seq <= self.mark or seq in self.beyond:
            return False
        if len(self.beyond) >= MAX_BEYOND and seq != self.mark + 1:
            raise TooFarAhead
        self.beyond.add(seq)
        self._close_gap()
        return True

    def _close_gap(self) -> None:
        while self.mark + 1 in self.beyond:
            self.mark += 1
        if self.beyond and min(self.beyond) <= self.mark:
            self.beyond = {seq for seq in self.beyond if seq > self.mark}
