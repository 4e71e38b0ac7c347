"""What owners of jobs are to read: written some at a time, as the scheduler has more to do."""

from __future__ import annotations

from collections.abc import Collection, Mapping

__all__ = ["Comments"]


class Comments:
    """Texts that wait to be written, by job, and what was written last."""

    def __init__(self, per_round: int) -> None:
        self._per_round = max(per_round, 1)
        self._waiting: dict[str, str] = {}
        self._written: dict[str, str] = {}

    def take(
        self, new: Mapping[str, str], held: Collection[str]
    ) -> tuple[dict[str, str], list[str]]:
        """Return what to write now, and the jobs whose comments are settled by that.

        A job that is not ``held`` any more, or has the text already, is settled without a write.
        """
        self._waiting |= new
        texts = {ref: self._waiting.pop(ref) for ref in list(self._waiting)[: self._per_round]}
        due = {
            ref: text
            for ref, text in texts.items()
            if ref in held and self._written.get(ref) != text
        }
        self._written |= due
        return due, list(texts)

    def forget(self, ref: str) -> None:
        """Take what was written to a job for gone: something else stands there."""
        self._waiting.pop(ref, None)
        self._written.pop(ref, None)

    def keep(self, refs: Collection[str]) -> None:
        """Forget all other jobs."""
        self._written = {ref: text for ref, text in self._written.items() if ref in refs}
