from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab.calibration.catalog import COMPARE
from lab.calibration.catalog import Asked as AskedData
from lab.scenarios import standard
from lab.scenarios.matrix import PLAY
from lab.scenarios.matrix import Part as MatrixPart
from lab.spread import Broken, Kept, Part, Where, Work, run_all
from lab.spread import task as tasks
from lab.spread.files import BadListing, Listing, lay_out, list_files
from lab.spread.fingerprint import fingerprint
from lab.spread.task import NoWork, find_work, outcome_of, pack, unpack
from tests.unit.lab.spread.work import DIE, DOUBLE, NAMES, Asked, OfFolder, Told

HERE = Where(workers=1)


def test_each_part_comes_back_with_its_argument() -> None:
    found = {each.argument.number: each.value().doubled for each in run_all(DOUBLE, _asked(5))}
    assert found == {number: 2.0 * number for number in range(5)}


def test_processes_come_to_the_same_bytes_as_one() -> None:
    arguments = [Asked(3), Asked(4), Asked(5)]
    alone = {ended.argument: ended for ended in run_all(DOUBLE, arguments, where=HERE)}
    several = {ended.argument: ended for ended in run_all(DOUBLE, arguments, where=Where(2))}
    assert {replace(each.value(), process=0) for each in alone.values()} == {
        replace(each.value(), process=0) for each in several.values()
    }
    assert os.getpid() not in {each.value().process for each in several.values()}
    assert {each.value().process for each in alone.values()} == {os.getpid()}


def test_a_part_that_raises_is_one_part_that_broke() -> None:
    good, bad = run_all(DOUBLE, [Asked(1), Asked(-1)], where=HERE)
    assert good.value().doubled == 2.0
    assert (bad.result, bad.error) == (None, "ValueError: -1 is negative")
    assert "in _double" in bad.told
    with pytest.raises(Broken, match="-1 is negative"):
        bad.value()


def test_a_process_that_is_killed_is_told() -> None:
    with pytest.raises(Broken, match="a process was killed"):
        list(run_all(DIE, _asked(2), where=Where(2)))


# --- What is kept ---------------------------------------------------------------------------------


