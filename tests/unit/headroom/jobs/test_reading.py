from __future__ import annotations

import json
import textwrap
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from headroom.contracts import FieldError
from headroom.jobs import reading
from headroom.jobs.reading import JSON, MOST_BYTES, YAML, SpecError, read
from headroom.jobs.spec import JobSpec, Level
from tests.unit.headroom.jobs.specs import ARTIFACTS, DIGEST, make_phase, make_spec


def as_body(values: Any) -> bytes:
    return json.dumps(values).encode()


def refused(body: bytes, content_type: str = JSON) -> FieldError:
    """Return the first problem of a body that has to be refused."""
    with pytest.raises(SpecError) as caught:
        read(body, content_type)
    return caught.value.problems[0]


def refused_spec(*phases: dict[str, Any], **given: Any) -> FieldError:
    return refused(as_body(make_spec(*phases, **given)))


WHOLE = """\
version: 1
name: llama-3
project: vision
class: high-density-training
priority: -5
begin_by: 2026-12-01T08:00:00Z
labels: {team: "7"}
phases:
  - name: prepare
    gang: {gpus: 1}
    walltime_s: 600
  - name: train
    needs: [prepare]
    gang: {gpus: 64, min_gpus: 32, gpus_per_node: 8, models: [h100-sxm]}
    power: {expected_peak_w: 690.5, lowest_cap_w: 450}
    locality: {required: zone, preferred: rack, data_site: oslo, storage: oslo/scratch}
    throttling: {responses: [continue, shrink-batch], shrink_below: 0.2, pause_below: 0.1}
    walltime_s: 86400
    command: [torchrun, train.py]
    env: {SEED: "1"}
"""


def test_yaml_and_json_of_one_job_are_the_same() -> None:
    from_yaml = read(WHOLE.encode(), "application/yaml; charset=utf-8")
    from_json = read(as_body(reading.as_json(from_yaml)))
    assert from_yaml == from_json
    assert from_yaml.phases[1].locality.preferred is Level.RACK
    assert from_yaml.begin_by is not None
    assert from_yaml.begin_by.isoformat() == "2026-12-01T08:00:00+00:00"


def test_what_is_left_out_is_not_written_down() -> None:
    values = reading.as_json(read(as_body(make_spec())))
    assert values == {"version": 1, **make_spec()}


@pytest.mark.parametrize(
    ("phase", "path"),
    [
        ({"gang": {"gpus": -8}}, "phases[0].gang.gpus"),
        ({"gang": {"gpus": -1}}, "phases[0].gang.gpus"),
        ({"gang": {"gpus": "8"}}, "phases[0].gang.gpus"),
        ({"gang": {}}, "phases[0].gang.gpus"),
        ({"gang": {"gpus": 8, "modles": []}}, "phases[0].gang.modles"),
        ({"power": {"expected_peak_w": -700}}, "phases[0].power.expected_peak_w"),
        ({"power": {"lowest_cap_w": 0}}, "phases[0].power.lowest_cap_w"),
        ({"walltime_s": -1}, "phases[0].walltime_s"),
        ({"walltime_s": None}, "phases[0].walltime_s"),
        ({"thermal": {"margin_c": -2}}, "phases[0].thermal.margin_c"),
        ({"locality": {"required": "galaxy"}}, "phases[0].locality.required"),
        ({"locality": {"storage": "scratch"}}, "phases[0].locality.storage"),
        ({"env": {"1A": ""}}, "phases[0].env"),
        ({"env": {"A": "a\x00"}}, "phases[0].env[...]"),
        ({"name": "Train"}, "phases[0].name"),
        ({"name": "train\n"}, "phases[0].name"),
        ({"artifacts": {"image": "llm:latest"}}, "phases[0].artifacts.image"),
        ({"artifacts": {"code_revision": "main"}}, "phases[0].artifacts.code_revision"),
        ({"artifacts": {"data": {"a": "md5:0"}}}, "phases[0].artifacts.data[...]"),
        ({"throttling": {"pause_below": 1.5}}, "phases[0].throttling.pause_below"),
        # Rules.
        ({"gang": {"gpus": 8, "min_gpus": 9}}, "phases[0].gang.min_gpus"),
        ({"gang": {"gpus": 8, "max_gpus": 7}}, "phases[0].gang.gpus"),
        ({"gang": {"gpus": 12, "gpus_per_node": 8}}, "phases[0].gang.gpus"),
        ({"gang": {"gpus": 4, "gpus_per_node": 8}}, "phases[0].gang.gpus_per_node"),
        ({"gang": {"gpus": 2, "slice": "1g.10gb"}}, "phases[0].gang.gpus"),
        ({"gang": {"gpus": 1, "slice": "1g.10gb", "max_gpus": 4}}, "phases[0].gang.max_gpus"),
        ({"gang": {"gpus": 1, "slice": ""}}, "phases[0].gang.slice"),
        ({"gang": {"gpus": 0}}, "phases[0].gang.cores"),
        ({"gang": {"gpus": 1, "cores": 4}}, "phases[0].gang.gpus"),
        ({"gang": {"gpus": 0, "cores": 4, "min_gpus": 1}}, "phases[0].gang.min_gpus"),
        ({"gang": {"gpus": 1, "mem_bytes": 1e9}}, "phases[0].gang.mem_bytes"),
        (
            {"gang": {"gpus": 0, "cores": 4}, "power": {"lowest_cap_w": 5}},
            "phases[0].power.lowest_cap_w",
        ),
        (
            {"gang": {"gpus": 1, "slice": "1g.10gb"}, "power": {"lowest_cap_w": 50}},
            "phases[0].power.lowest_cap_w",
        ),
        (
            {
                "gang": {"gpus": 1, "slice": "1g.10gb"},
                "throttling": {"responses": ["continue"]},
            },
            "phases[0].throttling.responses",
        ),
        (
            {"power": {"expected_peak_w": 400, "lowest_cap_w": 500}},
            "phases[0].power.lowest_cap_w",
        ),
        (
            {"throttling": {"pause_below": 0.3, "shrink_below": 0.2}},
            "phases[0].throttling.pause_below",
        ),
        (
            {"locality": {"required": "rack", "preferred": "site"}},
            "phases[0].locality.preferred",
        ),
        ({"env": {"HEADROOM_JOB": "x"}}, "phases[0].env.HEADROOM_JOB"),
        ({"env": {"CUDA_VISIBLE_DEVICES": "0"}}, "phases[0].env.CUDA_VISIBLE_DEVICES"),
        ({"needs": ["train"]}, "phases[0].needs"),
        ({"needs": ["evaluate"]}, "phases[0].needs[0]"),
    ],
)
def test_a_bad_phase_is_refused_with_its_path(phase: dict[str, Any], path: str) -> None:
    problem = refused_spec(make_phase(**phase))
    assert (problem.field, bool(problem.message), bool(problem.hint)) == (path, True, True)


