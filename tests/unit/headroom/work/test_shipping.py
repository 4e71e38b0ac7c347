from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headroom.agent.actuation import Reports
from headroom.checkpoints.orders import Obedience, Orders
from headroom.contracts import LimitReport
from headroom.work.contract import ShipLimit
from headroom.work.folder import Folder, ShipOrders
from headroom.work.shipping import Shipping
from tests.unit.headroom.builders import Clock

ONE, OTHER = "job/train/1", "other/train/1"


class Scene:
    """Attempts of one node, the clock of the machine, and what keepers say."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.clock.now = 1000.0
        self.said: dict[str, frozenset[str]] = {}
        self.reports = Reports(lambda: 0.0)
        self.folders = {}
        for name in (ONE, OTHER):
            place = folder / name.replace("/", "-")
            place.mkdir()
            self.folders[name] = Folder(place)
        self.shipping = Shipping("n1", self, self.reports, clock=self.clock)

    def obeyed(self, attempt: str) -> frozenset[str] | None:
        return self.said.get(attempt)

    def tell(self, *limits: ShipLimit) -> list[LimitReport]:
        self.shipping.pass_on(self.folders, limits, server_now=50.0, asked_at=self.clock.now)
        return self.reports.take()

    def orders(self, attempt: str = ONE) -> Orders:
        return Orders(self.folders[attempt].shipping, clock=self.clock)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def limit(attempt: str = ONE, **given: object) -> ShipLimit:
    values = {"id": "restriction-1-ships", "bytes_per_s": 0.0, "expires_at": 110.0, **given}
    return ShipLimit(attempt=attempt, **values)  # type: ignore[arg-type]


def test_a_keeper_hears_of_a_limit_and_of_its_end(scene: Scene) -> None:
    orders = scene.orders()
    assert orders.bytes_per_s() is None
    scene.tell(limit(bytes_per_s=5.0))
    assert orders.bytes_per_s() == 5.0
    assert scene.orders(OTHER).bytes_per_s() is None
    scene.tell()
    assert orders.bytes_per_s() is None


def test_a_lease_ends_by_the_machines_clock_also_without_the_agent(scene: Scene) -> None:
    scene.tell(limit(expires_at=110.0))
    orders = scene.orders()
    scene.clock.now += 59
    assert orders.bytes_per_s() == 0.0
    scene.clock.now += 2
    assert orders.bytes_per_s() is None


def test_the_strictest_of_several_counts(scene: Scene) -> None:
    scene.tell(limit(bytes_per_s=9.0), limit(id="b", bytes_per_s=4.0))
    assert scene.orders().bytes_per_s() == 4.0


def test_a_file_is_written_only_when_something_changes(scene: Scene) -> None:
    scene.tell(limit())
    before = scene.folders[ONE].shipping.stat().st_mtime_ns
    scene.clock.now += 0.5
    scene.tell(limit(expires_at=109.5))
    assert scene.folders[ONE].shipping.stat().st_mtime_ns == before
    assert not scene.folders[OTHER].shipping.exists()


def test_without_a_keeper_nothing_is_claimed(scene: Scene) -> None:
    assert scene.tell(limit()) == []
    scene.clock.now += 60
    assert scene.tell(limit(expires_at=200.0)) == []


def test_it_is_applied_when_all_keepers_here_keep_to_it(scene: Scene) -> None:
    scene.said = {ONE: frozenset({"restriction-1-ships"}), OTHER: frozenset()}
    limits = [limit(name, bytes_per_s=1e6) for name in (ONE, OTHER)]
    assert scene.tell(*limits) == []
    scene.said[OTHER] = frozenset({"restriction-1-ships"})
    (report,) = scene.tell(*limits)
    assert (report.state, report.kind, report.asked, report.applied) == (
        "applied", "ship_rate", 8.0, 8.0,
    )  # fmt: skip
    (report,) = scene.tell()
    assert report.state == "restored"


def test_a_keeper_that_does_not_take_it_up_is_told_of(scene: Scene) -> None:
    scene.said = {ONE: frozenset()}
    scene.tell(limit(expires_at=500.0))
    scene.clock.now += 31
    (report,) = scene.tell(limit(expires_at=500.0))
    assert report.state == "failed"
    assert ONE in report.error


def test_a_malformed_file_leaves_what_was_told_last(scene: Scene) -> None:
    scene.tell(limit())
    orders = scene.orders()
    assert orders.bytes_per_s() == 0.0
    scene.folders[ONE].shipping.write_text("{")
    assert orders.bytes_per_s() == 0.0


def test_what_a_keeper_says_is_what_it_goes_by(scene: Scene) -> None:
    said: list[list[str]] = []
    keeper = Obedience(scene.orders(), said.append, own_bytes_per_s=7.0, clock=scene.clock)
    assert keeper.rate() == 7.0
    assert keeper.may_ship()
    scene.tell(limit())
    assert not keeper.may_ship()
    scene.clock.now += 11
    assert keeper.rate() == 0.0
    assert said == [[], ["restriction-1-ships"], ["restriction-1-ships"]]


def test_others_may_read_the_file_and_not_change_it(scene: Scene) -> None:
    scene.tell(limit())
    path = scene.folders[ONE].shipping
    assert path.stat().st_mode & 0o777 == 0o644
    assert msgspec.json.decode(path.read_bytes(), type=ShipOrders).limits[0].bytes_per_s == 0
