"""Published failures are counted as they were published, and put where nothing else happens."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from bench.failures import draw
from bench.failures_evidence import ACME
from bench.failures_llama import LLAMA_3

NOW = 1_800_000_000.0


def test_the_table_of_acme_comes_to_what_its_text_says() -> None:
    hard = [each for each in ACME if each.category == "infrastructure"]
    count = sum(each.count for each in ACME)
    assert count == 2575
    assert sum(each.count for each in hard) / count == pytest.approx(0.11, abs=0.005)
    assert sum(each.gpu_time for each in hard) == pytest.approx(0.82, abs=0.005)
    assert sum(each.gpu_time for each in ACME) == pytest.approx(1.0, abs=0.001)


def test_the_table_of_llama_comes_to_what_its_text_says() -> None:
    assert sum(each.count for each in LLAMA_3) == 419
    of_gpus = sum(each.count for each in LLAMA_3 if each.category == "GPU")
    assert of_gpus / 419 == pytest.approx(0.640, abs=0.0005)
    # Of 126 faulty GPUs, as its percentages have it.
    assert (of_gpus - 148 + 126) / 419 == pytest.approx(0.587, abs=0.0005)


def test_failures_are_drawn_as_often_as_they_came_and_apart_on_each_node() -> None:
    nodes = [f"n{number}" for number in range(400)]
    drawn = draw(ACME, nodes, NOW, np.random.default_rng(1))
    assert Counter(each.reason.name for each in drawn) == {each.name: each.count for each in ACME}
    assert [each.at for each in drawn] == sorted(each.at for each in drawn)
    last: dict[str, float] = {}
    for each in drawn:
        assert each.failing in each.nodes
        assert each.trace in each.reason.traces
        for node in each.nodes:
            assert each.at - last.get(node, -np.inf) >= 7200.0
            last[node] = each.at