def test_the_numbers_of_a_refusal_are_those_of_the_specification() -> None:
    problem = refused_spec(make_phase(gang={"gpus": 8, "min_gpus": 9}))
    assert problem.message == "9 is above gang.gpus, 8"
    assert problem.hint == "ask for more, or lower min_gpus"


def test_phases_that_wait_for_each_other_are_named() -> None:
    problem = refused_spec(
        make_phase("a"),
        make_phase("b", needs=["a", "d"]),
        make_phase("c", needs=["b"]),
        make_phase("d", needs=["c"]),
    )
    assert (problem.code, problem.field) == ("cycle", "phases[1].needs")
    assert problem.message == "these phases wait for each other: b → c → d → b"


def test_a_name_is_given_once() -> None:
    problem = refused_spec(make_phase("a"), make_phase("b"), make_phase("a"))
    assert problem.field == "phases[2].name"
    assert "phases[0]" in problem.message


def test_all_that_is_wrong_is_told_at_once() -> None:
    bad = make_phase(gang={"gpus": 8, "min_gpus": 9}, env={"HEADROOM_X": ""})
    with pytest.raises(SpecError) as caught:
        read(as_body(make_spec(bad)))
    assert [each.code for each in caught.value.problems] == ["out_of_order", "reserved"]
    assert "phases[0].gang.min_gpus: 9 is above" in str(caught.value)


def test_an_input_with_a_place_has_something_to_be_held_against() -> None:
    good = {**ARTIFACTS, "data": {"corpus": f"sampled-{DIGEST}"}, "code_path": "/srv/llama"}
    places = {"data_paths": {"corpus": "/data/corpus"}}
    read(as_body(make_spec(make_phase(artifacts={**good, **places}))))
    read(as_body(make_spec(make_phase(artifacts={**good, "code_path": None}))))
    bad = {"code_path": "/srv/llama", "data": {"other": DIGEST}, **places}
    with pytest.raises(SpecError) as caught:
        read(as_body(make_spec(make_phase(artifacts=bad))))
    assert [(each.code, each.field) for each in caught.value.problems] == [
        ("required", "phases[0].artifacts.code_revision"),
        ("required", "phases[0].artifacts.data.corpus"),
    ]
    relative = refused_spec(make_phase(artifacts={**good, "code_path": "llama"}))
    assert "the whole path of a file or folder" in relative.message


def test_a_field_that_is_nearly_right_is_named() -> None:
    problem = refused_spec(make_phase(wall_time_s=10))
    assert problem.hint == "do you mean `walltime_s`?"


def test_a_pattern_is_told_in_words() -> None:
    assert refused_spec(project="Über").message.startswith("has to be small letters, digits")
    image = make_phase(artifacts={"image": "llm"})
    assert "registry/name@sha256:" in refused_spec(image).message


def test_another_version_of_the_format_is_refused() -> None:
    assert refused_spec(version=2).field == "version"


