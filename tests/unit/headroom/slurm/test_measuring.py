"""What a job measures in its script, and what the bridge takes of it."""

from __future__ import annotations

import getpass
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from headroom.errors import HeadroomError
from headroom.slurm.commands import Slurm
from headroom.slurm.files import Shared
from headroom.slurm.measuring import measure_of
from headroom.work.inputs import Refused, digest_of

ME = getpass.getuser()


@dataclass(frozen=True)
class Commented(Slurm):
    """A Slurm whose jobs all have one comment."""

    said: str = ""

    def comment(self, ref: str) -> str:
        return self.said


def declaring(*words: str) -> Commented:
    return Commented(said=" ".join(["run 7; headroom: pipeline=p phase=train", *words]))


def test_a_job_tells_what_its_comment_declares_and_the_bridge_takes_it(tmp_path: Path) -> None:
    model, shared = tmp_path / "model", Shared(tmp_path)
    model.write_text("weights")
    measure_of("7", tmp_path, declaring(f"output=model,path={model}"))
    (found,) = shared.outputs("7", ME)
    assert (found.name, found.digest, found.size_bytes) == ("model", digest_of(model), 7)
    shared.forget("7")
    assert shared.outputs("7", ME) == []


def test_an_artifact_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="output model: "):
        measure_of("7", tmp_path, declaring(f"output=model,path={tmp_path}/none"))
    assert Shared(tmp_path).outputs("7", ME) == []


def test_a_declaration_that_cannot_be_read_is_told_and_nothing_is_measured(
    tmp_path: Path,
) -> None:
    with pytest.raises(HeadroomError, match="the comment of job 7: output is not as in"):
        measure_of("7", tmp_path, declaring("output=model,path=here"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("user", ["nobody", "who-is-none"])
def test_what_another_user_has_left_does_not_count(tmp_path: Path, user: str) -> None:
    measure_of("7", tmp_path, declaring(f"output=tmp,path={__file__}"))
    assert len(Shared(tmp_path).outputs("7", ME)) == 1
    assert Shared(tmp_path).outputs("7", user) == []


@pytest.mark.parametrize(
    "said",
    [
        "",
        "[]",
        json.dumps({"outputs": [{"name": "m", "digest": "sha256:short"}]}),
        json.dumps({"outputs": [], "more": "x" * 70_000}),
    ],
)
def test_what_cannot_be_read_counts_as_nothing(tmp_path: Path, said: str) -> None:
    Shared(tmp_path).outputs_file("7").write_text(said)
    assert Shared(tmp_path).outputs("7", ME) == []


def test_a_link_to_a_file_of_somebody_else_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "there").write_text(json.dumps({"outputs": []}))
    Shared(tmp_path).outputs_file("7").symlink_to(tmp_path / "there")
    assert Shared(tmp_path).outputs("7", ME) == []
