"""Workflows of Argo as specifications."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from headroom.jobs.formats import kubernetes
from headroom.jobs.formats.brought import Brought, FormatError, Owner
from tests.unit.headroom.jobs.specs import DIGEST

_TEXT = f"""
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {{generateName: llm-, namespace: vision}}
spec:
  entrypoint: main
  activeDeadlineSeconds: 86400
  arguments: {{parameters: [{{name: steps, value: 5000}}]}}
  templates:
  - name: main
    dag:
      tasks:
      - {{name: prepare, template: prepare}}
      - name: train
        template: train
        depends: prepare.Succeeded
        arguments: {{parameters: [{{name: rate, value: "3e-4"}}]}}
      - {{name: evaluate, template: evaluate, dependencies: [train]}}
  - name: prepare
    script:
      image: py@{DIGEST}
      command: [bash]
      source: echo ready
      resources: {{requests: {{cpu: 3500m, memory: 64Gi}}}}
  - name: train
    metadata: {{annotations: {{headroom.dev/peak-w: "650", headroom.dev/class: checkpoint-heavy}}}}
    inputs: {{parameters: [{{name: rate}}, {{name: seed, value: "7"}}]}}
    activeDeadlineSeconds: "7200"
    retryStrategy: {{limit: "3"}}
    container:
      image: py@{DIGEST}
      command: [python, train.py]
      args: ["--steps={{{{workflow.parameters.steps}}}}", "--rate={{{{inputs.parameters.rate}}}}"]
      env: [{{name: SEED, value: "{{{{inputs.parameters.seed}}}}"}}]
      resources: {{limits: {{nvidia.com/gpu: 8}}}}
  - name: evaluate
    container:
      image: py@{DIGEST}
      command: [python, evaluate.py]
      resources: {{limits: {{nvidia.com/gpu: 1}}}}
"""


def workflow(**changed: Any) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(_TEXT)
    document["spec"] |= changed
    return document


def with_task(**more: Any) -> dict[str, Any]:
    found = workflow()
    found["spec"]["templates"][0]["dag"]["tasks"][1] |= more
    return found


def with_template(**more: Any) -> dict[str, Any]:
    found = workflow()
    found["spec"]["templates"][2] |= more
    return found


def with_script(interpreter: str) -> dict[str, Any]:
    found = with_template(script={"command": [interpreter], "source": ""})
    del found["spec"]["templates"][2]["container"]
    return found


def brought(document: dict[str, Any]) -> Brought:
    return kubernetes.spec_of(document, Owner())


def test_its_tasks_are_phases_with_their_own_words_limits_and_parameters() -> None:
    found = brought(workflow())
    prepare, train, evaluate = found.spec.phases
    assert (found.spec.project, found.spec.job_class) == ("vision", "checkpoint-heavy")
    assert prepare.command == ["bash", "-c", "echo ready"]
    assert (prepare.gang.gpus, prepare.gang.cores, prepare.gang.mem_bytes) == (0, 4, 64 * 2**30)
    assert [str(each) for each in train.needs] == ["prepare"]
    assert train.command == ["python", "train.py", "--steps=5000", "--rate=3e-4"]
    assert train.env == {"SEED": "7"}
    assert (train.gang.gpus, train.walltime_s, train.restart.max_restarts) == (8, 7200.0, 3)
    assert [str(each) for each in evaluate.needs] == ["train"]
    assert evaluate.walltime_s == 86400.0
    assert (train.power.expected_peak_w, evaluate.power.expected_peak_w) == (650.0, None)
    assert found.lost == ()


def test_each_group_of_steps_waits_for_the_one_before() -> None:
    steps = [[{"name": "a", "template": "prepare"}, {"name": "b", "template": "prepare"}],
             [{"name": "c", "template": "evaluate"}]]  # fmt: skip
    document = workflow()
    document["spec"]["templates"][0] = {"name": "main", "steps": steps}
    document["spec"]["templates"][3]["metadata"] = {"annotations": {"headroom.dev/class": "x"}}
    phases = kubernetes.spec_of(document, Owner()).spec.phases
    assert [(each.name, [str(need) for need in each.needs]) for each in phases] == [
        ("a", []), ("b", []), ("c", ["a", "b"]),
    ]  # fmt: skip


def test_a_workflow_of_one_container_is_a_job_of_one_phase() -> None:
    document = workflow(entrypoint="evaluate")
    (phase,) = kubernetes.spec_of(document, Owner(job_class="checkpoint-heavy")).spec.phases
    assert (phase.name, phase.gang.gpus) == ("llm", 1)


def test_artifacts_of_argo_are_told_and_left_out() -> None:
    found = brought(with_template(outputs={"artifacts": [{"name": "model", "path": "/model"}]}))
    assert found.lost == ("artifacts of train are left out: write them as its inputs and outputs",)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (with_task(withItems=[1, 2]), "train has withItems, and a phase runs once"),
        (with_task(when="'{{x}}' == 1"), "train has when"),
        (with_task(depends="prepare || other"), "a phase waits for all that it needs"),
        (with_task(template="lost"), "it has no template 'lost', only main, prepare"),
        (with_task(template="main"), "train runs neither container nor script"),
        (
            with_task(arguments={"parameters": [
                {"name": "rate", "value": "{{tasks.prepare.outputs.result}}"}
            ]}),
            "train takes tasks.prepare.outputs.result, which is known only as the workflow runs",
        ),
        (with_script("perl"), "train has a script for 'perl': put it into its image"),
        (workflow(entrypoint=None), "it has no template None"),
        (workflow(templates=[{"name": "main", "dag": 3}]), "it is no Workflow"),
    ],
)  # fmt: skip
def test_what_no_specification_can_say_is_refused(document: dict[str, Any], why: str) -> None:
    with pytest.raises(FormatError) as refused:
        brought(document)
    assert why in str(refused.value)
