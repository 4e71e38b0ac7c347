"""From a folder to a store and back."""

from __future__ import annotations

import json
import os
import random
import stat
from pathlib import Path

import pytest

from headroom.checkpoints import (
    About,
    Checkpoint,
    Fenced,
    NoCheckpoint,
    NotTaken,
    Store,
    finish,
    latest_whole,
    restore,
    save,
    stage,
)
from headroom.checkpoints.store import chunk_path
from tests.unit.headroom.checkpoints.builders import (
    RUN,
    about,
    make_folder,
    make_store,
    read_folder,
)
from tests.unit.headroom.checkpoints.reader import whole

FILES = {
    "model.safetensors": random.Random(1).randbytes(40_000),
    "optimizer/rank-0.distcp": random.Random(2).randbytes(9_001),
    "optimizer/empty": b"",
    "rng.json": b"[1, 2, 3]",
}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return make_store(tmp_path / "store")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "folder", FILES)


def chunk_files(store: Store) -> dict[str, float]:
    """Return when each chunk was written, by its path."""
    return {found.path: found.at.timestamp() for _, found in store.chunks()}


def test_what_is_restored_is_what_was_saved(store: Store, folder: Path, tmp_path: Path) -> None:
    (folder / "nothing-in-it").mkdir()
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    save(folder, store, about())
    restore(store, tmp_path / "back", RUN)
    assert read_folder(tmp_path / "back") == read_folder(folder)
    assert (tmp_path / "back" / "nothing-in-it").is_dir()
    assert stat.S_IMODE((tmp_path / "back" / "run.sh").stat().st_mode) == 0o755


def test_a_reader_that_knows_nothing_of_us_reads_it(store: Store, folder: Path) -> None:
    found = save(folder, store, about())
    (files,) = whole(Path(str(store)), RUN).values()
    assert files == FILES
    text = json.loads((Path(str(store)) / "manifests" / str(found.name)).read_text())
    assert text["format"] == "headroom-checkpoint"
    assert text["about"]["step"] == 1


def test_a_manifest_says_what_the_loop_said(store: Store, folder: Path) -> None:
    said = About(
        run=RUN,
        step=1200,
        epoch=3,
        parent="ab" * 32,
        code_revision="9fceb02",
        image_digest="sha256:00",
        data={"fineweb": "sha256:11"},
        features={"tokenizer": {"name": "gpt2", "vocabulary": 50257}},
        world_size=8,
        layout={"data": 4, "tensor": 2},
        rng={"torch": "in rng.json"},
        notes={"loss": 2.91},
    )
    save(folder, store, said)
    found, _ = latest_whole(store, RUN)
    assert found.manifest.about == said
    assert found.manifest.bytes == sum(map(len, FILES.values()))


def test_an_unchanged_folder_writes_no_chunk_again(store: Store, folder: Path) -> None:
    save(folder, store, about(1))
    before = chunk_files(store)
    save(folder, store, about(2))
    assert chunk_files(store) == before


def test_bytes_that_are_put_in_change_few_chunks(store: Store, folder: Path) -> None:
    save(folder, store, about(1))
    before = set(chunk_files(store))
    data = FILES["model.safetensors"]
    (folder / "model.safetensors").write_bytes(data[:20_000] + b"put in" + data[20_000:])
    save(folder, store, about(2))
    assert 1 <= len(set(chunk_files(store)) - before) <= 3


def test_a_chunk_that_is_damaged_is_written_again_before_the_next_counts(
    store: Store, folder: Path, tmp_path: Path
) -> None:
    found = save(folder, store, about(1))
    digest = next(iter(found.manifest.chunks()))
    path = Path(str(store)) / chunk_path(digest)
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")
    save(folder, store, about(2))
    assert restore(store, tmp_path / "back", RUN).checkpoint.name.step == 2
    assert read_folder(tmp_path / "back") == FILES


def test_the_newest_whole_one_is_taken_and_the_rest_is_said(
    store: Store, folder: Path, tmp_path: Path
) -> None:
    save(folder, store, about(1))
    damaged, lacking, cut = [
        save(make_folder(folder, {"rng.json": str(step).encode()}), store, about(step))
        for step in (2, 3, 4)
    ]
    root = Path(str(store))
    chunk = root / chunk_path(list(damaged.manifest.chunks())[-1])
    data = bytearray(chunk.read_bytes())
    data[-1] ^= 1
    chunk.write_bytes(data)
    (root / chunk_path(list(lacking.manifest.chunks())[-1])).unlink()
    manifest = root / "manifests" / str(cut.name)
    manifest.write_bytes(manifest.read_bytes()[:100])
    found = restore(store, tmp_path / "back", RUN)
    assert found.checkpoint.name.step == 1
    assert read_folder(tmp_path / "back") == FILES
    assert [each.name.step for each in found.passed_over] == [4, 3, 2]
    why = [each.why for each in found.passed_over]
    assert "its manifest is not the one that was written" in why[0]
    assert "is missing" in why[1]
    assert "not whole" in why[2]


