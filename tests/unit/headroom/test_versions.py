"""An agent tells of versions when they change, and now and then besides."""

from __future__ import annotations

from pathlib import Path

from headroom.agent.versions import Versions


class _Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def _machine(sys: Path) -> None:
    for nic, firmware in (("mlx5_0", "28.43.1"), ("mlx5_1", "28.43.1"), ("mlx5_2", "28.39.2")):
        folder = sys / "class" / "infiniband" / nic
        folder.mkdir(parents=True)
        (folder / "fw_ver").write_text(f"{firmware}\n")
    (sys / "module" / "mlx5_core").mkdir(parents=True)
    (sys / "module" / "mlx5_core" / "version").write_text("25.04-0.6.1\n")


def test_each_version_of_the_nics_is_told_once(tmp_path: Path) -> None:
    _machine(tmp_path)
    (report,) = Versions("n1", [lambda: {"driver": "580.2"}], sys=tmp_path, clock=_Clock()).due()
    assert (report.node, report.at, report.driver) == ("n1", 1000.0, "580.2")
    assert report.nic_firmware == "28.39.2, 28.43.1"
    assert report.fabric_driver == "25.04-0.6.1"


def test_it_is_told_again_when_it_changes_and_after_a_while(tmp_path: Path) -> None:
    clock, now = _Clock(), {"driver": "570.1"}
    versions = Versions("n1", [lambda: now], sys=tmp_path, clock=clock)
    assert versions.due()
    clock.now += 5.0
    assert not versions.due()
    now["driver"] = "580.2"
    assert versions.due()[0].driver == "580.2"
    clock.now += 601.0
    assert versions.due()


def test_a_machine_that_knows_none_tells_nothing(tmp_path: Path) -> None:
    assert not Versions("n1", [lambda: {"driver": ""}], sys=tmp_path, clock=_Clock()).due()
