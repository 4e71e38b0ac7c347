import threading
import time
from collections.abc import Callable

import pytest

from lab.enroll import Server
from lab.load import Load, Settings
from tests.unit.lab.fake_server import OPERATOR_TOKEN, FakeServer, serve


def make_load(fake: FakeServer, **changes: float) -> Load:
    settings = {"gpus": 128, "batch_gpus": 64, "rate": 0.0, "duration_s": 0.5} | changes
    return Load(
        Server(fake.url, OPERATOR_TOKEN, connections=3),
        Settings(**settings),  # type: ignore[arg-type]  # whole numbers where it wants them
        stop=threading.Event(),
    )


def once_pushed(fake: FakeServer, then: Callable[[], None]) -> None:
    """Do ``then`` as soon as the first batch has arrived, however long enrolling took."""

    def wait() -> None:
        while not fake.batches:
            time.sleep(0.01)
        then()

    threading.Thread(target=wait, daemon=True).start()


def test_everything_that_was_made_is_stored_once_and_the_sums_agree() -> None:
    with serve() as fake:
        result = make_load(fake).run()
        assert result["agents"] == 2
        assert result["gpus"] == 128
        assert result["batches_made"] == result["batches_stored"] == len(fake.batches) > 10
        assert result["rows_made"] == result["rows_stored"] == 64 * len(fake.batches)
        for agent in result["by_agent"]:
            rows = [
                energy
                for batch in fake.stored(agent["agent"])
                for report in batch.nodes
                if report.gpus
                for energy in report.gpus.energy_j or []
            ]
            assert len(rows) == agent["rows"]
            assert sum(energy or 0.0 for energy in rows) == agent["energy_j"]
        assert result["energy_j_stored"] == sum(a["energy_j"] for a in result["by_agent"])


def test_batches_may_be_of_one_node() -> None:
    with serve() as fake:
        result = make_load(fake, batch_gpus=8, duration_s=0.2).run()
        assert result["agents"] == 16
        assert {len(batch.nodes) for batch in fake.batches.values()} == {1}


def test_rows_are_full_readings_and_time_moves_on() -> None:
    with serve() as fake:
        make_load(fake, duration_s=0.2).run()
        batches = fake.stored("load-00001")
        gpus = batches[0].nodes[0].gpus
        assert gpus is not None
        assert gpus.power_w is not None
        assert gpus.throttle is not None
        times = [batch.nodes[0].gpus.ts[0] for batch in batches if batch.nodes[0].gpus]
        assert times == sorted(set(times))


def test_no_more_batches_are_made_than_asked_for() -> None:
    with serve() as fake:
        result = make_load(fake, duration_s=60.0, max_batches=7).run()
        assert result["batches_made"] == result["batches_stored"] == len(fake.batches) == 7


def rows_in_a_second() -> int:
    with serve() as fake:
        rows: int = make_load(fake, rate=1280.0, duration_s=1.0).run()["rows_made"]
        return rows


def test_a_set_rate_is_kept() -> None:
    # A machine that is busy may stand still for a part of one second, but not of each.
    rows = [rows_in_a_second() for _ in range(3)]
    assert max(rows) == pytest.approx(1280, abs=192)


def test_an_outage_delays_and_loses_nothing() -> None:
    with serve() as fake:
        load = make_load(fake, rate=2560.0, duration_s=1.5)

        def be_down() -> None:
            fake.down = True
            time.sleep(0.7)
            fake.down = False

        once_pushed(fake, be_down)
        result = load.run()
        assert result["pushes_failed"] > 0
        assert result["batches_made"] == result["batches_stored"] == len(fake.batches)


def test_what_is_not_stored_in_time_is_reported_as_waiting() -> None:
    with serve() as fake:
        fake.forget = True
        result = make_load(fake, rate=1280.0, duration_s=0.3, drain_timeout_s=0.5).run()
        assert result["batches_waiting"] == result["batches_made"] > 0
        assert result["batches_stored"] == 0


def test_stopping_early_still_waits_for_what_was_pushed() -> None:
    with serve() as fake:
        load = make_load(fake, duration_s=60.0)
        once_pushed(fake, load._stop.set)
        result = load.run()
        assert result["pushed_s"] < 50.0
        assert result["batches_made"] == result["batches_stored"]