def test_without_a_whole_one_that_is_an_error_and_no_folder(
    store: Store, folder: Path, tmp_path: Path
) -> None:
    found = save(folder, store, about(1))
    (Path(str(store)) / chunk_path(next(iter(found.manifest.chunks())))).unlink()
    with pytest.raises(NoCheckpoint, match=r"no whole checkpoint of nanogpt .*is missing"):
        restore(store, tmp_path / "back", RUN)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "store"]


def test_a_folder_that_is_there_is_left_alone(store: Store, folder: Path) -> None:
    save(folder, store, about())
    with pytest.raises(NotTaken, match="is there already"):
        restore(store, folder, RUN)


def test_a_later_start_counts_before_a_higher_step(store: Store, folder: Path) -> None:
    save(folder, store, about(1000, epoch=1))
    save(folder, store, about(950, epoch=2))
    assert latest_whole(store, RUN)[0].name.step == 950


def test_an_earlier_start_is_fenced_off(store: Store, folder: Path) -> None:
    save(folder, store, about(10, epoch=2))
    with pytest.raises(Fenced, match="start 1 of its run"):
        save(folder, store, about(99, epoch=1))
    assert [name.step for name in store.names(RUN)] == [10]
    assert not list(store.place.files("saving"))


@pytest.mark.parametrize("run", ["", "../etc", "a/b", "-x", "x" * 129])
def test_a_run_has_to_be_a_name(store: Store, folder: Path, run: str) -> None:
    with pytest.raises(NotTaken, match="run: "):
        save(folder, store, About(run=run, step=1))


def test_links_within_the_folder_are_what_they_lead_to(
    store: Store, folder: Path, tmp_path: Path
) -> None:
    (folder / "latest").symlink_to("rng.json")
    save(folder, store, about())
    restore(store, tmp_path / "back", RUN)
    assert (tmp_path / "back" / "latest").read_bytes() == FILES["rng.json"]


def test_what_is_no_file_is_refused(store: Store, folder: Path, tmp_path: Path) -> None:
    (folder / "out").symlink_to(tmp_path)
    with pytest.raises(NotTaken, match="leads out of the folder"):
        save(folder, store, about())
    (folder / "out").unlink()
    os.mkfifo(folder / "pipe")
    with pytest.raises(NotTaken, match="is no file"):
        save(folder, store, about())


def test_what_json_cannot_hold_is_refused(store: Store, folder: Path) -> None:
    with pytest.raises(NotTaken, match="no plain JSON"):
        save(folder, store, about(1, rng={"state": object()}))


class TestStaged:
    def test_it_is_saved_later_as_it_was(self, store: Store, folder: Path, tmp_path: Path) -> None:
        stage(folder, store, about(1))
        make_folder(folder, {"model.safetensors": b"written over by the next step"})
        (found,) = finish(store)
        assert isinstance(found, Checkpoint)
        restore(store, tmp_path / "back", RUN)
        assert read_folder(tmp_path / "back") == FILES
        assert list(finish(store)) == []

    def test_it_may_be_moved_and_not_copied(self, store: Store, folder: Path) -> None:
        stage(folder, store, about(1), move=True)
        assert not folder.exists()
        (found,) = finish(store)
        assert isinstance(found, Checkpoint)

    def test_the_newest_is_saved_first(self, store: Store, folder: Path) -> None:
        for step in (1, 2, 3):
            stage(folder, store, about(step))
        steps = [each.name.step for each in finish(store) if isinstance(each, Checkpoint)]
        assert steps == [3, 2, 1]

    def test_saved_again_after_a_death_it_is_the_same_checkpoint(
        self, store: Store, folder: Path
    ) -> None:
        staged = stage(folder, store, about(1))
        known = read_folder(staged)
        (first,) = finish(store)
        make_folder(staged, known)
        (second,) = finish(store)
        assert first == second
        assert len(store.names(RUN)) == 1

    def test_what_lost_bytes_is_refused(self, store: Store, folder: Path) -> None:
        staged = stage(folder, store, about(1))
        os.truncate(staged / "files" / "model.safetensors", 10)
        (error,) = finish(store)
        assert isinstance(error, NotTaken)
        assert "not all that was staged" in str(error)
        assert list(finish(store)) == []

    def test_after_a_power_cut_it_is_not_trusted(
        self, store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stage(folder, store, about(1))
        monkeypatch.setattr(type(store.place.disk), "boot_id", lambda _: "another")  # type: ignore[attr-defined]
        (error,) = finish(store)
        assert "started again" in str(error)
        assert store.names(RUN) == []