# --- What is no JSON ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": 1e999}', "too large"),
        (b'{"a": -Infinity}', "Infinity"),
        (b'{"a": 1, "a": 2}', "given twice"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"project": "\\ud800"}', "UTF-8"),
        (b"\xff\xfe{", "UTF-8"),
        (b"9" * 10_000, "not JSON"),
    ],
)
def test_what_is_no_json_is_refused(body: bytes, word: str) -> None:
    problem = refused(body)
    assert problem.code == "malformed_body"
    assert word in problem.message


def test_yaml_sent_as_json_is_told_apart() -> None:
    assert refused(WHOLE.encode()).hint == "send YAML as application/yaml"


@pytest.mark.parametrize("content_type", [JSON, YAML])
def test_what_is_large_is_refused_unread(content_type: str) -> None:
    problem = refused(b"#" * (MOST_BYTES + 1), content_type)
    assert (problem.code, "262144 bytes" in problem.message) == ("too_large", True)


# --- What is no YAML ------------------------------------------------------------------------------

_BOMB = "a: &a [x, x]\nb: &b [*a, *a, *a]\nc: [*b, *b, *b]\n"


@pytest.mark.parametrize(
    ("text", "word", "line"),
    [
        (_BOMB, "anchors", 1),
        ("project: x\n<<: y\n", "key has to be a text", 2),
        ("project: x\nname: *x\n", "anchors", 2),
        ("project: !!python/object/apply:os.system [id]\n", "tags", 1),
        ("project: !x y\n", "tags", 1),
        ("project: x\nproject: y\n", "given twice", 2),
        ("1: x\n", "key has to be a text", 1),
        ("? [a]\n: x\n", "key has to be a text", 1),
        ("priority: .nan\n", "finite", 1),
        ("priority: -.inf\n", "finite", 1),
        ("a: [1\n", "expected", 2),
        ("a: b\n---\na: c\n", "more than one document", 2),
        ("project: !!binary aGVsbG8=\n", "tags", 1),
        ("project: 0b\n=: x\n", "key has to be a text", 2),
        ("a: " + "[" * 50 + "]" * 50, "nested deeper than 20", 1),
        ("a: [" + "1," * 110_000 + "]", "more than 100000 values", 1),
        ("a: \x07", "", 1),
        ("n: " + "9" * 5000, "is no int", 1),
    ],
)
def test_what_is_no_plain_yaml_is_refused_with_its_line(text: str, word: str, line: int) -> None:
    problem = refused(text.encode(), YAML)
    assert problem.code == "malformed_body"
    assert word in problem.message
    assert problem.line == line


def test_a_deep_document_costs_no_recursion() -> None:
    assert "nested deeper" in refused(b"[" * 100_000, YAML).message


@pytest.mark.parametrize("text", ["", "# nothing\n", "[]", "hello"])
def test_yaml_that_is_no_mapping_is_refused(text: str) -> None:
    assert refused(text.encode(), YAML).code == "invalid_field"


def test_a_bad_field_of_yaml_is_told_with_its_line() -> None:
    text = WHOLE.replace("gpus: 64", "gpus: -64")
    problem = refused(text.encode(), YAML)
    assert problem.field == "phases[1].gang.gpus"
    assert (problem.line, problem.message) == (14, "Expected `int` >= 0")


def test_a_missing_field_of_yaml_is_told_with_the_line_of_its_parent() -> None:
    problem = refused(b"project: x\nclass: y\nphases:\n  - name: a\n    walltime_s: 1\n", YAML)
    assert problem.field == "phases[0].gang"
    assert problem.line == 4


def test_what_yaml_takes_for_something_else_is_to_be_quoted() -> None:
    problem = refused(textwrap.dedent("""\
        project: no
        class: x
        phases: []
        """).encode(), YAML)  # fmt: skip
    assert (problem.field, problem.hint) == ("project", "put it in quotes")


# --- Anything -------------------------------------------------------------------------------------

_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(reading._FIELDS) | st.text(max_size=8), inner, max_size=5)
    ),
    max_leaves=20,
)


def _read_or_refuse(body: bytes, content_type: str) -> None:
    problems: list[FieldError] = []
    try:
        assert isinstance(read(body, content_type), JobSpec)
    except SpecError as error:
        problems = error.problems or [FieldError(code="", message="")]
    assert all(each.message and each.code for each in problems)


@given(_PLAIN, st.sampled_from(["gang", "power", "needs", "walltime_s", "env", "artifacts"]))
def test_any_values_are_read_or_refused(values: Any, where: str) -> None:
    spec = make_spec(make_phase(**{where: values}))
    _read_or_refuse(json.dumps(spec).encode(), JSON)
    _read_or_refuse(yaml.safe_dump(spec, allow_unicode=True).encode("utf-8", "replace"), YAML)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    _read_or_refuse(body, JSON)
    _read_or_refuse(body, YAML)


def test_a_digest_may_stand_alone() -> None:
    found = read(as_body(make_spec(make_phase(artifacts={"image": DIGEST}))))
    assert found.phases[0].artifacts.image == DIGEST
