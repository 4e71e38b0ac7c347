"""The figures of the twin's hardware: mistakes in the file are told by place."""

from __future__ import annotations

from importlib.resources import files

import msgspec
import pytest

from lab.hardware import H100, L40S, models_of

TEXT = files("lab").joinpath("hardware.toml").read_text(encoding="utf-8")


def test_a_part_that_a_card_lacks_is_absent() -> None:
    assert L40S.nvlink_bytes_per_s is None
    assert L40S.slowdown_mem_c is None
    assert H100.nvlink_bytes_per_s == 450e9


@pytest.mark.parametrize(
    ("figure", "wrong", "told"),
    [
        ("rated_w = 700.0", "rated_w = -700.0", r"gpus\[...\].rated_w"),
        ("rated_w = 700.0", 'rated_w = "700 W"', r"Expected `float`"),
        ("rated_w = 700.0", "", "missing required field `rated_w`"),
        ("rated_w = 700.0", "rated_w = 700.0\nrated_kw = 0.7", "gpus.H100 has no rated_kw"),
        ("height_u = 6", "height_u = 6.5", "Expected `int`"),
    ],
)
def test_a_wrong_figure_is_refused(figure: str, wrong: str, told: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=told):
        models_of(TEXT.replace(figure, wrong, 1))
