"""Inputs of a start in its manifests, and held against those that it is resumed from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from headroom.checkpoints import (
    About,
    Change,
    Checkpoint,
    InputsDiffer,
    NotTaken,
    Store,
    finish,
    restore,
    save,
    stage,
)
from headroom.checkpoints.inputs import changes_since
from headroom.checkpoints.manifest import Name
from headroom.checkpoints.store import chunk_path
from headroom.cli import main
from tests.unit.headroom.checkpoints.builders import RUN, about, make_folder, read_folder

CODE, IMAGE, CORPUS = "1" * 40, "sha256:" + "2" * 64, "sha256:" + "3" * 64
OTHER = "4" * 40
GIVEN = {"code": CODE, "image": IMAGE, "data/corpus": CORPUS}


class Start:
    """One start of a run in a folder of its own, with what its machine has verified."""

    def __init__(self, folder: Path, inputs: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._restored = folder, 0
        self.file = folder / "inputs.json"
        said = [
            {"name": name, "digest": digest, "is_verified": name != "image", "why": "who knows"}
            for name, digest in inputs.items()
        ]
        self.file.write_text(json.dumps({"inputs": said, "refused": ""}))
        self.environment = {"HEADROOM_INPUTS": str(self.file)}

    def save(self, store: Store, step: int, **said: object) -> About:
        folder = make_folder(self._folder / f"step-{step}", {"state": str(step).encode()})
        found = save(folder, store, about(step, **said), environment=self.environment)
        return store.checkpoint(found.name).manifest.about

    def restore(self, store: Store, *allow: str) -> Checkpoint:
        self._restored += 1
        target = self._folder / f"back-{self._restored}"
        return restore(store, target, RUN, allow=allow, environment=self.environment).checkpoint


def test_a_manifest_says_which_inputs_were_declared_and_verified(
    near: Store, tmp_path: Path
) -> None:
    found = Start(tmp_path / "one", GIVEN).save(near, 1, data={"own": "of the loop"})
    assert (found.code_revision, found.image_digest) == (CODE, IMAGE)
    assert found.data == {"corpus": CORPUS, "own": "of the loop"}
    assert found.inputs == {
        "code": "verified", "image": "not verified: who knows", "data/corpus": "verified",
    }  # fmt: skip


def test_what_was_declared_stands_against_what_the_loop_says(near: Store, tmp_path: Path) -> None:
    said = {"code_revision": OTHER, "data": {"corpus": "another"}}
    found = Start(tmp_path / "one", GIVEN).save(near, 1, **said)
    assert (found.code_revision, found.data) == (CODE, {"corpus": CORPUS})


def test_what_is_staged_has_the_inputs_of_who_staged_it(near: Store, tmp_path: Path) -> None:
    start = Start(tmp_path / "one", GIVEN)
    folder = make_folder(tmp_path / "folder", {"state": b"1"})
    stage(folder, near, about(1), environment=start.environment)
    # Saved by whoever has an environment without any.
    (saved,) = finish(near)
    assert isinstance(saved, Checkpoint)
    assert saved.manifest.about.code_revision == CODE


def test_without_declared_inputs_all_is_as_the_loop_says(near: Store, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "folder", {"state": b"1"})
    found = save(folder, near, about(1, code_revision="9fceb02"), environment={})
    assert found.manifest.about == about(1, code_revision="9fceb02")
    restored = restore(near, tmp_path / "back", RUN, environment={})
    assert restored.changes == []


def test_the_same_inputs_resume_and_the_next_manifest_names_its_parent(
    near: Store, tmp_path: Path
) -> None:
    Start(tmp_path / "one", GIVEN).save(near, 1)
    second = Start(tmp_path / "two", GIVEN)
    parent = second.restore(near)
    found = second.save(near, 2, epoch=1)
    assert (found.parent, found.changes) == (parent.name.digest, [])


def test_another_input_is_refused_by_its_name_with_both_digests(
    near: Store, tmp_path: Path
) -> None:
    Start(tmp_path / "one", GIVEN).save(near, 1)
    second = Start(tmp_path / "two", {**GIVEN, "code": OTHER})
    with pytest.raises(InputsDiffer, match=f"code was {CODE} and is {OTHER}") as refused:
        second.restore(near)
    assert [each.input for each in refused.value.changes] == ["code"]
    assert not (tmp_path / "two/back-1").exists()
    # One that differs is allowed, another is not.
    third = Start(tmp_path / "three", {**GIVEN, "code": OTHER, "data/corpus": OTHER})
    with pytest.raises(InputsDiffer, match="data/corpus was") as refused:
        third.restore(near, "code")
    assert [each.input for each in refused.value.changes] == ["data/corpus"]


def test_an_allowed_change_is_told_by_all_later_manifests(near: Store, tmp_path: Path) -> None:
    Start(tmp_path / "one", GIVEN).save(near, 1)
    second = Start(tmp_path / "two", {**GIVEN, "code": OTHER})
    parent = second.restore(near, "code", "image").name.digest
    change = Change("code", CODE, OTHER, 1, parent)
    found = second.save(near, 2, epoch=1)
    assert (found.parent, found.changes, found.code_revision) == (parent, [change], OTHER)
    third = Start(tmp_path / "three", {**GIVEN, "code": OTHER})
    third.restore(near)
    assert third.save(near, 3, epoch=2).changes == [change]


def test_an_input_that_is_new_or_gone_is_another(near: Store, tmp_path: Path) -> None:
    Start(tmp_path / "one", GIVEN).save(near, 1)
    without = {name: digest for name, digest in GIVEN.items() if name != "data/corpus"}
    with pytest.raises(InputsDiffer, match=f"data/corpus was {CORPUS} and is not declared"):
        Start(tmp_path / "gone", without).restore(near)
    with pytest.raises(InputsDiffer, match="data/more was not declared and is 5"):
        Start(tmp_path / "new", {**GIVEN, "data/more": "5"}).restore(near)


def test_of_a_start_that_declared_none_only_what_its_loop_said_is_compared(
    near: Store, tmp_path: Path
) -> None:
    folder = make_folder(tmp_path / "folder", {"state": b"1"})
    save(folder, near, about(1, image_digest=f"registry/llm@{IMAGE}"), environment={})
    Start(tmp_path / "same", GIVEN).restore(near)
    with pytest.raises(InputsDiffer, match="image was"):
        Start(tmp_path / "other", {"image": OTHER}).restore(near)


def test_an_older_checkpoint_is_not_taken_in_place_of_one_that_differs(
    near: Store, tmp_path: Path
) -> None:
    Start(tmp_path / "one", GIVEN).save(near, 1)
    Start(tmp_path / "two", {**GIVEN, "code": OTHER}).save(near, 2, epoch=1)
    with pytest.raises(InputsDiffer):
        Start(tmp_path / "three", GIVEN).restore(near)


def test_one_that_is_not_whole_is_passed_over_and_the_parent_is_the_one_taken(
    near: Store, tmp_path: Path
) -> None:
    start = Start(tmp_path / "one", GIVEN)
    start.save(near, 1)
    start.save(near, 2)
    older, newest = near.readable(RUN)
    (new,) = newest.manifest.chunks()
    (Path(str(near)) / chunk_path(new)).write_bytes(b"rotten")
    second = Start(tmp_path / "two", GIVEN)
    assert second.restore(near) == older
    assert read_folder(tmp_path / "two/back-1") == {"state": b"1"}
    assert second.save(near, 3).parent == older.name.digest


@pytest.mark.parametrize("text", [None, "{", "[]", '{"inputs": [{"name": 1}]}'])
def test_a_file_that_cannot_be_read_is_no_free_pass(
    near: Store, tmp_path: Path, text: str | None
) -> None:
    start = Start(tmp_path / "one", GIVEN)
    start.save(near, 1)
    start.file.unlink() if text is None else start.file.write_text(text)
    with pytest.raises(NotTaken, match=r"HEADROOM_INPUTS is set, and .*inputs\.json"):
        start.restore(near)
    with pytest.raises(NotTaken, match="HEADROOM_INPUTS is set"):
        start.save(near, 2)


def test_the_command_refuses_and_allows_by_name(
    near: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Start(tmp_path / "one", GIVEN).save(near, 1)
    second = Start(tmp_path / "two", {**GIVEN, "code": OTHER})
    monkeypatch.setenv("HEADROOM_INPUTS", str(second.file))
    words = ["checkpoints", "restore", str(near), str(tmp_path / "back"), "--run", RUN]
    refused = CliRunner().invoke(main, words)
    assert refused.exit_code == 1
    assert f"code was {CODE} and is {OTHER}" in refused.output
    allowed = CliRunner().invoke(main, [*words, "--allow", "code"])
    assert f"allowed: code was {CODE}, is {OTHER}" in allowed.output
    # Another process of the same job saves.
    assert [each.input for each in second.save(near, 2).changes] == ["code"]


NAMES = st.sampled_from(["code", "image", "data/a", "data/b"])
DIGESTS = st.sampled_from(["x", "y"])


@given(
    before=st.dictionaries(NAMES, DIGESTS, min_size=1),
    after=st.dictionaries(NAMES, DIGESTS),
    allow=st.sets(NAMES),
)
def test_whatever_differs_is_either_allowed_and_told_or_refused(
    tmp_path_factory: pytest.TempPathFactory,
    before: dict[str, str],
    after: dict[str, str],
    allow: set[str],
) -> None:
    start = Start(tmp_path_factory.mktemp("start"), after)
    data = {name[5:]: each for name, each in before.items() if name.startswith("data/")}
    given_before = About(
        run=RUN, step=1, code_revision=before.get("code", ""), data=data,
        image_digest=before.get("image", ""), inputs=dict.fromkeys(before, "verified"),
    )  # fmt: skip
    differing = {
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    }
    name = Name(RUN, 0, 1, "20261123T000000000000Z", "0" * 64)
    if differing <= allow:
        found = changes_since(name, given_before, start.environment, allow)
        assert {each.input for each in found} == differing
        return
    with pytest.raises(InputsDiffer) as refused:
        changes_since(name, given_before, start.environment, allow)
    assert {each.input for each in refused.value.changes} == differing - allow
