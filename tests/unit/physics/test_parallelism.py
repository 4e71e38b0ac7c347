from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from physics import comm, parallelism
from physics.errors import ImpossibleArgumentError
from physics.hardware import TEXTBOOK
from physics.parallelism import (
    activation_message_bytes,
    activation_state_bytes,
    model_state,
    placement,
    step_traffic,
)
from tests.unit.physics.law_checks import check_arrays, check_refusals

NVLINK, NDR = TEXTBOOK.link("NVLink 4.0"), TEXTBOOK.link("InfiniBand NDR")
LINKS: dict[str, Any] = {
    "node_bytes_per_s": NVLINK.per_direction_bytes_per_s,
    "network_bytes_per_s": NDR.per_direction_bytes_per_s,
}
#: A layer of GPT-3: sequences of 2,048 tokens, 96 heads, width 12,288.
GPT_3: dict[str, Any] = {"batch": 1, "tokens": 2048, "width": 12_288, "heads": 96, "layers": 96}

GOOD: dict[str, dict[str, Any]] = {
    "activation_message_bytes": {"batch": 1, "tokens": 2048, "width": 4096},
    "activation_state_bytes": GPT_3 | {"tensor_ranks": 8, "pipeline_stages": 8},
    "model_state": {
        "parameters": 7.5e9,
        "zero_stage": 1,
        "data_ranks": 64,
        "tensor_ranks": 2,
        "pipeline_stages": 2,
    },
    "placement": LINKS | {"sent_bytes": 16e6, "compute_s": 1e-3, "overlap": 0.2},
    "step_traffic": {
        "parameters": 7e9,
        "message_bytes": 16e6,
        "layers": 32,
        "microbatches": 8,
        "zero_stage": 1,
        "data_ranks": 32,
        "tensor_ranks": 8,
        "pipeline_stages": 2,
    },
}


@pytest.mark.parametrize("name", parallelism.__all__[3:])
def test_every_law_refuses_nonsense_and_takes_arrays(name: str) -> None:
    check_refusals(getattr(parallelism, name), GOOD[name])
    if name != "placement":  # its word is no number
        check_arrays(getattr(parallelism, name), GOOD[name])


# What a GPU holds


@pytest.mark.parametrize(("stage", "printed_gb"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_zero_divides_the_state_as_its_authors_print_it(stage: int, printed_gb: float) -> None:
    # 7.5e9 parameters over 64 ranks with Adam in mixed precision: ZeRO, figure 1.
    state = model_state(parameters=7.5e9, zero_stage=stage, data_ranks=64)
    assert state.total_bytes / 1e9 == pytest.approx(printed_gb, abs=0.05)


def test_durable_state_is_the_14_bytes_of_the_textbook_and_gradients_come_on_top() -> None:
    state = model_state(parameters=175e9)
    assert (state.weights_bytes + state.optimizer_bytes) / 1e9 == pytest.approx(2450.0)
    assert state.gradients_bytes / 1e9 == pytest.approx(350.0)


@given(
    stage=st.integers(0, 3),
    data=st.integers(1, 1024),
    tensor=st.integers(1, 16),
    stages=st.integers(1, 64),
)
def test_all_gpus_together_hold_the_model_at_least_once(
    stage: int, data: int, tensor: int, stages: int
) -> None:
    split: dict[str, Any] = {"data_ranks": data, "tensor_ranks": tensor, "pipeline_stages": stages}
    own = model_state(parameters=7e9, zero_stage=stage, **split).total_bytes
    whole = model_state(parameters=7e9).total_bytes
    assert own * data * tensor * stages >= whole * (1.0 - 1e-12)
    if stage == 3:
        assert own * data * tensor * stages == pytest.approx(whole)


def test_scores_of_attention_are_most_of_what_gpt_3_keeps() -> None:
    kept, fused, inputs = (
        activation_state_bytes(**GPT_3, recompute=each) for each in ("none", "attention", "all")
    )
    # 5·a·s/h = 80 beside 34: recomputing attention saves 70 % (Korthikanti and others, section 5).
    assert 1.0 - fused / kept == pytest.approx(0.70, abs=0.005)
    assert inputs / kept == pytest.approx(2.0 / 114.0)


def test_tensor_parallelism_leaves_a_part_of_the_activations_on_every_gpu() -> None:
    whole, split = (activation_state_bytes(**GPT_3, tensor_ranks=each) for each in (1, 8))
    assert split / whole == pytest.approx((10 + 24 / 8) / 34)


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(ImpossibleArgumentError) as refused:
        activation_state_bytes(**GPT_3, pipeline_stages=97)
    assert refused.value.argument == "pipeline_stages"


# What it sends, and where


def test_the_activation_of_the_textbook_takes_4_hundredths_of_a_millisecond_on_nvlink() -> None:
    message = activation_message_bytes(batch=1, tokens=2048, width=4096)
    moving_s = comm.transfer_s(
        message_bytes=message, link_bytes_per_s=LINKS["node_bytes_per_s"], latency_s=0.0
    )
    assert moving_s * 1e3 == pytest.approx(0.04, abs=0.005)


def test_traffic_of_a_step_by_its_formulas() -> None:
    sent = step_traffic(**GOOD["step_traffic"])
    assert sent.tensor_bytes == pytest.approx(4 * 16 * 8 * (2 * 7 / 8) * 16e6)
    assert sent.pipeline_bytes == pytest.approx(2 * 8 * 16e6)
    assert sent.data_bytes == pytest.approx(2 * 31 / 32 * 2 * 7e9 / 16)
    stage_3 = step_traffic(**(GOOD["step_traffic"] | {"zero_stage": 3}))
    assert stage_3.data_bytes == pytest.approx(1.5 * sent.data_bytes)


def test_one_gpu_sends_nothing() -> None:
    alone = step_traffic(parameters=7e9, message_bytes=16e6, layers=32, microbatches=8)
    assert (alone.tensor_bytes, alone.pipeline_bytes, alone.data_bytes) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("sent_bytes", "compute_s", "overlap", "where"),
    [
        # The three rows of Table 11: tensor parallelism stays inside the node,
        (16e6, 1e-3, 0.0, "node"),
        # gradients of 7B hide behind 5 s of computation on the network,
        (2 * 255 / 256 * 14e9, 5.0, 1.0, "network"),
        # those of "350M" do not behind 10 ms: fewer GPUs, of one node, or longer steps.
        (2 * 255 / 256 * 680e6, 10e-3, 1.0, "node"),
        (2 * 255 / 256 * 6.8e9, 10e-3, 1.0, "neither"),
    ],
)
def test_traffic_goes_where_a_step_waits_little_for_it(
    sent_bytes: float, compute_s: float, overlap: float, where: str
) -> None:
    found = placement(sent_bytes=sent_bytes, compute_s=compute_s, overlap=overlap, **LINKS)
    assert found.where == where


def test_tensor_parallelism_waits_4_percent_in_the_node_and_a_quarter_over_the_network() -> None:
    found = placement(sent_bytes=16e6, compute_s=1e-3, **LINKS)
    # rho 0.036 is relative to computation: 3.4 % of the step.
    assert found.node_wait_share == pytest.approx(0.036 / 1.036, abs=5e-4)
    assert found.network_wait_share == pytest.approx(0.32 / 1.32)


def test_placement_answers_for_many_splits_at_once() -> None:
    found = placement(sent_bytes=np.array([0.0, 16e6, 1e9]), compute_s=1e-3, **LINKS)
    assert np.array(found.where).tolist() == ["network", "node", "neither"]
