"""Artifacts that phases make, measured after the end: real files, real shims."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.work.contract import DesiredState, Output, WorkOutcome
from headroom.work.inputs import Refused, digest_of, size_of
from headroom.work.outputs import measure
from lab.matrix.result import Cell, SubjectKind, Verdict, dumps, make_result
from tests.unit.headroom.work.test_runner import Machine, machine

__all__ = ["machine"]


def measured(tmp_path: Path, **places: Path) -> dict[str, Any]:
    """Measure artifacts by name; return what was written down."""
    file = tmp_path / "outputs.json"
    measure([{"name": name, "path": str(path)} for name, path in places.items()], file)
    found: dict[str, Any] = json.loads(file.read_bytes())
    return found


def test_a_file_and_a_folder_are_told_with_digest_and_size(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"weights")
    (tmp_path / "shards" / "a").mkdir(parents=True)
    (tmp_path / "shards" / "a" / "0").write_bytes(b"first")
    (tmp_path / "shards" / "1").write_bytes(b"second")
    before = time.time()
    found = measured(tmp_path, model=tmp_path / "model", shards=tmp_path / "shards")
    assert found["refused"] == ""
    model, shards = found["outputs"]
    assert model["digest"] == digest_of(tmp_path / "model")
    assert shards["digest"] == digest_of(tmp_path / "shards")
    assert (model["size_bytes"], shards["size_bytes"]) == (7, 11)
    assert before <= model["at"] == shards["at"] <= time.time()


@given(names=st.sets(st.text("abc", min_size=1, max_size=3), max_size=5), size=st.integers(0, 99))
def test_the_size_of_a_folder_is_that_of_its_files(
    tmp_path_factory: pytest.TempPathFactory, names: set[str], size: int
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    for name in names:
        (folder / name).write_bytes(b"x" * size)
    assert size_of(folder) == size * len(names)


def test_the_first_that_is_not_there_is_named_and_the_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"weights")
    with pytest.raises(Refused, match=r"output log: .* cannot be read"):
        measured(tmp_path, model=tmp_path / "model", log=tmp_path / "log")
    said = json.loads((tmp_path / "outputs.json").read_bytes())
    assert [each["name"] for each in said["outputs"]] == ["model"]
    assert said["refused"].startswith("output log: ")


def test_a_pipe_is_no_artifact_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Refused, match="no regular file"):
        measured(tmp_path, pipe=tmp_path / "pipe")


def result_of(**cells: int) -> bytes:
    """Return a result of a matrix as it is written down."""
    made = [
        Cell(scenario=verdict, title="", seed=seed, verdict=Verdict(verdict))
        for verdict, count in cells.items()
        for seed in range(count)
    ]
    return dumps(make_result(subject="train.py", kind=SubjectKind.COMMAND, at="", cells=made))


@pytest.mark.parametrize("place", ["result.json", "matrix/result.json"])
def test_the_cells_of_a_matrix_are_counted(tmp_path: Path, place: str) -> None:
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(result_of(passed=3, failed=1, not_run=2))
    declared = {"name": "matrix", "path": str(tmp_path / place.split("/")[0]), "matrix": True}
    measure([declared], tmp_path / "outputs.json")
    (found,) = json.loads((tmp_path / "outputs.json").read_bytes())["outputs"]
    assert found["cells"] == {
        "passed": 3, "failed": 1, "error": 0, "not_measured": 0, "not_run": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"{", "is not the result of a matrix"),
        (b"[]", "is not the result of a matrix"),
        (b'{"cells": [7]}', "is not the result of a matrix"),
        (b'{"cells": [{"verdict": []}]}', "is not the result of a matrix"),
        (b'{"cells": [{"verdict": "fine"}]}', "has a cell that is fine: of a later version"),
    ],
)
def test_what_is_no_result_of_a_matrix_is_refused(tmp_path: Path, said: bytes, why: str) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(said)
    with pytest.raises(Refused, match=f"output matrix: {path} {why}"):
        measure([{"name": "matrix", "path": str(path), "matrix": True}], tmp_path / "outputs.json")


# --- By a shim ------------------------------------------------------------------------------------


def test_a_command_that_has_succeeded_has_its_artifacts_reported(
    machine: Machine, tmp_path: Path
) -> None:
    path = tmp_path / "model"
    machine.start(f"printf weights > {path}", outputs=[Output(name="model", path=str(path))])
    report = machine.until("ended")
    assert (report.outcome, report.exit_code) == (WorkOutcome.EXITED, 0)
    (found,) = report.outputs
    assert (found.name, found.digest, found.size_bytes) == ("model", digest_of(path), 7)


def test_a_command_whose_artifact_is_not_there_has_failed_and_says_which(
    machine: Machine, tmp_path: Path
) -> None:
    machine.start("true", outputs=[Output(name="model", path=str(tmp_path / "model"))])
    report = machine.until("ended")
    assert (report.outcome, report.exit_code) == (WorkOutcome.EXITED, 126)
    assert report.text.startswith(f"output model: {tmp_path / 'model'} cannot be read")
    assert report.outputs == []


def test_nothing_is_measured_of_a_command_that_has_failed(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "model"
    machine.start(f"echo half > {path}; exit 3", outputs=[Output(name="model", path=str(path))])
    report = machine.until("ended")
    assert (report.exit_code, report.outputs) == (3, [])
    assert not machine.file("work/.headroom-outputs.json").exists()


def test_what_the_command_left_running_writes_no_more_when_its_artifact_is_measured(
    machine: Machine, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    machine.start(
        f"touch {path}; (while :; do echo line >> {path}; done) & sleep 0.2",
        outputs=[Output(name="log", path=str(path))],
    )
    (found,) = machine.until("ended").outputs
    assert (found.digest, found.size_bytes) == (digest_of(path), path.stat().st_size)


def test_a_job_cannot_have_another_artifact_recorded_by_writing_the_file_itself(
    machine: Machine, tmp_path: Path
) -> None:
    path = tmp_path / "model"
    forged = {"name": "other", "digest": f"sha256:{'0' * 64}", "size_bytes": 1, "at": 1.0}
    said = json.dumps({"outputs": [forged], "refused": ""})
    machine.start(
        f"printf weights > {path}; printf '%s' '{said}' > .headroom-outputs.json",
        outputs=[Output(name="model", path=str(path))],
    )
    (found,) = machine.until("ended").outputs
    assert found.name == "model"


def test_a_stop_while_artifacts_are_measured_ends_it(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    # Some minutes of hashing, and no disk.
    machine.start(f"truncate -s 200G {path}", outputs=[Output(name="big", path=str(path))])
    machine.until("running")
    end = time.monotonic() + 60.0
    while not path.exists() or path.stat().st_size == 0:
        assert time.monotonic() < end
        time.sleep(0.02)
    machine.server.wants(DesiredState.STOP)
    report = machine.until("ended")
    assert (report.outcome, report.outputs) == (WorkOutcome.STOPPED, [])
