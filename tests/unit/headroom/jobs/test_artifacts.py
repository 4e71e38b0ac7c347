"""Artifacts in specifications: what is named has to be made before, and each has its variable."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.contracts import FieldError
from headroom.jobs import reading
from headroom.jobs.artifacts import before_each, variable_of
from headroom.jobs.reading import SpecError
from headroom.jobs.spec import Gang, PhaseSpec
from tests.unit.headroom.jobs.specs import make_phase, make_spec

MODEL = {"name": "model", "path": "/models/a.pt"}
OF_TRAIN = {"phase": "train", "output": "model"}


def make_train(**given: Any) -> dict[str, Any]:
    return make_phase("train", **{"outputs": [MODEL], **given})


def refused(*phases: dict[str, Any], **given: Any) -> FieldError:
    with pytest.raises(SpecError) as caught:
        reading.convert(make_spec(*phases, **given))
    return caught.value.problems[0]


def test_a_phase_takes_what_an_earlier_one_makes_however_far_before() -> None:
    spec = reading.convert(
        make_spec(
            make_train(outputs=[{**MODEL, "copies": ["bergen"]}]),
            make_phase("check", needs=["train"], inputs=[OF_TRAIN]),
            make_phase(
                "promote", needs=["check"], inputs=[{**OF_TRAIN, "path": "/mnt/a.pt"}]
            ),
        )
    )  # fmt: skip
    assert [str(phase.inputs[0]) for phase in spec.phases[1:]] == ["train/model"] * 2


@pytest.mark.parametrize(
    ("of", "code", "field"),
    [
        ({"phase": "trian", "output": "model"}, "unknown_phase", "inputs[0].phase"),
        ({"phase": "train", "output": "log"}, "unknown_artifact", "inputs[0].output"),
    ],
)
def test_an_artifact_that_nobody_makes_is_refused(of: Any, code: str, field: str) -> None:
    problem = refused(make_train(), make_phase("check", needs=["train"], inputs=[of]))
    assert (problem.code, problem.field) == (code, f"phases[1].{field}")


@pytest.mark.parametrize("needs", [[], [{"phase": "train", "when": "started"}]])
def test_an_artifact_of_a_phase_that_may_not_have_succeeded_is_refused(needs: Any) -> None:
    problem = refused(make_train(), make_phase("check", needs=needs, inputs=[OF_TRAIN]))
    assert (problem.code, problem.field) == ("not_before", "phases[1].inputs[0].phase")


def test_what_is_copied_has_to_be_made_before_as_well() -> None:
    copies = make_phase("copy", outputs=[{**MODEL, "copy_of": OF_TRAIN}])
    assert refused(make_train(), copies).field == "phases[1].outputs[0].copy_of.phase"


def test_two_artifacts_of_one_name_or_one_variable_are_refused() -> None:
    problem = refused(make_train(outputs=[MODEL, MODEL]))
    assert (problem.code, problem.field) == ("duplicate", "phases[0].outputs[1].name")
    outputs = [{"name": "a-b", "path": "/a"}, {"name": "a.b", "path": "/b"}]
    inputs = [{"phase": "train", "output": each["name"]} for each in outputs]
    problem = refused(
        make_train(outputs=outputs), make_phase("check", needs=["train"], inputs=inputs)
    )
    assert (problem.code, problem.field) == ("duplicate", "phases[1].inputs[1]")


@pytest.mark.parametrize(("field", "value"), [("copies", ["oslo"]), ("matrix", True)])
def test_what_its_original_says_a_copy_does_not(field: str, value: Any) -> None:
    output = {**MODEL, field: value, "copy_of": OF_TRAIN}
    problem = refused(make_train(), make_phase("copy", needs=["train"], outputs=[output]))
    assert (problem.code, problem.field) == ("not_of_a_copy", f"phases[1].outputs[0].{field}")


def test_elements_of_an_array_make_no_artifacts() -> None:
    problem = refused(make_train(), array="0-3")
    assert (problem.code, problem.field) == ("invalid_array", "phases[0].outputs")


def make_promote(**given: Any) -> dict[str, Any]:
    fields = {"needs": ["train"], "inputs": [OF_TRAIN], "promotion": {}, **given}
    return make_phase("promote", **fields)


def test_a_phase_promotes_what_it_takes_by_the_matrices_that_it_names() -> None:
    result = {"name": "matrix", "path": "/models/matrix", "matrix": True}
    named = {"matrix": [{"phase": "train", "output": "matrix"}]}
    spec = reading.convert(
        make_spec(make_train(outputs=[MODEL, result]), make_promote(promotion=named))
    )
    promotion = spec.phases[1].promotion
    assert promotion is not None
    assert [str(each) for each in promotion.matrix] == ["train/matrix"]


@pytest.mark.parametrize(
    ("given", "code", "field"),
    [
        ({"inputs": []}, "nothing_promoted", "promotion"),
        ({"promotion": {"matrix": [OF_TRAIN]}}, "no_matrix", "promotion.matrix[0]"),
        (
            {"promotion": {"matrix": [{"phase": "train", "output": "log"}]}},
            "unknown_artifact",
            "promotion.matrix[0].output",
        ),
        ({"promotion": {"matrix": True}}, "invalid_field", "promotion.matrix"),
    ],
)
def test_a_promotion_of_nothing_or_by_no_matrix_is_refused(
    given: dict[str, Any], code: str, field: str
) -> None:
    problem = refused(make_train(), make_promote(**given))
    assert (problem.code, problem.field) == (code, f"phases[1].{field}")


@pytest.mark.parametrize("path", ["model.pt", "", "/a\x00b"])
def test_an_artifact_lies_at_an_absolute_path(path: str) -> None:
    problem = refused(make_train(outputs=[{"name": "model", "path": path}]))
    assert (problem.code, problem.field) == ("invalid_field", "phases[0].outputs[0].path")


def test_a_variable_is_one_that_a_shell_has() -> None:
    assert variable_of("train.v2", "model-a") == "HEADROOM_ARTIFACT_TRAIN_V2_MODEL_A"


@given(
    st.lists(st.lists(st.integers(0, 5), max_size=3), min_size=1, max_size=6).map(
        lambda rows: [[need for need in needs if need < index] for index, needs in enumerate(rows)]
    )
)
def test_what_comes_before_a_phase_is_all_that_its_needs_lead_to(rows: list[list[int]]) -> None:
    phases = [
        PhaseSpec(
            name=f"p{index}", gang=Gang(gpus=1), walltime_s=1.0,
            needs=[f"p{need}" for need in needs],
        )
        for index, needs in enumerate(rows)
    ]  # fmt: skip
    expected: list[set[str]] = []
    for needs in rows:
        expected.append(set().union(*({f"p{each}"} | expected[each] for each in needs)))
    assert list(before_each(phases).values()) == expected
