from typing import Any

import pytest

from lab.training import JOB_KINDS, SpecError, Stage, TrainingSpec, make_spec
from physics.comm import gradient_bytes
from tests.unit.lab.training.running import Run, make_training


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"base_step_s": 0.0}, "base_step_s: must be a number above 0, not 0.0"),
        ({"base_step_s": float("nan")}, "base_step_s"),
        ({"total_steps": 0}, "total_steps"),
        ({"collective_bytes": -1.0}, "collective_bytes: must be a number at least 0"),
        ({"overlap": 1.5}, "overlap: must be a share"),
        ({"kind": "mine"}, "kind: 'mine' is none of train"),
        ({"eval_every_s": 10.0, "eval_s": 10.0}, "eval_s: 10.0 leaves no time"),
        ({"checkpoint_interval_s": 0.0}, "checkpoint_interval_s"),
        ({"before": (Stage(name="packaging"),)}, "'packaging'.*among ingestion"),
        ({"after": (Stage(name="ingestion"),)}, "'ingestion'.*among evaluation"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        make_training(**changes)


def test_a_stage_that_no_pipeline_has_is_refused() -> None:
    with pytest.raises(SpecError, match="'cooking' is none of ingestion"):
        Stage(name="cooking")


def test_a_model_takes_what_the_roofline_says() -> None:
    """8e9 parameters and 4e6 tokens on 64 H100 at half of 989 TFLOP/s: 6 s a step."""
    spec = TrainingSpec.of_model(
        parameters=8e9, tokens_per_step=4e6, total_steps=100, gpus=64, efficiency=0.5
    )
    assert spec.base_step_s == pytest.approx(6 * 8e9 * 4e6 / 64 / (0.5 * 989.4e12))
    assert spec.memory_step_s == pytest.approx(2 * 14 * 8e9 / 64 / 3.35e12)
    assert spec.collective_bytes == gradient_bytes(parameters=8e9)
    assert spec.checkpoint_bytes == 14 * 8e9
    alone = TrainingSpec.of_model(parameters=1e9, tokens_per_step=1e5, total_steps=1, gpus=1)
    assert alone.collective_bytes == 0.0


def test_a_gpu_that_the_catalogue_lacks_numbers_of_is_refused() -> None:
    with pytest.raises(SpecError, match="gpu: the catalogue has no BF16 peak"):
        TrainingSpec.of_model(
            parameters=1e9, tokens_per_step=1e5, total_steps=1, gpus=1, gpu="V100"
        )


@pytest.mark.parametrize("kind", list(JOB_KINDS))
@pytest.mark.parametrize(("nodes", "gpus"), [(1, 8), (4, 32)])
def test_a_job_of_a_trace_takes_as_long_as_the_trace_says(kind: str, nodes: int, gpus: int) -> None:
    run = Run()
    spec = make_spec(kind, gpus=gpus, runs_s=900.0, key="philly-17", checkpoints=False)
    slot = run.begin(spec, nodes=nodes)
    assert run.finish(slot) == pytest.approx(900.0, abs=2.0)


def test_a_job_on_one_gpu_has_nobody_to_talk_to() -> None:
    spec = make_spec(gpus=1, runs_s=30.0, key="short")
    assert spec.collective_bytes == 0.0
    assert spec.warmup_s + spec.total_steps * spec.base_step_s == pytest.approx(30.0)


def test_jobs_of_a_trace_differ_by_their_key_and_the_seed_alone() -> None:
    def made(key: str, seed: int) -> TrainingSpec:
        return make_spec(gpus=16, runs_s=3600.0, key=key, seed=seed)

    assert made("a", 1) == made("a", 1)
    assert made("a", 1) != made("b", 1)
    assert made("a", 1) != made("a", 2)


def test_what_a_job_of_a_trace_saves_takes_as_long_as_jobs_of_its_kind_take() -> None:
    kind = JOB_KINDS["train"]
    spec = make_spec("train", gpus=32, runs_s=7200.0, key="x")
    assert kind.checkpoint_s[0] <= spec.checkpoint_bytes / (4 * 4e9) <= kind.checkpoint_s[1]
    assert kind.checkpoint_every_s[0] <= spec.checkpoint_interval_s <= kind.checkpoint_every_s[1]
    assert make_spec("serve", gpus=8, runs_s=7200.0, key="x").checkpoint_bytes == 0.0


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"gpus": 0}, "gpus"), ({"runs_s": 0.0}, "runs_s"), ({"kind": "mine"}, "kind")],
)
def test_jobs_that_make_no_sense_are_refused(changes: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"gpus": 8, "runs_s": 60.0, "key": "x"}
    with pytest.raises(SpecError, match=said):
        make_spec(**(given | changes))