def test_a_run_goes_on_where_it_was_broken_off(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    broken_off = run_all(DOUBLE, _asked(3), where=HERE, kept=kept)
    assert next(broken_off).value().doubled == 0.0
    broken_off.close()
    again = list(run_all(DOUBLE, _asked(3), where=HERE, kept=kept))
    assert [(each.argument.number, each.was_kept) for each in again] == [
        (0, True), (1, False), (2, False),
    ]  # fmt: skip


def test_what_broke_is_run_again(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    for _ in range(2):
        (ended,) = run_all(DOUBLE, [Asked(-1)], where=HERE, kept=kept)
        assert not ended.was_kept
    assert list(tmp_path.iterdir()) == []


def test_a_result_that_cannot_be_read_is_run_again(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    list(run_all(DOUBLE, [Asked(1)], where=HERE, kept=kept))
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-4])
    (ended,) = run_all(DOUBLE, [Asked(1)], where=HERE, kept=kept)
    assert (ended.was_kept, ended.value().doubled) == (False, 2.0)


def test_results_that_nobody_asks_for_are_forgotten(tmp_path: Path) -> None:
    list(run_all(DOUBLE, _asked(2), where=HERE, kept=Kept(tmp_path)))
    old, new = tmp_path.iterdir()
    os.utime(old, (0, 0))
    Kept(tmp_path)
    assert list(tmp_path.iterdir()) == [new]


def test_a_key_is_of_contents_and_not_of_places(tmp_path: Path) -> None:
    one, other = tmp_path / "one" / "jobs.csv", tmp_path / "other" / "jobs.csv"
    for path in (one, other):
        path.parent.mkdir()
        path.write_text("a,b\n")
    key = _key(Asked(1, one))
    assert _key(Asked(1, other)) == key
    assert _key(Asked(2, one)) != key
    other.write_text("a,c\n")
    assert _key(Asked(1, other)) != key


def test_a_key_is_of_code_too(monkeypatch: pytest.MonkeyPatch) -> None:
    key = _key(Asked(1))
    own = fingerprint()
    for part in ("code", "arithmetic", "versions"):
        other = msgspec.structs.replace(own, **{part: "other" if part != "versions" else ()})
        monkeypatch.setattr(tasks, "fingerprint", lambda other=other: other)
        assert _key(Asked(1)) != key


def test_what_cannot_travel_is_refused() -> None:
    @dataclass(frozen=True)
    class Odd:
        what: object

    work: Work[Odd, int] = Work("x:Y", lambda odd: 0, Odd, int)
    with pytest.raises(TypeError, match="object cannot travel"):
        pack(work, Odd(object()))


# --- Files on another host ------------------------------------------------------------------------


def test_a_task_finds_its_files_where_it_has_come_to(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("12345")
    packed, files = pack(DOUBLE, Asked(1, path))
    content = {digest: at.read_bytes() for digest, at in files.items()}
    path.unlink()
    argument = unpack(DOUBLE, packed, below=tmp_path / "there", content_of=content.__getitem__)
    assert argument.file.name == "jobs.csv"
    result = msgspec.msgpack.decode(outcome_of(DOUBLE, argument).result, type=Told)
    assert result.doubled == 2.0 + 5.0


def test_of_a_folder_only_the_named_entries_travel(tmp_path: Path) -> None:
    for name in ("a/x.txt", "a/deep/y.txt", "b.txt", "c/z.txt"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    asked = OfFolder(Part(tmp_path / "data", ("a", "b.txt", "missing")))
    packed, files = pack(NAMES, asked)
    content = {digest: at.read_bytes() for digest, at in files.items()}
    for _ in range(2):
        there = unpack(NAMES, packed, below=tmp_path / "there", content_of=content.__getitem__)
        assert NAMES.function(there) == ["a/deep/y.txt", "a/x.txt", "b.txt"]


@pytest.mark.parametrize("path", ["../outside", "/etc/cron.d/x", "a/../../b"])
def test_a_listing_does_not_lead_out_of_its_folder(tmp_path: Path, path: str) -> None:
    content = b"x"
    listing = Listing("data", ((path, hashlib.sha256(content).hexdigest()),))
    with pytest.raises(BadListing, match="not a path below a folder"):
        lay_out(listing, tmp_path / "there", lambda digest: content)


def test_another_content_than_was_listed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    listing, _ = list_files(tmp_path / "a")
    with pytest.raises(BadListing, match="not the one that was listed"):
        lay_out(listing, tmp_path / "there", lambda digest: b"b")


def test_only_work_within_the_package_is_found() -> None:
    assert find_work("lab.approaches.comparison:RUN", within="lab").takes.__name__ == "Part"
    for name in ("os:system", "laboratory.x:Y", "lab.approaches.comparison:Setup"):
        with pytest.raises(NoWork):
            find_work(name, within="lab")


def _asked(count: int) -> list[Asked]:
    return [Asked(number) for number in range(count)]


def _key(asked: Asked) -> str:
    return pack(DOUBLE, asked)[0].key


def test_parts_of_a_matrix_and_calibrations_travel_as_those_of_a_comparison_do(
    tmp_path: Path,
) -> None:
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "policy.yaml").write_text("name: mine\n")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "rows.csv").write_text("a\n")
    scenario = standard()[0]
    for policy in (None, tmp_path / "policy"):
        run = MatrixPart(scenario, policy, 1, 0)
        there = _travelled(PLAY, run, tmp_path / "there")
        assert (there.scenario, there.seed) == (scenario, 1)
        if there.policy is not None:
            assert (there.policy / "policy.yaml").read_text() == "name: mine\n"
    asked = _travelled(COMPARE, AskedData("swings", Part(tmp_path, ("set",))), tmp_path / "there")
    assert (asked.data.folder / "set" / "rows.csv").read_text() == "a\n"


def _travelled(work: Work[Any, Any], argument: object, below: Path) -> Any:
    packed, files = pack(work, argument)
    content = {digest: at.read_bytes() for digest, at in files.items()}
    return unpack(find_work(packed.work), packed, below=below, content_of=content.__getitem__)
