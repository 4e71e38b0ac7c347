"""Artifacts as words in the comment of a job."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.jobs.spec import ArtifactOf, Gang, Input, Output, PhaseSpec, Promotion
from headroom.schedulers import declared, words

_NAMES = st.from_regex(r"[a-z0-9]([a-z0-9._-]{0,8}[a-z0-9])?", fullmatch=True)
_PATHS = st.from_regex(r"/[A-Za-z0-9/._=:@-]{0,20}", fullmatch=True)
_OF = st.builds(ArtifactOf, phase=_NAMES, output=_NAMES)
_PHASES = st.builds(
    PhaseSpec,
    name=_NAMES,
    gang=st.just(Gang(gpus=1)),
    walltime_s=st.just(60.0),
    inputs=st.lists(
        st.builds(Input, phase=_NAMES, output=_NAMES, path=st.none() | _PATHS), max_size=3
    ),
    outputs=st.lists(
        st.builds(
            Output, name=_NAMES, path=_PATHS, copies=st.lists(_NAMES, max_size=2),
            copy_of=st.none() | _OF, matrix=st.booleans(),
        ),
        max_size=3,
    ),
    promotion=st.none() | st.builds(Promotion, matrix=st.lists(_OF, max_size=2)),
)  # fmt: skip


def test_an_owner_declares_what_a_job_takes_makes_and_promotes() -> None:
    found = words.read(
        "headroom: pipeline=llama-7 phase=package input=train/model,path=/mnt/m input=check/out"
        " output=bundle,path=/shared/b,copies=bergen+oslo output=cells,path=/shared/c,matrix=true"
        " promotion=check/cells; and more"
    )
    assert found.wrong == []
    assert (found.pipeline, found.phase) == ("llama-7", "package")
    assert found.inputs == (
        Input(phase="train", output="model", path="/mnt/m"),
        Input(phase="check", output="out"),
    )
    assert found.outputs == (
        Output(name="bundle", path="/shared/b", copies=["bergen", "oslo"]),
        Output(name="cells", path="/shared/c", matrix=True),
    )
    assert found.promotion == Promotion(matrix=[ArtifactOf(phase="check", output="cells")])


def test_a_copy_names_what_it_is_of() -> None:
    (found,) = words.read("headroom: output=b,path=/b,copy_of=package/bundle").outputs
    assert found.copy_of == ArtifactOf(phase="package", output="bundle")


def test_a_promotion_may_go_by_no_matrix() -> None:
    assert words.read("headroom: promotion=").promotion == Promotion()


@given(_PHASES)
def test_what_a_phase_declares_is_read_as_it_was_written(phase: PhaseSpec) -> None:
    text = " ".join(f"{name}={value}" for name, value in declared.words_of(phase))
    found = words.read(f"headroom: {text}")
    assert found.wrong == []
    assert list(found.inputs) == phase.inputs
    assert list(found.outputs) == phase.outputs
    assert found.promotion == phase.promotion


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("output=model", "required field `path`"),
        ("output=model,path=shared", "is not as in a specification"),
        ("output=model,/shared", "which is no FIELD=VALUE"),
        ("output=model,path=/m,size=7", "unknown field `size`"),
        ("output=M!,path=/m", "is not as in a specification"),
        ("input=model", "is not as in a specification"),
        ("promotion=matrix", "is not as in a specification"),
        ("pipeline=A", "is the name of a run"),
        ("phase=", "is the name of a phase"),
    ],
)
def test_what_cannot_be_read_is_left_out_and_told(word: str, told: str) -> None:
    found = words.read(f"headroom: {word} cap_w=300")
    assert told in found.wrong[0]
    assert found.cap_w == 300.0


@pytest.mark.parametrize("path", ["/a b", "/a;b", "/a,b", '/a"b', "/a+b"])
def test_a_path_that_no_word_can_hold_is_refused(path: str) -> None:
    phase = PhaseSpec(
        name="train", gang=Gang(gpus=1), walltime_s=60.0, outputs=[Output(name="m", path=path)]
    )
    with pytest.raises(ValueError, match="cannot stand in a comment"):
        list(declared.words_of(phase))
