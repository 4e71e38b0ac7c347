"""What the documents say of playbooks is so."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from headroom.documents import DocumentError
from policies.playbooks import builtin, document
from policies.playbooks.machine import RunState, StepState
from policies.playbooks.models import Directive
from policies.playbooks.parse import PLACE, parse

DOCS = Path(__file__).resolve().parents[4] / "docs"
REFERENCE = (DOCS / "reference" / "playbooks.md").read_text()
HOW_TO = (DOCS / "how-to" / "write-a-playbook.md").read_text()


def example() -> str:
    found = re.search(r"```yaml\n(.*?)```", HOW_TO, re.DOTALL)
    assert found
    return found[1]


def test_the_example_is_a_playbook() -> None:
    assert parse(example()).playbook.name == "hot-row"


def test_the_error_that_is_shown_is_the_one_that_comes() -> None:
    shown = re.search(r"`line (\d+), column (\d+): (undeclared[^`]*)`", HOW_TO)
    assert shown
    wrong = example().replace(
        "condition: thermal_margin_c > 6.0", "condition: thermal_margin > 6.0"
    )
    with pytest.raises(DocumentError) as caught:
        parse(wrong)
    (problem,) = caught.value.problems
    assert (problem.line, problem.column, problem.message) == (
        int(shown[1]),
        int(shown[2]),
        shown[3],
    )


@pytest.mark.parametrize(
    "name",
    [
        *document.KINDS,
        *(field.name for field in msgspec.structs.fields(document.Playbook)),
        *document.OnTimeout,
        *document.Related,
        *RunState,
        *StepState,
        *Directive.State,
        *PLACE,
        *builtin.texts(),
    ],
)
def test_it_is_in_the_reference(name: str) -> None:
    assert f"`{name}`" in REFERENCE


@pytest.mark.parametrize("kind", [kind for kind in document.KINDS if kind != "branch"])
def test_the_fields_of_an_action_are_in_its_row(kind: str) -> None:
    row = next(line for line in REFERENCE.splitlines() if line.startswith(f"| `{kind}` |"))
    structs: dict[str, type[msgspec.Struct]] = {
        "restrict": document.Restrict,
        "notify": document.Notify,
        "approve": document.Approve,
        "wait_until": document.WaitUntil,
        "webhook": document.Webhook,
        "checkpoint": document.Checkpoint,
        "migrate": document.Migrate,
        "resume": document.Resume,
        "manual": document.Manual,
    }
    for field in msgspec.structs.fields(structs[kind]):
        assert f"`{field.encode_name}`" in row


@pytest.mark.parametrize(("kind", "seconds"), document.DEFAULT_TIMEOUT_S.items())
def test_the_default_timeouts_are_those_of_the_table(kind: str, seconds: float) -> None:
    row = next(line for line in REFERENCE.splitlines() if line.startswith(f"| `{kind}` |"))
    assert f"| {document.Duration(seconds)} |" in row
