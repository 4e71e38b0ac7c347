"""Playbook texts: what is taken, and what is said of the rest."""

from __future__ import annotations

import textwrap

import pytest

from headroom.documents import DocumentError
from policies.playbooks.document import Duration, OnTimeout
from policies.playbooks.parse import MOST_STEPS, parse

HEAD = """\
name: cool-down
description: Lets a rack cool down
scopes: [rack]
constraint: Heat
failure_mode: GPUs slow down
switching_cost: Minutes
"""


def playbook(steps: str, head: str = HEAD) -> str:
    return f"{head}steps:\n{textwrap.indent(textwrap.dedent(steps), '  ')}"


def problem_of(text: str) -> tuple[int, int, str, str]:
    """Return line, column, field and message of the only problem of ``text``."""
    with pytest.raises(DocumentError) as caught:
        parse(text)
    (problem,) = caught.value.problems
    return problem.line, problem.column, problem.field, problem.message


def test_steps_of_branches_stand_in_a_row_and_know_what_comes_next() -> None:
    program = parse(
        playbook(
            """\
            - id: a
              notify: {subject: Hello}
            - id: b
              branch:
                when: power_use > 0.9
                then:
                  - id: c
                    manual: {instruction: Look}
                  - id: d
                    wait_until: {for: 5m}
                else:
                  - id: e
                    wait_until: {condition: thermal_margin_c > 12.0, for: 90s}
            - id: f
              approve: {question: Go on}
            """
        )
    )
    assert [step.path for step in program.steps] == [
        "0",
        "1",
        "1.then.0",
        "1.then.1",
        "1.else.0",
        "2",
    ]
    assert [step.after for step in program.steps] == [1, 5, 3, 5, 5, 6]
    branch = program.steps[1]
    assert (branch.then, branch.otherwise) == (2, 4)
    assert [step.timeout_s for step in program.steps] == [None, None, 3600, None, 3600, 1800]


def test_a_branch_with_no_other_way_goes_on_after_itself() -> None:
    program = parse(
        playbook(
            """\
            - id: a
              branch: {when: stale, then: [{id: b, notify: {subject: Stale}}]}
            - id: c
              notify: {subject: Over}
            """
        )
    )
    assert (program.steps[0].then, program.steps[0].otherwise) == (1, 2)


def test_a_step_says_how_it_is_taken_back() -> None:
    program = parse(
        playbook(
            """\
            - id: a
              manual: {instruction: Open the valve}
              undo: {manual: {instruction: Close the valve}, timeout: 5m}
            - id: b
              migrate: {to: local-only}
              on_timeout: continue
            - id: c
              migrate: {to: local-only}
              undo: nothing
            """
        )
    )
    undoing = [step.undo for step in program.steps]
    assert undoing[0] is not None
    assert (undoing[0].path, undoing[0].timeout_s) == ("0/undo", 300)
    assert undoing[1] is not None
    assert undoing[1].action.to == "primary-site"  # type: ignore[union-attr]
    assert undoing[2] is None
    assert program.steps[1].on_timeout is OnTimeout.CONTINUE
    assert program.step("0/undo") is undoing[0]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("5m", 300), ("1h30m", 5400), ("2d", 172800), (30, 30)]
)
def test_lengths_of_time(text: str | int, seconds: float) -> None:
    assert Duration.read(text) == seconds


def test_a_length_of_time_reads_as_it_is_written() -> None:
    assert [str(Duration.read(text)) for text in ("90s", "1h30m", "0s")] == ["1m30s", "1h30m", "0s"]


