"""Rows that are put together from pieces of several requests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from telemetry.ingest.rows import Place, Row, Rows, aligned, merged, reports_of, rows_of

A, B, C = Place("n1", 0), Place("n1", 1), Place("n2", 0)

_rows = st.dictionaries(
    st.tuples(st.sampled_from([A, B, C]), st.sampled_from([1.0, 2.0, 3.5])),
    st.dictionaries(
        st.sampled_from(["power_w", "temp_c", "util", "job"]), st.just(1.0), min_size=1
    ),
    max_size=6,
)


def test_what_nodes_report_of_rows_is_these_rows() -> None:
    rows: Rows = {
        (A, 1.0): {"power_w": 5.0},
        (B, 1.0): {"power_w": 6.0, "job": "x"},
        (C, 2.0): {"temp_c": 7.0},
    }
    left, right = reports_of(rows)
    assert (left.node, right.node) == ("n1", "n2")
    assert left.gpus is not None
    assert (left.gpus.power_w, left.gpus.job, left.gpus.temp_c) == ([5.0, 6.0], [None, "x"], None)
    assert rows_of([left, right]) == rows


def test_pieces_of_one_row_become_one() -> None:
    whole = merged([{(A, 1.0): {"power_w": 5.0}}, {(A, 1.0): {"temp_c": 7.0}}])
    assert whole == {(A, 1.0): {"power_w": 5.0, "temp_c": 7.0}}


def test_of_two_that_tell_the_same_the_first_counts() -> None:
    whole = merged([{(A, 1.0): {"util": 5.0}}, {(A, 1.0): {"util": 99.0}}])
    assert whole == {(A, 1.0): {"util": 5.0}}


def test_instances_of_one_gpu_that_came_apart_add_up() -> None:
    first: Row = {"mig_instances": 2, "mem_used": 30, "temp_c": 50.0}
    second: Row = {"mig_instances": 1, "mem_used": 12, "temp_c": 50.0}
    assert merged([{(A, 1.0): first}, {(A, 1.0): second}]) == {
        (A, 1.0): {"mig_instances": 3, "mem_used": 42, "temp_c": 50.0}
    }


def test_values_that_were_read_one_after_the_other_are_one_reading() -> None:
    rows: Rows = {
        (A, 10.0): {"power_w": 1.0},
        (A, 10.2): {"temp_c": 2.0},
        (B, 10.3): {"temp_c": 3.0},
        (A, 10.45): {"util": 4.0},
    }
    assert aligned(rows, 0.5) == {
        (A, 10.0): {"power_w": 1.0, "temp_c": 2.0, "util": 4.0},
        (B, 10.3): {"temp_c": 3.0},
    }


def test_the_next_reading_of_the_same_field_is_another() -> None:
    rows: Rows = {(A, 10.0): {"power_w": 1.0}, (A, 10.1): {"power_w": 2.0}}
    assert aligned(rows, 0.5) == rows


def test_what_lies_too_far_apart_stays_apart() -> None:
    rows: Rows = {(A, 10.0): {"power_w": 1.0}, (A, 10.4): {"util": 2.0}, (A, 10.6): {"fan": 2.0}}
    assert aligned(rows, 0.5) == {
        (A, 10.0): {"power_w": 1.0, "util": 2.0},
        (A, 10.6): {"fan": 2.0},
    }


@given(_rows)
def test_reports_lose_nothing(rows: Rows) -> None:
    assert rows_of(reports_of(rows)) == rows


@given(st.lists(_rows, max_size=4))
def test_merging_and_aligning_lose_no_field(pieces: list[Rows]) -> None:
    whole = merged(pieces)
    for piece in pieces:
        for key, row in piece.items():
            assert row.keys() <= whole[key].keys()
    count = sum(len(row) for row in whole.values())
    assert sum(len(row) for row in aligned(whole, 0.5).values()) == count
