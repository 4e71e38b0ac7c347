"""How far the other store is behind, what goes next, and how fast."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headroom.checkpoints import About, Checkpoint, Chunk, File, Manifest, Name, Pace
from headroom.checkpoints.lag import Lag, behind, next_to_ship
from headroom.checkpoints.pace import Tokens

T0 = datetime(2026, 11, 1, tzinfo=UTC)


def made(
    step: int, *digits: str, run: str = "a", minute: int | None = None, **said: object
) -> Checkpoint:
    """Return a checkpoint with one file, of a chunk of 100 bytes for each of ``digits``."""
    at = T0 + timedelta(minutes=step if minute is None else minute)
    chunks = [Chunk(digit * 64, 100) for digit in digits]
    manifest = Manifest(
        saved_at=at,
        about=About(run=run, step=step, **said),  # type: ignore[arg-type]
        bytes=100 * len(chunks),
        files=[File("model", 100 * len(chunks), 0o644, chunks)],
    )
    return Checkpoint(Name.of(manifest, b""), manifest)


ONE, TWO, THREE = made(1, "a", "b"), made(2, "a", "c"), made(3, "a", "d", "e")


@pytest.mark.parametrize(
    ("here", "there", "lag"),
    [
        ([], [], Lag(0, 0, 0.0, 0)),
        ([], [ONE], Lag(0, 0, 0.0, 0)),
        ([ONE, TWO], [], Lag(2, None, None, 200)),
        ([ONE, TWO, THREE], [ONE], Lag(2, 2, 120.0, 200)),
        ([ONE, TWO], [ONE, TWO], Lag(0, 0, 0.0, 0)),
        ([ONE, TWO], [THREE], Lag(0, 0, 0.0, 0)),
        ([THREE, made(1, "a", "f", epoch=1, minute=9)], [THREE], Lag(1, 0, 360.0, 100)),
    ],
)
def test_lag_is_what_a_resume_there_would_lose(
    here: list[Checkpoint], there: list[Checkpoint], lag: Lag
) -> None:
    assert behind(here, there) == lag


def test_the_latest_goes_first_and_what_it_overtook_does_not_go() -> None:
    assert next_to_ship([ONE, TWO, THREE], [ONE.name]) == THREE
    assert next_to_ship([ONE, TWO, THREE], [ONE.name, THREE.name]) is None


def test_the_run_that_would_lose_more_goes_first() -> None:
    other = [made(1, "a", run="b"), made(60, "b", run="b")]
    there = [ONE.name, other[0].name]
    assert next_to_ship([ONE, TWO, *other], there) == other[1]
    assert next_to_ship([ONE, TWO, *other], [other[0].name]) == TWO


def test_what_is_kept_for_good_goes_last_but_goes() -> None:
    kept = made(2, "a", keep=True)
    assert next_to_ship([ONE, kept, THREE], [ONE.name]) == THREE
    assert next_to_ship([ONE, kept, THREE], [THREE.name]) == kept


def test_tokens_come_at_the_rate_after_what_was_saved_up() -> None:
    tokens = Tokens(burst_s=2.0)
    assert tokens.take(200, 100.0, 10.0) == 0.0
    assert tokens.take(100, 100.0, 10.0) == 1.0
    assert tokens.take(100, 50.0, 10.0) == 3.0
    assert tokens.take(100, 100.0, 30.0) == 0.0


def test_a_pace_of_nothing_waits_until_there_is_one() -> None:
    rates = iter([0.0, 0.0, None])
    slept: list[float] = []
    Pace(lambda: next(rates), sleep=slept.append).wait(10)
    assert slept == [0.5, 0.5]