@pytest.mark.parametrize(
    ("steps", "line", "column", "field", "message"),
    [
        ("- id: a\n  bang: 1\n", 9, 5, "steps[0].bang", "unknown field"),
        ("- id: A\n  notify: {subject: x}\n", 8, 9, "steps[0].id", "small letters"),
        ("- id: a\n", 8, 5, "steps[0]", "it has none"),
        (
            "- id: a\n  notify: {subject: x}\n  resume: {}\n",
            8, 5, "steps[0]", "it has notify and resume",
        ),
        (
            "- id: a\n  restrict: {kind: no_new_lunches}\n",
            9, 22, "steps[0].restrict.kind", "Invalid enum value",
        ),
        (
            "- id: a\n  restrict: {kind: power_cap_w}\n",
            9, 15, "steps[0].restrict.value", "needs a value in W",
        ),
        (
            "- id: a\n  restrict: {kind: no_new_launches, value: 3}\n",
            9, 46, "steps[0].restrict.value", "takes no value",
        ),
        (
            "- id: a\n  restrict: {kind: link_share, value: 0.5}\n",
            9, 15, "steps[0].restrict.scope", "cannot be on a rack",
        ),
        (
            "- id: a\n  restrict: {kind: no_new_launches, until: b}\n",
            9, 46, "steps[0].restrict.until", "no later step is called b",
        ),
        (
            "- id: a\n  restrict: {kind: no_new_launches, lease: 5s}\n",
            9, 46, "steps[0].restrict.lease", "at least 60s",
        ),
        (
            "- id: a\n  restrict: {kind: no_new_launches, lease: soon}\n",
            9, 46, "steps[0].restrict.lease", "no length of time",
        ),
        (
            "- id: a\n  wait_until:\n    condition: >\n      power_use >\n      powr_load_w\n",
            12, 9, "steps[0].wait_until.condition", "undeclared reference to 'powr_load_w'",
        ),
        (
            "- id: a\n  branch: {when: power_use > 1, then: []}\n",
            9, 30, "steps[0].branch.when", "no matching overload",
        ),
        ("- id: a\n  wait_until: {}\n", 9, 17, "steps[0].wait_until", "waits for nothing"),
        (
            "- id: a\n  wait_until: {for: 5m}\n  timeout: 1m\n",
            10, 14, "steps[0].timeout", "waits for nothing that could fail",
        ),
        (
            "- id: a\n  approve: {question: Go}\n  on_timeout: fail\n",
            10, 17, "steps[0].on_timeout", "no timeout",
        ),
        (
            "- id: a\n  approve: {question: Go, on_silence: escalate}\n",
            9, 41, "steps[0].approve.on_silence", "belong together",
        ),
        (
            "- id: a\n  manual: {instruction: 'Look at {fan_speed}'}\n",
            9, 27, "steps[0].manual.instruction", "not known of every scope",
        ),
        (
            "- id: a\n  approve: {question: Go}\n  undo: {notify: {subject: x}}\n",
            10, 11, "steps[0].undo", "changes nothing",
        ),
        (
            "- id: a\n  checkpoint: {}\n- id: a\n  checkpoint: {}\n",
            10, 9, "steps[1].id", "two steps are called a",
        ),
        (
            "- id: a\n  checkpoint: {}\n  timeout: 99d\n",
            10, 14, "steps[0].timeout", "not within",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(
    steps: str, line: int, column: int, field: str, message: str
) -> None:
    found = problem_of(playbook(steps))
    assert found[:3] == (line, column, field)
    assert message in found[3]


def test_all_problems_are_told_at_once() -> None:
    text = playbook(
        """\
        - id: a
          wait_until: {}
        - id: a
          restrict: {kind: power_cap_w, value: -1}
        """
    )
    with pytest.raises(DocumentError) as caught:
        parse(text)
    assert [problem.line for problem in caught.value.problems] == [10, 9, 11]


def test_a_playbook_says_what_seeds_a_decision() -> None:
    text = playbook("- id: a\n  checkpoint: {}\n", HEAD.replace("constraint: Heat\n", ""))
    assert "missing required field `constraint`" in problem_of(text)[3]


def test_conditions_hold_for_every_kind_of_scope() -> None:
    head = HEAD.replace("[rack]", "[rack, zone]")
    steps = "- id: a\n  wait_until: {condition: cooling_use < 0.8}\n"
    assert "undeclared reference to 'cooling_use'" in problem_of(playbook(steps, head))[3]


def test_a_scope_that_is_not_there_is_refused() -> None:
    head = HEAD.replace("[rack]", "[site]")
    steps = "- id: a\n  restrict: {kind: drain, scope: rack}\n"
    assert problem_of(playbook(steps, head))[3].startswith("a site has no rack")


def test_inputs_are_numbers_that_conditions_may_name() -> None:
    inputs = "inputs:\n  cap_w: {default: 520, min: 200, max: 900, unit: W, help: Cap}\n"
    steps = """\
        - id: a
          restrict: {kind: power_cap_w, value: cap_w, reason: "cap at {cap_w}"}
        - id: b
          restrict: {kind: power_cap_w, value: 0.8 * power_budget_w / gpus}
        """
    assert len(parse(playbook(steps, HEAD + inputs)).steps) == 2
    bad = HEAD + inputs.replace("520", "100")
    assert problem_of(playbook(steps, bad))[2:] == (
        "inputs.cap_w.default", "cap_w is 100: give at least 200 and at most 900 W"
    )  # fmt: skip
    taken = HEAD + inputs.replace("cap_w:", "gpus:")
    with pytest.raises(match="gpus is a field of the scope already"):
        parse(playbook(steps, taken))


def test_too_many_steps_are_refused() -> None:
    steps = "".join(f"- id: s{n}\n  checkpoint: {{}}\n" for n in range(MOST_STEPS + 1))
    assert "101 steps" in problem_of(playbook(steps))[3]


@pytest.mark.parametrize(
    "text", ["", "- a", "a: [", "name: &x 1\nb: *x", "? {a: 1}", "!!python/x 1"]
)
def test_what_is_no_playbook_at_all_is_refused_with_a_place(text: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse(text)
    assert all(problem.line for problem in caught.value.problems)
