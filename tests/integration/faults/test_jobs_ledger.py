"""What the faults of jobs are judged by: it finds each kind of wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.faults.jobs import Attempts, wrong_of

GANG = ("fault-0000", "succeeded", "fault-0000/run/1", "ended", "succeeded", 0, 2)
WITHDRAWN = ("fault-0000", "succeeded", "fault-0000/run/1", "ended", "withdrawn", None, 2)
AGAIN = ("fault-0000", "succeeded", "fault-0000/run/2", "ended", "succeeded", 0, 2)
WHOLE = [f"fault-0000/run/1 {rank} {what}" for rank in (0, 1) for what in ("start", "end")]
SECOND = [line.replace("/1 ", "/2 ") for line in WHOLE]


def found(rows: list[tuple[object, ...]], lines: list[str], folder: Path) -> list[str]:
    ledger = folder / "ledger"
    ledger.write_text("".join(f"{line}\n" for line in lines))
    return list(wrong_of(Attempts(rows), ledger, 1))


def test_a_run_in_order_has_nothing_wrong(tmp_path: Path) -> None:
    assert found([GANG], WHOLE, tmp_path) == []
    assert found([WITHDRAWN, AGAIN], SECOND, tmp_path) == []


@pytest.mark.parametrize(
    ("rows", "lines", "said"),
    [
        ([GANG], [*WHOLE, WHOLE[0]], "2 times: fault-0000/run/1 0 start"),
        ([GANG], WHOLE[:2], "was split: 1 of 2 nodes"),
        ([GANG], [line for line in WHOLE if "end" not in line], "2 starts, 0 ends"),
        ([WITHDRAWN, AGAIN], [*WHOLE, *SECOND], "was withdrawn and had begun"),
        ([GANG, AGAIN], [*WHOLE, *SECOND], "succeeded 2 times"),
        ([GANG], [*WHOLE, "ghost/run/1 0 start"], "ghost/run/1 ran and is not known"),
        ([], WHOLE, "0 jobs are known of 1"),
        ([(*GANG[:1], "failed", *GANG[2:])], WHOLE, "is failed, not succeeded"),
        ([(*GANG[:3], "running", "", None, 2)], WHOLE, "is still running"),
    ],
)
def test_what_is_wrong_is_said(
    rows: list[tuple[object, ...]], lines: list[str], said: str, tmp_path: Path
) -> None:
    assert any(said in sentence for sentence in found(rows, lines, tmp_path))
